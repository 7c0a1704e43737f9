"""Opens the store that a URL names."""

from typing import TypeAlias

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisClusterException, RedisError

from sidecar.kit.errors import ConfigError
from sidecar.kit.extras import require
from sidecar.storage.redis.topology import (
    POOL_SIZE,
    POOL_WAIT,
    Cluster,
    Single,
    cluster_store,
    common_options,
    packed,
    sentinel_store,
)

#: A client of the store.
Store: TypeAlias = Redis | Cluster


def connect(url: str, *, timeout_s: float) -> Store:
    """A client for any address that the setting `store` allows; nothing is sent yet.

    `memory://` is a store inside this process, with the same scripts: good for one
    replica and for trying things out, gone when the process ends.

    Raises ConfigError for an option that the driver does not take.
    """
    if url.startswith("memory://"):
        require("memory", setting="store")
        from fakeredis import FakeAsyncRedis  # noqa: PLC0415 - most never need it

        memory: Redis = FakeAsyncRedis()
        return memory
    try:
        redis = _open(url, timeout_s)
        if isinstance(redis, Redis):
            redis.connection_pool.make_connection()  # type: ignore[no-untyped-call] # reads all options, and sends nothing
    except (TypeError, ValueError, RedisError, RedisClusterException) as error:
        raise ConfigError([f"store: {error}"]) from error
    return redis


def _open(url: str, timeout_s: float) -> Store:
    kind = url.partition("://")[0]
    if kind.endswith("+sentinel"):
        return sentinel_store(url, timeout_s)
    if kind.endswith("+cluster"):
        return cluster_store(url, timeout_s)
    options = common_options(timeout_s)
    if kind == "unix":
        del options["socket_keepalive"]
    pool = ConnectionPool.from_url(url, max_connections=POOL_SIZE, **options)
    pool.connection_class = packed(pool.connection_class)
    return Single(pool, wait_s=POOL_WAIT * timeout_s)


async def close(redis: Store) -> None:
    """Closes the client and every connection it has open."""
    if isinstance(redis, Cluster):
        await redis.shut()
    else:
        await redis.aclose(close_connection_pool=True)
