"""Grants, openings, full queues and long queues on the waiting page."""

import json
import re
import time
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from sidecar.visitors.grants import Grant, Grants
from tests.support.site import SECRET, Site, gated
from tests.support.story import ahead, go_in

ROOMS = {
    "vip": {
        "total_active_users": 1,
        "display": "order",
        "classes": json.dumps({"vip": {"head_start": "5m"}}),
    },
    "sale": {"total_active_users": 0},
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
    event = {"name": "sale", "prequeue_from": iso(now + 6), "opens_at": iso(now + 12)}
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
