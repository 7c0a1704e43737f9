"""Creates and closes the client of Redis."""

from typing import TypeAlias

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import RedisClusterException, RedisError

from sidecar.kit.errors import InputError
from sidecar.kit.extras import require
from sidecar.storage.redis.topology import Cluster, cluster_store, sentinel_store, single_store

#: A client of Redis.
Store: TypeAlias = Redis | RedisCluster


def connect(url: str, *, timeout_s: float) -> Store:
    """Return a client for any URL that the setting `store` allows. Nothing is sent yet. Raises
    InputError for an option in the URL that redis-py does not accept.

    `memory://` is a Redis inside this process, for trials with one replica. The data is lost when
    the process ends.
    """
    if url.startswith("memory://"):
        require("memory", setting="store")
        from fakeredis import FakeAsyncRedis  # noqa: PLC0415 - most processes never need fakeredis

        memory: Redis = FakeAsyncRedis()
        return memory
    try:
        redis = _open(url, timeout_s)
        if isinstance(redis, Redis):
            # This call validates all options, and sends nothing.
            redis.connection_pool.make_connection()  # type: ignore[no-untyped-call]
    except (TypeError, ValueError, RedisError, RedisClusterException) as error:
        raise InputError([f"store: {error}"]) from error
    return redis


def _open(url: str, timeout_s: float) -> Store:
    kind = url.partition("://")[0]
    if kind.endswith("+sentinel"):
        return sentinel_store(url, timeout_s)
    if kind.endswith("+cluster"):
        return cluster_store(url, timeout_s)
    return single_store(url, timeout_s)


async def close(redis: Store) -> None:
    if isinstance(redis, Cluster):
        await redis.shut()
    elif isinstance(redis, RedisCluster):
        await redis.aclose()
    else:
        await redis.aclose(close_connection_pool=True)
        if isinstance(redis.connection_pool, SentinelConnectionPool):  # redis-py leaves these open
            await redis.connection_pool.sentinel_manager.aclose()
