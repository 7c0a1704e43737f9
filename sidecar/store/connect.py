"""Opens the store that a URL names."""

from __future__ import annotations

from typing import Any

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

#: Batches of a few rooms and verbs at a time; more would only queue up in Redis.
POOL_SIZE = 64
#: How long a call may wait for a free connection, seconds.
POOL_WAIT_S = 0.25


def connect(url: str, *, timeout_s: float) -> Redis:
    """A client for redis://, rediss://, unix:// or memory://; nothing is sent yet.

    `memory://` is a store inside this process, with the same scripts: good for one
    replica and for trying things out, gone when the process ends.
    """
    if url.startswith("memory://"):
        from fakeredis import FakeAsyncRedis  # noqa: PLC0415 - most never need it

        memory: Redis = FakeAsyncRedis()
        return memory
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": not url.startswith("unix://"),
        # A call that is repeated later is worth less to a visitor than an answer now.
        "retry": Retry(NoBackoff(), 0),
        "max_connections": POOL_SIZE,
        "timeout": POOL_WAIT_S,
    }
    if url.startswith("unix://"):
        del options["socket_keepalive"]
    pool = BlockingConnectionPool.from_url(url, **options)
    kind = pool.connection_class
    pool.connection_class = type(kind.__name__, (_Packed, kind), {})
    return Redis(connection_pool=pool)


class _Packed:
    """A connection that has hiredis write its commands too, not only read the replies: a batch
    has hundreds of arguments, and the driver would take some microseconds for each."""

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        return [hiredis.pack_command((*name.split(), *rest))]


async def close(redis: Redis) -> None:
    """Closes the client and every connection it has open."""
    await redis.aclose(close_connection_pool=True)
