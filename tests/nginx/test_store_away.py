"""Redis stops and comes back empty, behind real nginx and two replicas."""

import contextlib
import sys
import time

import pytest

from tests.support.nginx_client import JSON, Visitor
from tests.support.processes import SHIFTED, Process, listens, wait_until
from tests.support.site import Site

STATUS = "/_waitroom/shop/status"


@pytest.fixture
def site():
    # session_duration 30 s: a pass is due for renewal after 5 s.
    # Replicas as young as these cannot know what others told: they are given the window.
    room = {
        "total_active_users": 1,
        "session_duration": 30,
        "heartbeat_interval": 1,
        "recovery_window": 5,
    }
    with Site(rooms={"shop": room}, replicas=2) as site:
        yield site


def test_the_site_survives_the_store(site):
    """Visitors inside pass, others wait with their place, and all is restored afterwards."""
    inside, waiting, newcomer = (Visitor(site.url) for _ in range(3))
    assert inside.get("/page").status == 200
    assert waiting.get("/page").status == 503
    time.sleep(1.2)  # the replicas have seen that the room is full
    site.redis.stop()
    began = time.monotonic()
    while time.monotonic() - began < 7:  # past the moment of renewal
        assert inside.get("/page").status == 200
        time.sleep(0.25)
    document = waiting.get(STATUS).json()
    assert (document["state"], document["paused"]) == ("waiting", True)
    reply = newcomer.get("/page")
    assert (reply.status, reply.all("Set-Cookie")) == (503, [])
    reply = newcomer.post("/_waitroom/shop/join", headers={"Accept": JSON})
    assert (reply.status, reply.headers["Content-Type"]) == (503, "application/problem+json")

    site.redis.start()
    wait_until(lambda: listens(site.redis_socket), "redis-server")
    # Who comes first does not matter: nobody is called before both are back.
    told = []
    while time.monotonic() - began < 20 and (not told or told[-1][0] is None):
        document = waiting.get(STATUS).json()
        assert document["state"] == "waiting"
        told.append((document["position"], document.get("paused", False)))
        assert inside.get("/page").status == 200
        time.sleep(0.5)
    assert told[0] == (None, True)
    assert told[-1] == (1, False)
    room = site.room()
    assert (room["active"], room["waiting"]) == (1, 1)


def test_a_replica_that_starts_with_a_wrong_clock_then():
    """With Redis down and a clock an hour ahead, visitors inside stay and newcomers wait."""
    room = {"total_active_users": 2, "session_duration": 300, "on_store_failure": "admit"}
    with Site(rooms={"shop": room}) as site:
        inside, newcomer = Visitor(site.url), Visitor(site.url)
        assert inside.get("/page").status == 200
        site.redis.stop()
        site.replicas[0].stop()
        config = site.folder / "replica-0.toml"
        shift = [sys.executable, str(SHIFTED), "3600", "serve", "--config"]
        with Process([*shift, str(config)], log=site.folder / "shifted.log") as shifted:
            wait_until(lambda: _is_away(site), "the replica's notice that Redis is down")
            assert inside.get("/page").status == 200
            reply = newcomer.get("/page")
            assert (reply.status, reply.all("Set-Cookie")) == (503, [])
            assert "clocks_apart" in shifted.output
            site.redis.start()
            wait_until(lambda: not _is_away(site), "the replica's return to Redis")
            began = time.monotonic()
            while time.monotonic() - began < 20 and site.room()["active"] == 0:
                assert inside.get("/page").status == 200
                time.sleep(0.25)
            assert site.room()["active"] == 1


def _is_away(site: Site) -> bool:
    with contextlib.suppress(OSError):
        return 'waitroom_store_away{room="shop"} 1.0' in Visitor(site.ops[0]).get("/metrics").text
    return False
