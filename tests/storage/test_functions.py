"""Rooms' scripts as one library of Redis Functions, and by EVALSHA where there are none."""

import asyncio
import contextlib
import re
import shutil
from pathlib import Path

import pytest
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.limits.model import Call
from sidecar.limits.model import Outcome as Decided
from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import ClassClaim, RoomStore
from sidecar.storage.redis import scripts
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.lua_source import LUA_ROOT, library
from sidecar.visitors.model import QueueOutcome, Ticket
from sidecar.visitors.tokens import new_visitor
from tests.storage.products import FOLDERS, open_products, open_room, use_products
from tests.support.limits import RedisTimeUs, make_limit
from tests.support.redis_servers import RedisServer
from tests.support.rooms import new_room_name, refuse_functions, without_outages
from tests.support.visitors import beat_all, go_in, queue

VERBS = [
    *("enter", "beat", "renew", "leave", "sweep"),
    *("snapshot", "configure", "reset", "move", "reclassify"),
]


@pytest.fixture(scope="module")
def server():
    """Start a server for this file alone, because functions belong to the whole server."""
    with RedisServer() as redis:
        yield redis


@pytest.fixture
async def open_rooms():
    """Return a function that opens rooms of a new client, which has sent nothing yet."""
    async with contextlib.AsyncExitStack() as stack:

        def open_(url, number=1, **settings):
            redis = connect(url, timeout_s=5)
            stack.push_async_callback(close, redis)
            rooms = [open_room(redis, convert=without_outages, **settings) for _ in range(number)]
            return rooms if number > 1 else rooms[0]

        yield open_


def calls(server, command):
    """Return how often the server has run a command since CONFIG RESETSTAT."""
    row = server.info("commandstats").get(f"cmdstat_{command}", "calls=0,")
    return int(row.partition(",")[0].removeprefix("calls="))


@pytest.fixture
async def redis(server):
    redis = connect(server.url, timeout_s=5)
    yield redis
    await close(redis)


@contextlib.contextmanager
def configured(server, name, value):
    """Change a setting of the server, which is 0 before and after the block."""
    server.config_set(name, value)
    try:
        yield
    finally:
        server.config_set(name, 0)


async def live(store):
    """Call most scripts of a room."""
    inside = await go_in(store)
    first, second = await queue(store, 2)
    assert [one.ahead for one in await beat_all(store, [first, second])] == [0, 1]
    assert await store.configure({"total_active_users": 2}) == 1
    assert (await store.renew(inside)).outcome is QueueOutcome.ADMITTED
    assert (await store.beat(first)).outcome is QueueOutcome.ADMITTED
    assert await store.leave(inside.visitor)
    assert await store.move(second.visitor, 1, by="somebody") == 1
    assert (await store.snapshot()).waiting == 1
    await store.sweep()
    assert await store.reset() == 1


@pytest.mark.parametrize("product", FOLDERS)
def test_redis_takes_a_products_library(server, product):
    """It keeps Lua's limits: a function has at most 200 local variables and 60 upvalues."""
    made = library(product)
    assert server.cli("function", "load", "replace", made.text) == made.name


async def test_the_library_is_loaded_once_and_for_all_rooms(server, open_rooms):
    """However many rooms find at once that it is missing."""
    server.cli("function", "flush")
    server.cli("config", "resetstat")
    rooms = open_rooms(server.url, 20)
    await asyncio.gather(*(room.snapshot() for room in rooms))
    await asyncio.gather(*(live(room) for room in rooms))
    assert calls(server, "function|load") == 1
    assert calls(server, "evalsha") + calls(server, "eval") == 0


async def use_all(redis, products):
    """Call most scripts of a room, and use each of the other products."""
    await live(open_room(redis, convert=without_outages))
    await use_products(*products)


async def test_functions_are_flushed_while_all_products_use_them(server, redis):
    """By FUNCTION FLUSH, or by a server that took over and never had them: between any two calls,
    and no call fails or loses anything; each library comes back."""
    products = open_products(redis, new_room_name())
    await use_all(redis, products)
    stop = asyncio.Event()

    async def flush():
        while not stop.is_set():
            await asyncio.to_thread(server.cli, "function", "flush")

    flushing = asyncio.create_task(flush())
    for _ in range(10):
        await use_all(redis, products)
    stop.set()
    await flushing
    await use_all(redis, products)
    listed = server.cli("function", "list")
    assert all(library(product).name in listed for product in FOLDERS)


async def test_a_full_store_lets_through_what_makes_room(server, redis):
    """It runs no function that may write; by EVALSHA it refuses what takes room, and that alone."""
    store = make_limit(redis, RedisTimeUs(), "concurrency", limit=1)
    permit = (await store.acquire(Call("a", id="b"))).permit
    with configured(server, "maxmemory", 1):
        assert (await store.acquire(Call("a"))).outcome is Decided.REFUSED
        assert await store.release("a", permit)
        with pytest.raises(StoreError, match="maxmemory"):
            await store.acquire(Call("a"))


async def test_a_store_that_takes_no_writes_is_read(server, redis):
    """Without enough copies, say. That says nothing of functions, which are asked for again."""
    store = make_limit(redis, RedisTimeUs(), "concurrency", limit=1)
    permit = (await store.acquire(Call("a", id="b"))).permit
    for known in (True, False):
        if not known:
            server.cli("function", "flush")
        with configured(server, "min-replicas-to-write", 1):
            assert (await store.acquire(Call("a"))).outcome is Decided.REFUSED
            assert (await store.peek("a")).remaining == 0
            with pytest.raises(StoreError, match="NOREPLICAS"):
                await store.release("a", permit)
    before = calls(server, "fcall")
    assert await store.release("a", permit)
    assert calls(server, "fcall") > before


async def test_two_versions_of_each_library_share_a_server(server, redis, monkeypatch, tmp_path):
    """Replicas of both at a time, on the same keys: names have the hash of the text, and neither
    loads what the other has, or runs it."""
    name = new_room_name()
    old = open_products(redis, name)
    await use_all(redis, old)
    other = tmp_path / "lua"
    shutil.copytree(LUA_ROOT, other)
    for product in FOLDERS:
        for script in (other / product / "lua").glob("*.lua"):
            script.write_text(script.read_text() + "-- of the next version\n")
    monkeypatch.setattr(scripts, "library", lambda product: library(product, other))
    new = open_products(redis, name)
    await use_all(redis, new)
    server.cli("config", "resetstat")
    await use_all(redis, new)
    monkeypatch.undo()
    await use_all(redis, old)
    assert calls(server, "function|load") == 0
    listed = server.cli("function", "list")
    for product in FOLDERS:
        names = {library(product).name, library(product, other).name}
        assert len(names) == 2
        assert all(name in listed for name in names)


@pytest.mark.parametrize("rules", ["-function", "-function|load", "-fcall", "-fcall -function"])
async def test_where_functions_are_forbidden_scripts_go_by_evalsha(server, open_rooms, rules):
    """By an ACL. It is said once, and not for each room or call."""
    server.cli("function", "flush")
    user = f"u{abs(hash(rules))}"
    server.cli("acl", "setuser", user, "on", ">word", "~*", "&*", "+@all", *rules.split())
    rooms = open_rooms(server.url.replace("://", f"://{user}:word@"), 3)
    with capture_logs() as said:
        for room in rooms:
            await live(room)
    assert [one["event"] for one in said] == ["functions_refused"]
    assert "permission" in said[0]["error"]


@pytest.mark.parametrize("renamed", ["FUNCTION", "FCALL"])
async def test_a_renamed_function_command_and_an_old_redis(open_rooms, renamed):
    """Unknown commands both, as FCALL is to Redis 6.2."""
    with RedisServer("--rename-command", renamed, "") as redis, capture_logs() as said:
        await live(open_rooms(redis.url))
    assert [one["event"] for one in said] == ["functions_refused"]


async def test_the_users_rights_that_the_docs_name_are_enough(server, open_rooms):
    """Functions among them."""
    docs = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"ACL SETUSER (\S+) (.*)", docs)
    server.cli("acl", "setuser", line[0], *line[1].replace("PASSWORD", "word").split())
    with capture_logs() as said:
        await live(open_rooms(server.url.replace("://", f"://{line[0]}:word@")))
    assert said == []


async def test_functions_are_asked_for_again_where_they_were_refused(
    server, open_rooms, monkeypatch
):
    """An operator allows them, or upgrades Redis: no replica has to be started anew."""
    server.cli("acl", "setuser", "later", "on", ">word", "~*", "&*", "+@all", "-fcall")
    store = open_rooms(server.url.replace("://", "://later:word@"))
    monkeypatch.setattr(scripts, "RETRY_S", 0)
    await store.snapshot()
    server.cli("acl", "setuser", "later", "+fcall")
    server.cli("config", "resetstat")
    await store.snapshot()
    assert (calls(server, "fcall") > 0, calls(server, "evalsha")) == (True, 0)


async def test_the_store_in_memory_has_evalsha_alone(open_rooms):
    """And nobody is told of it."""
    with capture_logs() as said:
        await live(open_rooms("memory://"))
    assert said == []


async def test_an_error_within_a_function_is_no_refusal(server, open_rooms):
    """It is raised as EVALSHA raises it, and the next call goes by FCALL."""
    store = open_rooms(server.url)
    await store._redis.set(room_key(store._name, "waiting"), "not a sorted set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.snapshot()
    await store._redis.delete(room_key(store._name, "waiting"))
    server.cli("config", "resetstat")
    await store.snapshot()
    assert calls(server, "evalsha") == 0


# What a library keeps of one call to the next ---------------------------------------------------


@pytest.mark.parametrize("by", ["fcall", "evalsha"])
async def test_settings_are_those_of_the_moment(server, open_rooms, by):
    """Whatever changed them: a script, or a command that leaves the revision as it is; also to
    what they were before."""
    store = open_rooms(server.url)
    if by == "evalsha":
        refuse_functions(store._redis)
    config = room_key(store._name, "config")

    async def cap():
        await store._redis.delete(*(set(room_keys(store._name)) - {config}))
        seen = [(await store.enter(new_visitor())).outcome for _ in range(4)]
        return seen.count(QueueOutcome.ADMITTED)

    assert await cap() == 1
    await store.configure({"total_active_users": 2})
    assert await cap() == 2
    await store._redis.hset(config, "total_active_users", "3")
    assert await cap() == 3
    await store._redis.delete(config)
    assert await cap() == 1
    await store.restore_lost_data({}, {"total_active_users": 2}, epoch=0)
    assert await cap() == 2


async def test_rooms_and_replicas_know_nothing_of_each_other(server, open_rooms):
    """One library serves all of them: other files, other settings, the same room by two files."""
    one, two = open_rooms(server.url, 2, total_active_users=1)
    classed = open_rooms(
        server.url,
        classes={"member": {"head_start": 60}},
        new_users_per_minute=60,
        heartbeat_interval=7,
    )
    new_file = open_room(one._redis, one._name, total_active_users=3)
    for store in (one, classed, two):
        await go_in(store)
    for _ in range(2):
        tickets = [(await queue(store, 1))[0] for store in (one, classed, two)]
        replies = [
            await store.beat(ticket)
            for store, ticket in zip((one, classed, two), tickets, strict=True)
        ]
        assert [reply.refresh_ms // 1000 for reply in replies] == [2, 7, 2]
        assert [reply.line_waiting for reply in replies] == [None] * 3
    assert (await new_file.enter(new_visitor())).outcome is QueueOutcome.WAITING
    assert (await new_file.snapshot()).active == 3
    assert (await one.snapshot()).active == 3
    assert (await two.snapshot()).active == 1


async def test_numbers_are_those_of_the_store(redis, turn):
    """Polls that change nothing keep them; another's script, or a store that was emptied in the
    same millisecond, is noticed."""
    store = RoomStore(
        redis, new_room_name(), settings=without_outages(RoomSettings(total_active_users=1)),
        clock=StoreClock(), timeout_s=5, now_ms=turn,
    )  # fmt: skip
    born_ms = turn()
    await store.enter(new_visitor())
    joined = [new_visitor() for _ in range(5)]
    standings = [await store.enter(visitor) for visitor in joined]
    tickets = [
        Ticket(visitor, one.order, one.now_ms, one.epoch)
        for visitor, one in zip(joined, standings, strict=True)
    ]
    turn.forward(20)
    for ticket in tickets[:3]:
        assert (await store.beat(ticket)).recovery_stage == 0
    stats = room_key(store._name, "stats")
    changed = {"recovery": turn(), "measured_at": turn() + 0.5}
    await redis.hset(stats, mapping=changed)
    assert (await store.beat(tickets[3])).recovery_stage == 2
    await redis.hset(stats, mapping={"recovery": born_ms - 10**7, "measured_at": turn() + 0.25})
    turn.forward(3)
    for ticket in tickets[:3]:
        assert (await store.beat(ticket)).recovery_stage == 0
    await redis.delete(*room_keys(store._name))
    store.record_room_existed_since(born_ms)
    assert (await store.beat(tickets[4])).recovery_stage == 2


async def test_nothing_is_left_of_a_call_that_failed(server, open_rooms):
    """Halfway, with places that were not written yet."""
    store, other = open_rooms(server.url, 2)
    await go_in(store)
    await go_in(other)
    lost = room_key(store._name, "events")
    await store._redis.delete(lost)
    await store._redis.set(lost, "not a stream")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await store.enter(new_visitor())
    before = (await other.snapshot()).waiting
    await queue(other, 1)
    assert (await other.snapshot()).waiting == before + 1


# A store that is full -----------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["fcall", "evalsha"])
@pytest.mark.parametrize("verb", VERBS)
async def test_a_script_that_a_full_store_refuses_has_changed_nothing(server, open_rooms, verb, by):
    """It begins with a write that Redis refuses where it is out of memory."""
    store = open_rooms(server.url, session_duration=5, heartbeat_timeout=10, claim_window=5)
    inside = await go_in(store)
    first, _ = await queue(store, 2)
    await store._redis.zadd(room_key(store._name, "active"), {inside.visitor: 1}, xx=True)
    if by == "evalsha":
        refuse_functions(store._redis)
    asked = {
        "enter": lambda: store.enter(new_visitor()),
        "beat": lambda: store.beat(first),
        "renew": lambda: store.renew(inside),
        "leave": lambda: store.leave(first.visitor),
        "configure": lambda: store.configure({"total_active_users": None, "queue_all": True}),
        "move": lambda: store.move(first.visitor, 2, by="somebody"),
        "reclassify": lambda: store.reclassify(first.visitor, ClassClaim("member"), by="somebody"),
    }.get(verb, getattr(store, verb))
    before = await contents(store)
    with configured(server, "maxmemory", 1):
        with pytest.raises(StoreError, match="maxmemory"):
            await asked()
        assert await contents(store) == before
    await asked()


async def contents(store):
    dumps = dict.fromkeys(room_keys(store._name))
    for key in dumps:
        with contextlib.suppress(RedisError):  # there is no such key
            dumps[key] = await store._redis.dump(key)
    return dumps


async def test_a_ticket_of_an_order_that_changed_is_replaced(server, open_rooms):
    """Moved, and moved back: each poll says the order in force."""
    store = open_rooms(server.url)
    await go_in(store)
    first, second = await queue(store, 2)
    assert await store.move(second.visitor, 1, by="somebody") == 1
    moved = await store.beat(second)
    assert moved.order < first.order
    ticket = Ticket(second.visitor, moved.order, second.joined_ms, moved.epoch)
    assert await store.move(second.visitor, 0, by="somebody") == 2
    assert (await store.beat(ticket)).order == second.order
