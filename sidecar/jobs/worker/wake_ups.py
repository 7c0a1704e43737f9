"""Wakes workers and reconcilers: a queue has a job, a call is to be cut off, or the settings of a
target were changed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakSet

import structlog

from sidecar.jobs.store.pubsub import Rounds, subscribe
from sidecar.kit.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.kit.redis.connect import Store

#: Between two looks at all targets, seconds: a message may be lost. What is idle waits for these;
#: if even they find nothing, it looks by itself after `IDLE_S`.
ROUND_S = 10.0
IDLE_S = 60.0
_ABORT, SETTINGS = "abort ", "settings "

log = structlog.get_logger()


class Listener:
    """`woken`: something may be called; `urgent`: a call is to be cut off. `is_worker`: it makes
    calls of offline jobs."""

    def __init__(self, *, is_worker: bool = False) -> None:
        self.is_worker = is_worker
        self.woken = asyncio.Event()
        self.urgent = asyncio.Event()


class WakeUps:
    """Wakes a target's listeners, by messages from Redis and by a look at all targets every
    ROUND_S."""

    def __init__(
        self, redis: Store, *, timeout_s: float = 1.0, now_us: Callable[[], int] | None = None
    ) -> None:
        self._redis = redis
        self._rounds = Rounds(redis, timeout_s=timeout_s, now_us=now_us)
        self._listeners: dict[str, WeakSet[Listener]] = {}
        #: The settings of a target were changed.
        self.changed = asyncio.Event()

    def listen(self, target: str, *, is_worker: bool = False) -> Listener:
        """For one listener, for as long as it keeps it."""
        listener = Listener(is_worker=is_worker)
        self._listeners.setdefault(target, WeakSet()).add(listener)
        return listener

    def wake(self, message: str) -> None:
        """A target's name, "abort NAME", "settings NAME", or "" for all."""
        if not message or message.startswith(SETTINGS):
            self.changed.set()
        target = message.removeprefix(_ABORT).removeprefix(SETTINGS)
        names = [target] if message else list(self._listeners)
        for listener in [one for name in names for one in self._listeners.get(name, ())]:
            listener.woken.set()
            if message.startswith(_ABORT):
                listener.urgent.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen_forever())
            group.create_task(self._look_forever())

    async def _listen_forever(self) -> None:
        async with contextlib.aclosing(subscribe(self._redis)) as messages:
            async for message in messages:
                self.wake(message)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.look()
            except StoreError as error:
                log.debug("round_failed", error=str(error))

    async def look(self) -> None:
        """Wakes those of targets where something can be seen. Raises StoreError."""
        has_worker = {
            name: any(listener.is_worker for listener in listeners)
            for name, listeners in self._listeners.items()
            if listeners
        }
        for name in await self._rounds.look(has_worker):
            self.wake(name)
