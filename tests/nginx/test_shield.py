"""A flood of newcomers, and the visitors who come with it, through nginx and real replicas."""

import asyncio
import html
import re
import time

import aiohttp
import pytest
import redis

from sidecar.rooms.shield import PERIOD_MS
from sidecar.visitors.tokens import JOIN_FROM_S
from sidecar.visitors.verdict_lifetime import REFRESH_MS
from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.relay import Relay
from tests.support.site import Site

FLOOD = 20_000
ABOVE = 20
ROOMS = {
    # No sweep meanwhile, and the first visitor stays inside.
    "shop": {"total_active_users": 1, "shield_above": ABOVE, "claim_window": 120},
}
NAVIGATION = {"Accept": HTML, "Sec-Fetch-Mode": "navigate"}


@pytest.fixture(params=[1, 2], ids=["one replica", "two replicas"])
def site(request):
    with Site(rooms=ROOMS, replicas=request.param, relay=Relay) as site:
        yield site


def joins(visitor, join_url):
    """As soon as it is worth something; the status."""
    time.sleep(JOIN_FROM_S)
    return visitor.post(join_url, headers={"Accept": JSON}).json()


def contents(site) -> dict[bytes, int]:
    """How many members each key of the store has; but for the replicas' own housekeeping."""
    sizes = {b"hash": "hlen", b"zset": "zcard", b"stream": "xlen", b"string": "strlen"}
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        return {
            key: getattr(store, sizes[store.type(key)])(key)
            for key in store.keys()  # noqa: SIM118 - a command of the store
            if key.rpartition(b":")[2] not in {b"stats", b"sweeping", b"minutes"}
        }


async def flood(url: str, count: int) -> set[int]:
    """Cookie-less visitors, 50 at a time; the statuses they got."""
    left = iter(range(count))
    seen = set()

    async def come(session):
        for _ in left:
            async with session.get(url, headers=NAVIGATION) as reply:
                await reply.read()
                assert "Set-Cookie" not in reply.headers
                seen.add(reply.status)

    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        await asyncio.gather(*(come(session) for _ in range(50)))
    return seen


def raise_shield(site) -> None:
    """Until no replica gives a place any more."""
    unplaced = 0
    for _ in range(50 * ABOVE):
        visitor = Visitor(site.url, NAVIGATION)
        visitor.get("/")
        unplaced = 0 if visitor.cookies else unplaced + 1
        if unplaced == 5 * ABOVE:
            time.sleep(2 * REFRESH_MS / 1000)  # by then every replica has heard of it
            return
    pytest.fail("the shield did not go up")


@pytest.mark.slow
async def test_a_flood_leaves_nothing_in_the_store(site):
    """Not while the shield is up, and not when it looks whether the flood is over."""
    raise_shield(site)
    before = contents(site)
    assert before[b"waitroom:{shop}:waiting"] > 0
    for relay in site.relays:
        relay.forget()
    assert await flood(site.url, FLOOD) == {503}
    assert contents(site) == before
    assert sum(len(relay.checks()) for relay in site.relays) < FLOOD / 2


def test_a_person_takes_a_place_by_asking(site):
    """The page does so by itself; the way to the place is not shielded."""
    raise_shield(site)
    person = Visitor(site.url, NAVIGATION)
    page = person.get("/")
    assert page.waits
    assert not person.cookies
    told = person.get("/_waitroom/shop/status", headers={"Accept": JSON})
    assert told.json()["state"] == "not_queued"
    assert told.json()["refresh_after_seconds"] > 0
    joined = joins(person, told.json()["join_url"])
    assert joined["state"] == "waiting"
    assert person.get("/", headers={"Accept": JSON}).json()["position"] == joined["position"]


def test_a_program_is_told_where_to_ask_for_a_place(site):
    raise_shield(site)
    program = Visitor(site.url, {"Accept": JSON})
    denied = program.get("/").json()
    assert denied["state"] == "not_queued"
    told = program.post(denied["join_url"]).json()
    assert (told["state"], program.cookies) == ("not_queued", {})
    assert program.post(told["join_url"]).json()["state"] == "not_queued"  # no sooner than others
    assert joins(program, told["join_url"])["state"] == "waiting"
    # The place is kept by the cookie, shield or not.
    assert program.get("/").json()["state"] == "waiting"


def test_without_scripts_the_pages_own_refresh_takes_a_place(site):
    raise_shield(site)
    person = Visitor(site.url, NAVIGATION)
    person.get("/")
    assert not person.cookies
    page = person.get("/_waitroom/shop/?next=/cart?a=1")
    assert page.waits
    assert not person.cookies
    [(seconds, way)] = re.findall(
        r'<noscript><meta http-equiv="refresh" content="([0-9]+); url=([^"]+)"', page.text
    )
    assert int(seconds) > JOIN_FROM_S
    assert way.endswith("&amp;next=/cart?a=1")
    time.sleep(JOIN_FROM_S)
    assert person.get(html.unescape(way)).waits
    assert "waitroom_shop" in person.cookies


def test_comes_down_by_itself(site):
    raise_shield(site)
    end = time.monotonic() + 10 * PERIOD_MS / 1000
    while time.monotonic() < end:
        visitor = Visitor(site.url, NAVIGATION)
        visitor.get("/")
        if visitor.cookies:
            return
        time.sleep(0.3)
    pytest.fail("the shield did not come down")
