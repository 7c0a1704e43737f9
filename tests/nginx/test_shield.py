"""A flood of newcomers, and the visitors who come with it, through nginx and real replicas."""

import asyncio
import time
from collections import Counter

import aiohttp
import pytest
import redis

from sidecar.rooms.shield import PERIOD_MS, PROBE_MS
from sidecar.visitors.tokens import JOIN_FROM_S
from sidecar.visitors.verdict_lifetime import REFRESH_MS
from tests.support.nginx_client import HTML, JSON, Visitor
from tests.support.relay import Relay
from tests.support.site import Site, gated

#: So long that replicas look at least once whether the flood is over.
FLOOD_S = (2 * PERIOD_MS + 2 * PROBE_MS) / 1000
ABOVE = 20
# No sweep meanwhile, and the first visitor stays inside.
ROOM = {"total_active_users": 1, "shield_above": ABOVE, "claim_window": 120}
NAVIGATION = {"Accept": HTML, "Sec-Fetch-Mode": "navigate"}


@pytest.fixture(scope="module")
def site():
    """Start a site with a room for each test."""
    names = [f"room-{number}" for number in range(3)]
    locations = "".join(gated(f"/{name}", room=name) for name in names)
    rooms = dict.fromkeys(names, ROOM)
    with Site(rooms=rooms, locations=locations, replicas=2, relay=Relay) as site:
        site.names = iter(names)
        yield site


@pytest.fixture
def room(site):
    return next(site.names)


def joins(visitor, join_url):
    """Join as soon as a join URL is valid. Return the status document."""
    time.sleep(JOIN_FROM_S)
    return visitor.post(join_url, headers={"Accept": JSON}).json()


def contents(site, room) -> dict[bytes, int]:
    """Return the number of members of each key in Redis, except those of other rooms and those
    with which replicas keep house."""
    sizes = {b"hash": "hlen", b"zset": "zcard", b"stream": "xlen", b"string": "strlen"}
    with redis.Redis(unix_socket_path=str(site.redis_socket)) as store:
        return {
            key: getattr(store, sizes[store.type(key)])(key)
            for key in store.keys()  # noqa: SIM118 - a command of the store
            if key.rpartition(b":")[2] not in {b"stats", b"sweeping", b"minutes"}
            and (b"{room-" not in key or f"{{{room}}}".encode() in key)
        }


async def flood(url: str) -> Counter[int]:
    """Send visitors without cookies, 50 at a time. Return how often they got each status."""
    end, seen = time.monotonic() + FLOOD_S, Counter()

    async def come(session):
        while time.monotonic() < end:
            async with session.get(url, headers=NAVIGATION) as reply:
                await reply.read()
                assert "Set-Cookie" not in reply.headers
                seen[reply.status] += 1

    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        await asyncio.gather(*(come(session) for _ in range(50)))
    return seen


def raise_shield(site, room) -> None:
    """Send newcomers until no replica gives a place any more."""
    unplaced = 0
    for _ in range(50 * ABOVE):
        visitor = Visitor(site.url, NAVIGATION)
        visitor.get(f"/{room}")
        unplaced = 0 if visitor.cookies else unplaced + 1
        if unplaced == 5 * ABOVE:
            time.sleep(2 * REFRESH_MS / 1000)  # by then every replica has heard of it
            return
    pytest.fail("the shield did not go up")


@pytest.mark.slow
async def test_a_flood_leaves_nothing_in_the_store(site, room):
    """Not while the shield is up, and not when it looks whether the flood is over."""
    raise_shield(site, room)
    before = contents(site, room)
    assert before[f"waitroom:{{{room}}}:waiting".encode()] > 0
    for relay in site.relays:
        relay.forget()
    seen = await flood(f"{site.url}/{room}")
    assert set(seen) == {503}
    assert contents(site, room) == before
    assert sum(len(relay.checks()) for relay in site.relays) < seen[503] / 2


def test_a_program_is_told_where_to_ask_for_a_place(site, room):
    raise_shield(site, room)
    program = Visitor(site.url, {"Accept": JSON})
    denied = program.get(f"/{room}").json()
    assert denied["state"] == "not_queued"
    told = program.post(denied["join_url"]).json()
    assert (told["state"], program.cookies) == ("not_queued", {})
    assert program.post(told["join_url"]).json()["state"] == "not_queued"  # no sooner than others
    assert joins(program, told["join_url"])["state"] == "waiting"
    # The place is kept by the cookie, shield or not.
    assert program.get(f"/{room}").json()["state"] == "waiting"


def test_comes_down_by_itself(site, room):
    raise_shield(site, room)
    end = time.monotonic() + 10 * PERIOD_MS / 1000
    while time.monotonic() < end:
        visitor = Visitor(site.url, NAVIGATION)
        visitor.get(f"/{room}")
        if visitor.cookies:
            return
        time.sleep(0.3)
    pytest.fail("the shield did not come down")
