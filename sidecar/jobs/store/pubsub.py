"""Wake-ups by pub/sub: a queue has a job, a call is to be cut off, settings were changed. And one
look at all targets, since a message may be lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from sidecar.jobs.redis_keys import JOBS_CHANNEL, target_key
from sidecar.kit.redis.driver_errors import driver_errors, text
from sidecar.kit.redis.functions import Scripts
from sidecar.kit.redis.topology import Cluster

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store

#: After so much silence the server is pinged, and has as long to answer.
SILENCE_S = 5.0
#: Between two tries to subscribe.
AGAIN_S = 0.5
#: Targets in one script call. More would block Redis for too long.
AT_ONCE = 200


async def publish(redis: Store, message: str, *, timeout_s: float) -> None:
    """To all replicas and workers. Raises StoreError when Redis does not answer."""
    sender: Any = redis
    async with driver_errors("publish", timeout_s):
        await sender.publish(JOBS_CHANNEL, message)


async def subscribe(redis: Store, *, silence_s: float = SILENCE_S) -> AsyncGenerator[str, None]:
    """A target's name where a job waits, "abort NAME" where a call is to be cut off, "settings
    NAME" where settings were changed; "" whenever a message may have been missed: at first, and
    when a lost connection is back. Never ends, and raises nothing; close it with
    `contextlib.aclosing`.
    """
    while True:
        try:
            async with _subscribed(redis, silence_s) as channel:
                async for message in _messages(channel, silence_s):
                    yield message
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(AGAIN_S)


async def _messages(channel: Any, silence_s: float) -> AsyncIterator[str]:
    """Ends when the server is silent."""
    is_pinged = False
    while True:
        message = await channel.get_message(timeout=silence_s)
        if message is None:
            if is_pinged:
                return
            await channel.ping()
            is_pinged = True
            continue
        is_pinged = False
        if message["type"] == "subscribe":
            yield ""
        elif message["type"] == "message":
            yield text(message["data"])


@asynccontextmanager
async def _subscribed(redis: Store, timeout_s: float) -> AsyncIterator[Any]:
    async with asyncio.timeout(timeout_s):
        client = await _one_server(redis)
    channel: Any = client.pubsub()
    try:
        async with asyncio.timeout(timeout_s):
            await channel.subscribe(JOBS_CHANNEL)
        yield channel
    finally:
        # An error here would take the place of a cancellation, and the task went on.
        with suppress(RedisError, OSError, RuntimeError):
            await channel.aclose()
        if client is not redis:
            with suppress(RedisError, OSError, RuntimeError):
                await client.aclose(close_connection_pool=True)


async def _one_server(redis: Store) -> Redis:
    """Any of a cluster: what is published at one of them is sent by all."""
    if isinstance(redis, Redis):
        return redis
    await redis.initialize()
    node = random.choice(redis.get_nodes())  # noqa: S311 - spreads the load
    return Redis(
        connection_pool=ConnectionPool(
            connection_class=node.connection_class, **node.connection_kwargs
        )
    )


class Rounds:
    """Looks at all targets (jobs/lua/round). `now_us` overrides the store's time (tests)."""

    def __init__(
        self, redis: Store, *, timeout_s: float, now_us: Callable[[], int] | None = None
    ) -> None:
        # A cluster has the targets on several servers, so each needs a call of its own.
        self._at_once = 1 if isinstance(redis, Cluster) else AT_ONCE
        self._scripts = Scripts(redis, "jobs")
        self._timeout_s = timeout_s
        self._now_us = now_us

    async def look(self, targets: Mapping[str, bool]) -> list[str]:
        """Those where a job waits, is called or is over, or whose queue was lost. `targets` says
        whether this process has a worker for each, which is noted. Raises StoreError when Redis
        does not answer."""
        names = list(targets)
        parts = [names[i : i + self._at_once] for i in range(0, len(names), self._at_once)]
        found = await asyncio.gather(*(self._look(part, targets) for part in parts))
        return [name for part in found for name in part]

    async def _look(self, names: Sequence[str], targets: Mapping[str, bool]) -> list[str]:
        parts = ("state", "line", "later", "active", "ended")
        keys = [target_key(name, part) for name in names for part in parts]
        now = "" if self._now_us is None else self._now_us()
        args = [now, *(int(targets[name]) for name in names)]
        async with driver_errors("round", self._timeout_s):
            replies = await self._scripts.run("round", keys, args)
        return [name for name, reply in zip(names, replies, strict=True) if reply]
