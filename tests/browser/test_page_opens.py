"""Grants, openings, full queues and long queues on the waiting page."""

import json
import re
import time
from datetime import UTC, datetime

import pytest
import redis
from playwright.sync_api import expect

from sidecar.rooms.redis_keys import room_key
from sidecar.visitors.grants import Grant, Grants
from tests.support.processes import wait_until
from tests.support.site import SECRET, Site, gated
from tests.support.story import ahead, go_in, leave

ROOMS = {
    "vip": {
        "total_active_users": 1,
        "display": "order",
        "classes": json.dumps({"vip": {"head_start": "5m"}}),
    },
    "sale": {"total_active_users": 0},
    "small": {"total_active_users": 0, "max_waiting": 1},
    "tail": {"total_active_users": 0, "rank_limit": 2000},
}


@pytest.fixture(scope="module")
def site():
    locations = "".join(gated(f"/page/{room}", room=room) for room in ROOMS)
    with Site(rooms=ROOMS, locations=locations) as site:
        yield site


def sign_room_grant(room, *, key=SECRET):
    return Grants(room, [key]).sign(Grant("vip", int(time.time()) + 600))


def test_a_grant_link_takes_a_visitor_ahead(site, visitor):
    """A visitor with a grant overtakes an earlier one, whose page shows it. A forged grant has no
    effect."""
    inside, first, forger, guest = visitor(), visitor(), visitor(), visitor()
    go_in(inside, f"{site.url}/page/vip")
    first.goto(f"{site.url}/page/vip")
    expect(ahead(first)).to_have_text("0")
    forged = sign_room_grant("vip", key="of somebody else, of somebody else")
    forger.goto(f"{site.url}/page/vip?waitroom_grant={forged}")
    expect(ahead(forger)).to_have_text("1")
    link = f"{site.url}/page/vip/ticket?colour=red&waitroom_grant={sign_room_grant('vip')}"
    guest.goto(link)
    expect(ahead(guest)).to_have_text("0")
    expect(ahead(first)).to_have_text("1")
    expect(ahead(forger)).to_have_text("2")

    site.admin("PATCH", "/rooms/vip", {"total_active_users": 2})
    expect(guest.locator("h1")).to_have_text("Inside")
    assert guest.url == link
    expect(ahead(first)).to_have_text("0")
    assert [page.problems for page in (first, forger, guest)] == [[], [], []]


def test_the_countdown_opens_by_itself(site, visitor):
    """The page goes from the countdown to the pre-queue to a drawn place by itself, with and
    without JavaScript. Each visitor gets a different place."""
    pages = [visitor(), visitor(), visitor(java_script_enabled=False)]
    now = time.time()
    event = {
        "name": "sale",
        "prequeue_from": iso(now + 6),
        "opens_at": iso(now + 12),
    }
    site.admin("PATCH", "/rooms/sale", {"events": [event]})
    for page in pages:
        page.goto(f"{site.url}/page/sale")
        expect(page.locator("h1")).to_contain_text("Opens ")
    expect(pages[0].locator("#left")).to_contain_text("00")
    assert site.room("sale")["waiting"] == 0
    for page in pages:
        expect(page.locator("h1")).to_have_text("You are in the pre-queue")
        expect(ahead(page)).to_be_hidden()
    for page in pages:
        expect(page.locator("h1")).to_have_text(re.compile("^You are (in line|next)$"))
    assert sorted(ahead(page).inner_text() for page in pages) == ["0", "1", "2"]
    assert [page.problems for page in pages] == [[], [], []]


def iso(seconds):
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def test_a_full_line(site, visitor):
    """The page says that the queue is full, and joins when a visitor leaves."""
    first, second = visitor(), visitor()
    first.goto(f"{site.url}/page/small")
    expect(ahead(first)).to_have_text("0")
    second.goto(f"{site.url}/page/small")
    expect(second.locator("h1")).to_have_text("The line is full right now")
    expect(second.locator("#intro")).to_contain_text("tries again by itself")
    leave(first)
    expect(second.locator("h1")).to_have_text("You are next")
    expect(ahead(second)).to_have_text("0")


def test_far_back_in_a_long_line(site, visitor):
    """The page shows 2,000+, with and without JavaScript, and the position once others have
    left."""
    waiting, due = room_key("tail", "waiting"), room_key("tail", "due")
    crowd = [f"{number:022}" for number in range(2001)]
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        store.zadd(waiting, {each: number for number, each in enumerate(crowd)})
        store.zadd(due, dict.fromkeys(crowd, (time.time() + 3600) * 1000))
        page, plain = visitor(), visitor(java_script_enabled=False)
        page.goto(f"{site.url}/page/tail")
        expect(ahead(page)).to_have_text("2,000+")
        expect(page.locator("progress")).to_be_hidden()
        plain.goto(f"{site.url}/page/tail")
        expect(ahead(plain)).to_have_text("2000+")
        store.zrem(waiting, *crowd[:2000])
        store.zrem(due, *crowd[:2000])
    # nginx caches a status for a moment.
    wait_until(lambda: reload_number(page) == "1", "the number")
    expect(page.locator("progress")).to_be_visible()


def reload_number(page):
    """Reload the page. Return the number of visitors ahead."""
    with page.expect_response("**/status"):
        page.reload()
    expect(page.locator("#updated")).not_to_be_empty()
    return ahead(page).inner_text()
