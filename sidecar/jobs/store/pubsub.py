"""News of targets' lines, as the scripts tell them: somebody waits, somebody is to be cut off; and
of their settings, as replicas tell them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from sidecar.jobs.redis_keys import JOBS_CHANNEL
from sidecar.kit.redis.driver_errors import text, translated

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store

#: After so much silence the server is asked whether it is there, and has as long to answer.
SILENCE_S = 5.0
#: Between two tries to subscribe.
AGAIN_S = 0.5


async def announce(redis: Store, word: str, *, timeout_s: float) -> None:
    """Tells everybody. Raises StoreError when the store does not answer."""
    sender: Any = redis
    async with translated("announce", timeout_s):
        await sender.publish(JOBS_CHANNEL, word)


async def news(redis: Store, *, silence_s: float = SILENCE_S) -> AsyncGenerator[str, None]:
    """Targets' names, "settings NAME" where those were changed, and "abort NAME" for those who may
    have such a call; "" whenever anything may
    have been missed: at first, and when a lost connection is back. Never ends, and raises nothing;
    close it, as `contextlib.aclosing` does.
    """
    while True:
        try:
            async with _subscribed(redis, silence_s) as channel:
                async for word in _heard(channel, silence_s):
                    yield word
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(AGAIN_S)


async def _heard(channel: Any, silence_s: float) -> AsyncIterator[str]:
    """Ends when the server is silent."""
    is_asked = False
    while True:
        message = await channel.get_message(timeout=silence_s)
        if message is None:
            if is_asked:
                return
            await channel.ping()
            is_asked = True
            continue
        is_asked = False
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
    """Of a cluster any will do: what is published at one of them is told by all."""
    if isinstance(redis, Redis):
        return redis
    await redis.initialize()
    node = random.choice(redis.get_nodes())  # noqa: S311 - spreads the load
    return Redis(
        connection_pool=ConnectionPool(
            connection_class=node.connection_class, **node.connection_kwargs
        )
    )
