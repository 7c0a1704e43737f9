"""The page on which visitors check a lottery draw."""

import json
import random
import time
import urllib.request

import pytest
import redis
from playwright.sync_api import expect

from sidecar.lottery.commitment import compute_commitment, compute_lot, derive_secret, sort_by_lot
from sidecar.rooms.redis_keys import room_key
from tests.support.draws import HOUR_MS, make_event, make_ids
from tests.support.processes import wait_until
from tests.support.site import SECRET, Site

NOW = int(time.time() * 1000)
#: In the pre-queue, which opens in an hour.
EVENT = make_event(begins=NOW - HOUR_MS, opens_at=NOW + HOUR_MS, closes_at=None)


def make_events(**changes) -> list[dict]:
    return [EVENT.model_copy(update=changes).model_dump(exclude_none=True)]


@pytest.fixture(scope="module")
def site():
    rooms = {
        name: {"total_active_users": 1, "events": json.dumps(make_events())}
        for name in ("shop", "rigged")
    }
    with Site(rooms=rooms) as site:
        yield site


def fill(site: Site, room: str, ids: list[str], *, ahead: str = "") -> list[str]:
    """Write the drawn list as scripts do in a pre-queue, with `ahead` moved to the head. Return the
    ids in the order of their lottery numbers."""
    secret = derive_secret(SECRET, room, EVENT)
    scores = {one: compute_lot(secret, one) - 2**53 for one in ids}
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        store.zadd(room_key(room, "drawn"), scores | ({ahead: -(2**53)} if ahead else {}))
        store.hset(room_key(room, "stats"), "drawn_from", EVENT.begins_ms)
    return sort_by_lot(secret, ids)


def open_room(site: Site, room: str) -> None:
    """Move the opening to a time before the test began, and wait for the draw."""
    events = make_events(opens_at=NOW - 10_000)
    site.admin("PATCH", f"/rooms/{room}", {"events": events})
    wait_until(lambda: read_draw(site, room)["count"] is not None, "the draw")


def read_draw(site: Site, room: str) -> dict:
    with urllib.request.urlopen(f"{site.url}/_waitroom/{room}/draw", timeout=5) as answer:
        return json.load(answer)


def test_the_page_shows_the_commitment_and_then_checks_the_draw(site, visitor):
    """Before the opening the page shows the commitment, which the browser stores. After the opening
    the page recomputes the draw, and shows the visitor's own place."""
    order = fill(site, "shop", make_ids(random.Random(1), 60))
    page = visitor()
    address = f"{site.url}/_waitroom/shop/draw?id={order[41]}"
    page.goto(address)
    commitment = compute_commitment(derive_secret(SECRET, "shop", EVENT))
    expect(page.locator("#commitment")).to_have_text(commitment)
    expect(page.locator("#intro")).to_contain_text("Nothing is drawn yet")
    expect(page.locator("#check")).to_be_hidden()
    open_room(site, "shop")
    page.reload()
    expect(page.locator("#verdict")).to_have_text("All 60 places are as they were drawn.")
    expect(page.locator("#mine")).to_have_text("42 of 60")
    expect(page.locator("#checks li")).to_have_count(6)
    expect(page.locator("#checks")).to_contain_text("the one that this browser saw")
    expect(page.locator("#checks .wrong")).to_have_count(0)
    # Now the page also compares the list with the earlier one.
    page.reload()
    expect(page.locator("#checks li")).to_have_count(7)
    assert page.problems == []


def test_the_page_finds_a_draw_that_is_rigged(site, visitor):
    """The page names the first wrong place."""
    ids = make_ids(random.Random(2), 60)
    order = sort_by_lot(derive_secret(SECRET, "rigged", EVENT), ids)
    fill(site, "rigged", [one for one in ids if one != order[30]], ahead=order[30])
    open_room(site, "rigged")
    page = visitor()
    page.goto(f"{site.url}/_waitroom/rigged/draw?id={'x' * 22}")
    expect(page.locator("#verdict")).to_contain_text("not as it was drawn")
    expect(page.locator("#checks .wrong")).to_have_count(1)
    finding = f"Place 1 is listed as {order[30]}’s; by the lots it is {order[0]}’s."
    expect(page.locator("#checks .wrong")).to_contain_text(finding)
    expect(page.locator("#mine")).to_contain_text("not in the list")
    assert page.problems == []
