"""Redis stops and comes back empty, behind real nginx and two replicas."""

import asyncio
import contextlib
import sys
import time
import urllib.request

import aiohttp
import pytest

from tests.support.processes import SHIFTED, Process, listens, wait_until
from tests.support.site import Site


def started(**settings):
    # session_duration 30 s: a pass is due for renewal after 5 s.
    # Replicas as young as these cannot know what others told: they are given the window.
    room = {
        "total_active_users": 1,
        "session_duration": 30,
        "heartbeat_interval": 1,
        "recovery_window": 5,
    }
    return Site(rooms={"shop": room}, replicas=2, settings=settings)


@pytest.fixture
def site():
    with started() as site:
        yield site


def visitor(**headers) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        cookie_jar=aiohttp.CookieJar(unsafe=True),
        headers={"Accept": "text/html", **headers},
        timeout=aiohttp.ClientTimeout(10),
    )


async def test_the_site_survives_the_store(site):
    """Visitors inside pass, others wait with their place, and all is restored afterwards."""
    status = f"{site.url}/_waitroom/shop/status"
    async with visitor() as inside, visitor() as waiting, visitor() as newcomer:
        async with inside.get(f"{site.url}/page") as reply:
            assert reply.status == 200
        async with waiting.get(f"{site.url}/page") as reply:
            assert reply.status == 503
        await asyncio.sleep(1.2)  # the replicas have seen that the room is full
        site.redis.stop()
        began = time.monotonic()
        while time.monotonic() - began < 7:  # past the moment of renewal
            async with inside.get(f"{site.url}/page") as reply:
                assert reply.status == 200
            await asyncio.sleep(0.25)
        async with waiting.get(status) as reply:
            document = await reply.json()
            assert (document["state"], document["paused"]) == ("waiting", True)
        async with newcomer.get(f"{site.url}/page") as reply:
            assert reply.status == 503
            assert "Set-Cookie" not in reply.headers
        join = f"{site.url}/_waitroom/shop/join"
        async with newcomer.post(join, headers={"Accept": "application/json"}) as reply:
            assert (reply.status, reply.content_type) == (503, "application/problem+json")

        site.redis.start()
        wait_until(lambda: listens(site.redis_socket), "redis-server")
        # Who comes first does not matter: nobody is called before both are back.
        told = []
        while time.monotonic() - began < 20 and (not told or told[-1][0] is None):
            async with waiting.get(status) as reply:
                document = await reply.json()
            assert document["state"] == "waiting"
            told.append((document["position"], document.get("paused", False)))
            async with inside.get(f"{site.url}/page") as reply:
                assert reply.status == 200
            await asyncio.sleep(0.5)
        assert told[0] == (None, True)
        assert told[-1] == (1, False)
        room = site.room()
        assert (room["active"], room["waiting"]) == (1, 1)


async def test_a_replica_that_starts_with_a_wrong_clock_then():
    """With Redis down and a clock an hour ahead, visitors inside stay and newcomers wait."""
    room = {"total_active_users": 2, "session_duration": 300, "on_store_failure": "admit"}
    with Site(rooms={"shop": room}) as site:
        async with visitor() as inside, visitor() as newcomer:
            async with inside.get(f"{site.url}/page") as reply:
                assert reply.status == 200
            site.redis.stop()
            site.replicas[0].stop()
            config = site.folder / "replica-0.toml"
            shift = [sys.executable, str(SHIFTED), "3600", "serve", "--config"]
            with Process([*shift, str(config)], log=site.folder / "shifted.log"):
                wait_until(lambda: _is_away(site), "the replica's notice that Redis is down")
                async with inside.get(f"{site.url}/page") as reply:
                    assert reply.status == 200
                async with newcomer.get(f"{site.url}/page") as reply:
                    assert (reply.status, "Set-Cookie" in reply.headers) == (503, False)
                assert "clocks_apart" in (site.folder / "shifted.log").read_text()
                site.redis.start()
                wait_until(lambda: not _is_away(site), "the replica's return to Redis")
                began = time.monotonic()
                while time.monotonic() - began < 20 and site.room()["active"] == 0:
                    async with inside.get(f"{site.url}/page") as reply:
                        assert reply.status == 200
                    await asyncio.sleep(0.25)
                assert site.room()["active"] == 1


def _is_away(site: Site) -> bool:
    with contextlib.suppress(OSError):
        text = urllib.request.urlopen(f"{site.ops[0]}/metrics", timeout=5).read().decode()
        return 'waitroom_store_away{room="shop"} 1.0' in text
    return False
