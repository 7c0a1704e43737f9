"""The Lua design of the benchmark, on a real nginx."""

import time

import pytest
import redis

from loadtest.baselines.lua.site import LuaSite
from tests.support.nginx_client import Visitor

POLLS_A_MINUTE = 30


@pytest.fixture(scope="module")
def lua():
    with LuaSite(max_active=1, origin='location / { return 200 "inside"; }') as lua:
        yield lua


@pytest.fixture
def site(lua):
    lua.flush()
    return lua


@pytest.fixture
def store(lua):
    with redis.Redis(unix_socket_path=str(lua.redis_socket), decode_responses=True) as store:
        yield store


def arrive(site: LuaSite) -> Visitor:
    visitor = Visitor(site.url)
    visitor.get("/")
    return visitor


def poll(visitor: Visitor) -> dict:
    reply = visitor.get("/queue/status")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    return reply.json()


def test_a_newcomer_is_let_in_below_the_cap(site, store):
    """They get the site's page, an id and a pass."""
    visitor = Visitor(site.url)
    reply = visitor.get("/")
    assert (reply.status, reply.text) == (200, "inside")
    assert len(visitor.cookies["queue_id"]) == 32
    assert visitor.cookies["queue_authorized"] == "1"
    assert (site.active, site.authorized, site.waiting) == (1, 1, 0)
    assert store.sismember("queue:authorized:set", visitor.cookies["queue_id"])
    assert 3590 <= store.ttl("queue:active:count") <= 3600


def test_over_the_cap_newcomers_are_sent_to_the_page(site):
    arrive(site)
    visitor = Visitor(site.url)
    reply = visitor.get("/")
    assert reply.status == 302
    assert "queue_authorized" not in visitor.cookies
    assert (site.active, site.authorized, site.waiting) == (1, 1, 1)
    page = visitor.get(reply.headers["Location"].removeprefix(site.url))
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "/queue/status" in page.text


def test_the_status_says_position_and_how_many_wait(site, store):
    arrive(site)
    waiting = []
    for _ in range(3):
        waiting.append(arrive(site))
        time.sleep(0.002)
    for position, visitor in enumerate(waiting, start=1):
        assert poll(visitor) == {"state": "waiting", "position": position, "waiting": 3}
    assert waiting[0].get("/").status == 302
    assert poll(waiting[0])["position"] == 1, "a reload keeps the place"
    assert store.zcard("queue:heartbeat:zset") == 3


def test_a_poll_lets_the_first_in_when_a_slot_is_free(site, store):
    arrive(site)
    first = arrive(site)
    time.sleep(0.002)
    second = arrive(site)
    store.decr("queue:active:count")
    assert poll(second)["state"] == "waiting"
    assert poll(first) == {"state": "admitted", "position": None, "waiting": 1}
    assert first.get("/").text == "inside"
    assert poll(second) == {"state": "waiting", "position": 1, "waiting": 1}
    assert (site.active, site.authorized) == (1, 2)


def test_the_admitted_pass_by_either_cookie(site):
    """The pass is accepted whatever Redis has, and set again; the id alone brings a new one."""
    visitor = arrive(site)
    del visitor.cookies["queue_authorized"]
    assert visitor.get("/").text == "inside"
    assert "queue_authorized" in visitor.cookies
    site.flush()
    arrive(site)
    reply = visitor.get("/")
    assert reply.text == "inside"
    assert [line.partition("=")[0] for line in reply.all("Set-Cookie")] == ["queue_authorized"]
    assert site.active == 1


def test_strangers_polls_take_no_place(site):
    assert poll(Visitor(site.url)) == {"state": "absent", "position": None, "waiting": 0}
    assert (site.active, site.waiting) == (0, 0)


def test_polls_have_a_rate(site, store):
    """The 31st poll of a window is refused. (The window may turn once while we count.)"""
    arrive(site)
    for _ in range(2):
        visitor = arrive(site)
        window = int(time.time() // 60)
        statuses = [visitor.get("/queue/status").status for _ in range(POLLS_A_MINUTE + 1)]
        if int(time.time() // 60) == window:
            break
    assert statuses[:-1] == [200] * POLLS_A_MINUTE
    assert statuses[-1] == 429
    assert store.get(f"rate_limit:{visitor.cookies['queue_id']}:{window}") == "30"


def test_connections_to_redis_are_kept(site, store):
    visitor = arrive(site)
    before = store.info("stats")["total_connections_received"]
    for _ in range(20):
        visitor.get("/")
        arrive(site)
    assert store.info("stats")["total_connections_received"] == before
