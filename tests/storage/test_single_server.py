"""The client of one server: it keeps its connections, and no call ever reads another's reply."""

import asyncio
import gc
from contextlib import asynccontextmanager, suppress

import pytest
import uvloop
from redis import exceptions
from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.cluster import NodesManager, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError
from structlog.testing import capture_logs

from sidecar.storage.redis import topology
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.topology import POOL_SIZE, Single, has_parts


@asynccontextmanager
async def client(redis_socket):
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    try:
        yield redis
    finally:
        await close(redis)


async def id_of(redis) -> int:
    """The connection's, as the server numbers it."""
    return await redis.execute_command("CLIENT", "ID")


async def test_calls_in_turn_use_one_connection(redis_socket):
    """Whatever they reply, errors included."""
    async with client(redis_socket) as redis:
        first = await id_of(redis)
        with pytest.raises(ResponseError):
            await redis.execute_command("NO-SUCH-COMMAND")
        assert await id_of(redis) == first
        assert len(redis.connection_pool._in_use_connections) == 1


async def test_each_of_many_at_once_gets_its_own_reply(redis_socket):
    """On as many connections as there are calls, and not more than the pool has."""
    async with client(redis_socket) as redis:
        for _ in range(5):
            words = [f"word {number}" for number in range(POOL_SIZE)]
            replies = await asyncio.gather(*(redis.echo(word) for word in words))
            assert [reply.decode() for reply in replies] == words
        assert len(redis.connection_pool._in_use_connections) <= POOL_SIZE


@pytest.mark.parametrize("comes_free", [True, False])
async def test_one_more_than_the_pool_has_waits_for_its_turn(redis_socket, comes_free):
    """And is refused where none comes."""
    async with client(redis_socket) as redis, client(redis_socket) as other:
        blocked = [
            asyncio.create_task(redis.execute_command("BLPOP", "nothing", 0))
            for _ in range(POOL_SIZE)
        ]
        while (await other.info("clients"))["blocked_clients"] < POOL_SIZE:
            await asyncio.sleep(0.01)
        if comes_free:
            one_more = asyncio.create_task(redis.ping())
            await other.rpush("nothing", 0)
            assert await one_more
        else:
            redis._free_connections._wait_s = 0.05
            with pytest.raises(RedisError):
                await redis.ping()
        await other.rpush("nothing", *range(POOL_SIZE - comes_free))
        assert all(await asyncio.gather(*blocked))
        assert await redis.ping()


async def test_a_call_that_is_cut_off_leaves_no_reply_behind(redis_socket):
    """Its connection is closed: the next call would read what was meant for it."""
    async with client(redis_socket) as redis:
        first = await id_of(redis)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(redis.execute_command("BLPOP", "nothing", 1), 0.02)
            assert await redis.echo("mine") == b"mine"
        assert await id_of(redis) != first
        assert len(redis.connection_pool._in_use_connections) == 1


async def test_a_connection_that_the_server_closed_is_opened_again(redis_socket):
    """Nobody hears of it."""
    async with client(redis_socket) as redis, client(redis_socket) as other:
        for _ in range(3):
            first = await id_of(redis)
            await other.execute_command("CLIENT", "KILL", "ID", first)
            while not await redis._idle[-1].can_read():  # it has not heard of it yet
                await asyncio.sleep(0.01)
            assert await id_of(redis) != first
            assert len(redis.connection_pool._in_use_connections) == 1


async def test_a_command_larger_than_the_socket_takes_at_once_arrives(redis_socket):
    """It goes out while its caller waits for the reply."""
    word = "x" * 20_000_000
    async with client(redis_socket) as redis:
        assert await redis.echo(word) == word.encode()
        assert await redis.echo("small") == b"small"


async def test_nothing_is_open_after_the_end(redis_socket):
    """Also what was kept for the next call."""
    async with client(redis_socket) as other:
        redis = connect(f"unix://{redis_socket}", timeout_s=5)
        await asyncio.gather(*(redis.ping() for _ in range(3)))
        numbers = {await id_of(redis) for _ in range(3)}
        await close(redis)

        async def left() -> list[int]:
            text = (await other.execute_command("CLIENT", "LIST", "TYPE", "normal")).decode()
            return [number for number in numbers if f"id={number} " in text]

        while await left():  # the server has not heard of it yet
            await asyncio.sleep(0.01)


async def test_no_connection_is_opened_after_the_end(redis_socket):
    """Neither by a command that was opening one, nor by one that comes later."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    begun = asyncio.create_task(redis.ping())
    await asyncio.sleep(0)
    await close(redis)
    with suppress(exceptions.ConnectionError):
        await begun
    with pytest.raises(exceptions.ConnectionError, match="the client is closed"):
        await redis.ping()
    del redis, begun
    gc.collect()  # a connection that is still open warns


def test_a_connection_that_the_server_has_just_closed(redis_socket):
    """A write to it is an error of the driver, in every event loop: theirs are a TypeError, a
    RuntimeError and silence."""

    async def write() -> None:
        async with client(redis_socket) as redis:
            connection = await redis.connection_pool.get_connection()
            connection._writer.transport.abort()
            with pytest.raises(exceptions.ConnectionError):
                await connection.send_command("PING")
            await connection.disconnect(nowait=True)
            assert await redis.ping()

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(write())


# Another version of redis-py ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (AbstractConnection, "_writer"),
        (ConnectionPool, "ensure_connection"),
        (RedisCluster, "_determine_slot"),
        (NodesManager, "set_nodes"),
    ],
)
def test_a_part_of_redis_py_that_is_gone_is_named(monkeypatch, kind, name):
    """In one warning, and so is one that is no coroutine any more."""
    assert has_parts(kind)
    monkeypatch.delattr(kind, name)
    monkeypatch.setattr(AbstractConnection, "can_read", lambda _: False)
    with capture_logs() as logs:
        assert not has_parts(kind, AbstractConnection)
    [warning] = logs
    assert (warning["event"], warning["log_level"]) == ("redis_py_has_changed", "warning")
    assert {f"{kind.__name__}.{name}", "AbstractConnection.can_read"} <= set(warning["missing"])


async def test_without_such_a_part_redis_py_is_used_as_it_is(redis_socket, monkeypatch):
    """It answers as many calls as ever."""
    monkeypatch.setitem(topology._PARTS, Redis, ("no_such_part", ""))
    with capture_logs() as logs:
        async with client(redis_socket) as redis:
            assert not isinstance(redis, Single)
            words = [f"word {number}" for number in range(2 * POOL_SIZE)]
            replies = await asyncio.gather(*(redis.echo(word) for word in words))
            assert [reply.decode() for reply in replies] == words
    assert [one["missing"] for one in logs] == [["Redis.no_such_part"]]
