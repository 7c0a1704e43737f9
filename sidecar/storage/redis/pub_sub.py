"""Publishes and receives messages by Redis pub/sub. A process has one subscription for all of its
channels. Messages may be lost, so code that waits for a message must also poll."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

from redis.asyncio import ConnectionPool, Redis
from redis.exceptions import RedisError

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text

#: How long a subscription may be silent until the server is pinged, and how long the server may
#: take to respond, in seconds.
SILENCE_S = 5.0
#: The pause between attempts to subscribe, in seconds.
RESUBSCRIBE_S = 0.5


class Subscriber:
    """Passes the messages of channels to handlers."""

    def __init__(self, redis: Store) -> None:
        self._redis = redis
        self._handlers: dict[str, Callable[[str], None]] = {}

    def listen(self, channel: str, handler: Callable[[str], None]) -> None:
        """Call `handler` with each message of a channel from the next `run` on. After subscribing,
        call it with "", because messages may have been missed before."""
        self._handlers[channel] = handler

    @property
    def has_channels(self) -> bool:
        return bool(self._handlers)

    async def run(self) -> None:
        """Pass messages to their handlers until cancelled."""
        channels = list(self._handlers)
        async with contextlib.aclosing(subscribe(self._redis, channels)) as messages:
            async for channel, message in messages:
                self._handlers[channel](message)


async def publish(redis: Store, channel: str, message: str, *, timeout_s: float) -> None:
    """Publish a message to all subscribers of a channel. Raises StoreError."""
    sender: Any = redis
    async with driver_errors("publish", timeout_s):
        await sender.publish(channel, message)


async def subscribe(
    redis: Store, channels: Sequence[str], *, silence_s: float = SILENCE_S
) -> AsyncGenerator[tuple[str, str], None]:
    """Yield each message of the channels as (channel, message), forever and without errors. After
    the start and each reconnect yield "" for each channel, because messages may have been missed.
    Callers close the generator with `contextlib.aclosing`."""
    while True:
        try:
            async with _open_subscription(redis, channels, silence_s) as subscription:
                async for message in _read_messages(subscription, silence_s):
                    yield message
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(RESUBSCRIBE_S)


async def _read_messages(subscription: Any, silence_s: float) -> AsyncIterator[tuple[str, str]]:
    """Yield messages until the server does not respond to a ping."""
    is_pinged = False
    while True:
        message = await subscription.get_message(timeout=silence_s)
        if message is None:
            if is_pinged:
                return
            await subscription.ping()
            is_pinged = True
            continue
        is_pinged = False
        if message["type"] == "subscribe":
            yield text(message["channel"]), ""
        elif message["type"] == "message":
            yield text(message["channel"]), text(message["data"])


@contextlib.asynccontextmanager
async def _open_subscription(
    redis: Store, channels: Sequence[str], timeout_s: float
) -> AsyncIterator[Any]:
    async with asyncio.timeout(timeout_s):
        client = await _connect_to_one_server(redis)
    subscription: Any = client.pubsub()
    try:
        async with asyncio.timeout(timeout_s):
            await subscription.subscribe(*channels)
        yield subscription
    finally:
        # An error would replace a cancellation, and the cancelled task would continue.
        with contextlib.suppress(RedisError, OSError, RuntimeError):
            await subscription.aclose()
        if client is not redis:
            with contextlib.suppress(RedisError, OSError, RuntimeError):
                await client.aclose(close_connection_pool=True)


async def _connect_to_one_server(redis: Store) -> Redis:
    """Return a client of one server, which is enough: messages reach all servers of a cluster."""
    if isinstance(redis, Redis):
        return redis
    await redis.initialize()
    node = random.choice(redis.get_nodes())  # noqa: S311 - spreads the load
    pool = ConnectionPool(connection_class=node.connection_class, **node.connection_kwargs)
    return Redis(connection_pool=pool)
