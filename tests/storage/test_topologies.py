"""Redis Sentinel and Redis Cluster: every call works on them, and survives their failures."""

import asyncio
import contextlib
import socket
import time

import pytest
from redis.asyncio.connection import AbstractConnection

from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import room_key
from sidecar.storage.redis import topology as clients
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.topology import POOL_SIZE
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.storage.products import open_products, open_room, use_products
from tests.support.processes import wait_until
from tests.support.redis_servers import SERVICE, ClusterStore, RedisServer, SentinelStore
from tests.support.rooms import new_room_name, refuse_functions
from tests.support.visitors import beat_all, go_in, queue

#: As in a replica by default.
TIMEOUT_S = 0.5
#: For tests without failures, in which the duration of a call does not matter. The first call of a
#: client finds the servers, connects and sends the scripts.
PATIENT_S = 5
#: A server counts as gone after one second; choosing another takes some more.
AWAY_S = 10

# The fixture `topology` gets its servers by name, so support/unit.py does not find that it starts
# processes.
pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture(scope="module")
def sentinel():
    """Start servers that have a password, and sentinels that have none, as is usual."""
    with SentinelStore(password="pass/word") as store:
        yield store


@pytest.fixture(scope="module")
def cluster():
    with ClusterStore() as store:
        yield store


@pytest.fixture(params=["sentinel", "cluster"])
def topology(request):
    return request.getfixturevalue(request.param)


def url_of(store) -> str:
    return store.url.replace("/word", "%2Fword")


@pytest.fixture
async def open_store():
    """Return a function that opens a client, as a replica does. All are closed after the test."""
    async with contextlib.AsyncExitStack() as stack:

        def open_(url, *, timeout_s=TIMEOUT_S):
            redis = connect(url, timeout_s=timeout_s)
            stack.push_async_callback(close, redis)
            return redis

        yield open_


def rooms_of(redis, *names, timeout_s=TIMEOUT_S):
    return [open_room(redis, name, timeout_s=timeout_s) for name in names]


def names_apart(cluster: ClusterStore) -> list[str]:
    """Return the names of three rooms, each of which is on another server."""
    found: dict[int, str] = {}
    while len(found) < 3:
        name = new_room_name()
        found.setdefault(cluster.primary_of(room_key(name, "stats")).port, name)
    return list(found.values())


async def live_through(store, broken: float) -> float:
    """Read the snapshot until Redis answers. Return the seconds since `broken`."""
    while True:
        with contextlib.suppress(StoreError):
            await store.snapshot()
            return time.monotonic() - broken
        assert time.monotonic() - broken < AWAY_S
        await asyncio.sleep(0.1)


async def crowd(store, stop: asyncio.Event):
    """Let a newcomer enter every 20 ms. Return for how many the store did not answer."""
    errors = 0
    while not stop.is_set():
        try:
            await store.enter(new_visitor())
        except StoreError:
            errors += 1
        await asyncio.sleep(0.02)
    return errors


async def all_calls(store):
    inside = await go_in(store)
    first, second = await queue(store, 2)
    assert [one.ahead for one in await beat_all(store, [first, second])] == [0, 1]
    assert (await store.renew(inside)).outcome is QueueOutcome.ADMITTED
    assert await store.configure({"total_active_users": 2}) == 1
    shot = await store.snapshot()
    assert (shot.active, shot.overrides) == (2, {"total_active_users": 2})
    assert await store.leave(inside.visitor)
    assert (await store.sweep()).waiting == 0
    inside_now = {visitor for visitor, _ in await store.lists.sessions(offset=0, limit=5)}
    assert first.visitor in inside_now
    assert await store.acquire_leader_lease("sweeping", seconds=5)
    assert not await store.acquire_leader_lease("sweeping", seconds=5)
    await store.raise_shield(shot.now_ms)
    shot = await store.snapshot()
    assert (set(shot.revoked), shot.shield_until_ms > 0) == ({inside.visitor}, True)
    await store._redis.zadd(room_key(store._name, "revoked"), {second.visitor: 1.0}, nx=True)
    assert await store.reset() >= 0


@pytest.mark.parametrize("has_parts", [True, False])
async def test_every_call_works(topology, open_store, has_parts, monkeypatch):
    """Scripts and other commands, of all products. This is so with unchanged redis-py too, which is
    used if redis-py lacks a part that our clients override."""
    if not has_parts:
        monkeypatch.setitem(clients._PARTS, AbstractConnection, ("no_such_part", ""))
    store = open_room(open_store(url_of(topology), timeout_s=PATIENT_S), timeout_s=PATIENT_S)
    await all_calls(store)
    await use_products(*open_products(store._redis, store._name))


async def test_rooms_of_a_cluster_are_on_different_servers(cluster, open_store):
    """One client calls many at once. Each server gets the functions by itself. The client does not
    ask a server which keys a call has."""
    for server in cluster.servers:
        server.cli("config", "resetstat")
    redis = open_store(cluster.url, timeout_s=PATIENT_S)
    stores = rooms_of(redis, *names_apart(cluster), timeout_s=PATIENT_S)
    await asyncio.gather(*(all_calls(store) for store in stores))
    others = [open_products(redis, store._name) for store in stores]
    await asyncio.gather(*(use_products(*products) for products in others))
    for server in cluster.servers:
        stats = server.info("commandstats")
        assert "cmdstat_command|getkeys" not in stats
        if server.info("replication")["role"] == "master":
            assert "cmdstat_fcall" in stats
            assert "cmdstat_eval" not in stats
            server.cli("function", "flush")
    await asyncio.gather(*(store.snapshot() for store in stores))
    await asyncio.gather(*(use_products(*products) for products in others))


async def test_rooms_of_a_cluster_without_functions(cluster, open_store):
    """Scripts run by EVALSHA. Each server gets the scripts by itself."""
    redis = open_store(cluster.url, timeout_s=PATIENT_S)
    refuse_functions(redis)
    stores = rooms_of(redis, *names_apart(cluster), timeout_s=PATIENT_S)
    await asyncio.gather(*(all_calls(store) for store in stores))
    for server in cluster.servers:
        server.cli("script", "flush")
    await asyncio.gather(*(store.snapshot() for store in stores))


async def test_a_call_with_a_long_timeout_waits_for_a_connection(topology, open_store):
    """All are in use for longer than a call with the usual timeout would wait."""
    redis = open_store(url_of(topology), timeout_s=20)
    await redis.ping()
    busy = asyncio.gather(
        *(redis.execute_command("BLPOP", f"nothing-{n}", 0.5) for n in range(POOL_SIZE))
    )
    await asyncio.sleep(0.1)
    assert await redis.ping()
    assert await busy == [None] * POOL_SIZE


async def test_no_sentinel_is_forgotten(sentinel, open_store):
    """However many calls look for the primary at once while the first sentinel hangs."""
    redis = open_store(url_of(sentinel), timeout_s=PATIENT_S)
    manager = redis.connection_pool.sentinel_manager
    known = {id(one) for one in manager.sentinels}
    sentinel.sentinels[0].pause()
    await asyncio.gather(*(redis.ping() for _ in range(50)))
    sentinel.sentinels[0].resume()
    assert {id(one) for one in manager.sentinels} == known


@pytest.mark.parametrize("number", [1, 2])
async def test_servers_that_hang_are_skipped(topology, number, open_store):
    """The first servers of the URL accept connections and send nothing."""
    with contextlib.ExitStack() as stack:
        hung = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        hosts = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in hung)
        scheme, _, rest = url_of(topology).partition("://")
        login, at, servers = rest.rpartition("@")
        redis = open_store(f"{scheme}://{login}{at}{hosts},{servers}")
        store = open_room(redis, timeout_s=TIMEOUT_S)
        assert await live_through(store, time.monotonic()) < 3 * TIMEOUT_S


async def test_cancelled_calls_do_no_harm(topology, open_store):
    """They are cancelled at any moment, also while the client still looks for the servers."""
    redis = open_store(url_of(topology), timeout_s=20 * TIMEOUT_S)  # of each call, it is below
    store = open_room(redis, timeout_s=TIMEOUT_S)
    for number in range(300):
        store._timeout_s = number % 100 / 10_000
        if number % 100 == 0:
            for server in topology.servers:
                server.cli("client", "kill", "type", "normal")
        with contextlib.suppress(StoreError):
            await store.snapshot()
    store._timeout_s = 20 * TIMEOUT_S  # how long it takes is no matter
    await asyncio.gather(*(store.snapshot() for _ in range(50)))


async def test_a_slot_that_moves(cluster, open_store):
    """A script's keys are in two places then, so the room is away until the slot has moved:
    the cluster says "try again". Its line moves with it."""
    name = new_room_name()
    (store,), key = rooms_of(open_store(cluster.url), name), room_key(name, "stats")
    await live_through(store, time.monotonic())
    await go_in(store)
    tickets = await queue(store, 3)
    stop = asyncio.Event()
    coming = asyncio.create_task(crowd(store, stop))
    await asyncio.to_thread(cluster.move_slot, key, pause_s=0.3)
    away = await live_through(store, time.monotonic())
    assert away < 1
    stop.set()
    await coming
    assert [one.ahead for one in await beat_all(store, tickets)] == [0, 1, 2]
    # And back, with nobody there meanwhile: found by the next call.
    await asyncio.to_thread(cluster.move_slot, key)
    assert [one.ahead for one in await beat_all(store, tickets)] == [0, 1, 2]


async def survive(topology, store, name, fail) -> float:
    """The primary of a room with a line and a crowd fails; the line is where it was. How long
    the room was away, seconds."""
    await live_through(store, time.monotonic())
    inside = await go_in(store)
    tickets = await queue(store, 3)
    await use_products(*open_products(store._redis, name))
    await asyncio.to_thread(topology.wait_replicated, room_key(name, "stats"))
    stop = asyncio.Event()
    coming = asyncio.create_task(crowd(store, stop))
    broken = time.monotonic()
    key = room_key(name, "stats")
    old = topology.primary_of(key)
    await asyncio.to_thread(fail, old)
    # What the old one answers until then does not count.
    await asyncio.to_thread(
        wait_until, lambda: topology.primary_of(key) not in (None, old), "another primary"
    )
    chosen = time.monotonic() - broken
    seconds = await live_through(store, broken)
    stop.set()
    errors = await coming
    # As if the library had not been copied yet.
    await asyncio.to_thread(topology.primary_of(key).cli, "function", "flush")
    replies = await beat_all(store, tickets)
    assert [one.outcome for one in replies] == [QueueOutcome.WAITING] * 3
    assert [one.order for one in replies] == [ticket.order for ticket in tickets]
    assert (await store.snapshot()).recovery_stage == 0
    assert (await store.renew(inside)).outcome is QueueOutcome.ADMITTED
    await use_products(*open_products(store._redis, new_room_name()))
    print(f"chosen after {chosen:.1f} s, answered after {seconds:.1f} s, {errors} errors")
    assert seconds < chosen + 2
    return seconds


@pytest.mark.parametrize("fail", [RedisServer.kill, RedisServer.pause])
@pytest.mark.parametrize("kind", [SentinelStore, ClusterStore])
async def test_a_primary_that_fails(kind, fail, open_store):
    """Dead; or hanging, and back when another has taken over, and asked no more then."""
    name = new_room_name()
    key = room_key(name, "stats")
    with kind() as topology:
        (store,) = rooms_of(open_store(topology.url), name)
        old = topology.primary_of(key)
        await survive(topology, store, name, fail)
        if fail is RedisServer.pause:
            old.resume()
            for _ in range(30):
                await store.enter(new_visitor())
                await asyncio.sleep(0.05)
        counters = (await store.snapshot()).counters
        assert int(topology.primary_of(key).cli("hget", key, "joined")) == counters["joined"]


async def test_a_sentinels_primary_that_is_replaced_by_hand(sentinel, open_store):
    """The old primary still runs and has the connections, but accepts no writes."""
    name = new_room_name()
    (store,) = rooms_of(open_store(url_of(sentinel)), name)

    def replace(_old):
        sentinel.sentinels[0].cli("sentinel", "failover", SERVICE)

    await survive(sentinel, store, name, replace)


async def test_a_clusters_primary_that_is_replaced_by_hand(cluster, open_store):
    name = new_room_name()
    (store,) = rooms_of(open_store(cluster.url), name)

    def replace(old):
        cluster.replica_of(old).cli("cluster", "failover")

    await survive(cluster, store, name, replace)


async def test_one_server_of_a_cluster_hangs_and_the_others_rooms_go_on(cluster, open_store):
    """By default, the whole cluster would stop until a replica has taken over."""
    for server in cluster.servers:
        server.config_set("cluster-require-full-coverage", "no")
    names = names_apart(cluster)
    redis = open_store(cluster.url)
    stores = rooms_of(redis, *names)
    hit, *others = stores
    # The first call of a client looks for the servers.
    await asyncio.gather(*(live_through(store, time.monotonic()) for store in stores))
    stop = asyncio.Event()
    crowds = [asyncio.create_task(crowd(store, stop)) for store in others]
    old = cluster.primary_of(room_key(names[0], "stats"))
    seconds = await survive(cluster, hit, names[0], RedisServer.pause)
    stop.set()
    old.resume()
    errors = [await one for one in crowds]
    print(f"away for {seconds:.1f} s; errors in the others: {errors}")
    assert max(errors) <= 3
