"""Wakes workers and reconcilers, by pub/sub, when a job may be called, a call must be aborted or a
target's settings have changed. As messages may be lost, all targets are also polled."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakSet

import structlog
from redis.asyncio.cluster import RedisCluster

from sidecar.jobs.redis_keys import JOBS_CHANNEL, target_key
from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors
from sidecar.storage.redis.pub_sub import Subscriber, publish
from sidecar.storage.redis.scripts import RedisScripts

#: How often all targets are polled on behalf of idle workers and reconcilers, in seconds.
POLL_S = 10.0
#: How often an idle worker or reconciler checks its queue without a wake-up, in seconds.
IDLE_S = 60.0
#: The maximum number of targets in one script call. More would block Redis for too long.
TARGETS_PER_CALL = 200
_ABORT_PREFIX, _SETTINGS_PREFIX = "abort ", "settings "

log = structlog.get_logger()


class Listener:
    """The events that wake one worker or reconciler."""

    def __init__(self, *, is_worker: bool = False) -> None:
        #: Whether the listener is a worker, which makes the calls of offline jobs.
        self.is_worker = is_worker
        #: Set by each wake-up: a job may be called, a call must end, or settings have changed.
        self.wake_event = asyncio.Event()
        #: Set when a call has to be aborted.
        self.abort_event = asyncio.Event()


class WakeUps:
    """Wakes the listeners of all targets. `now_us` overrides the time of Redis, in tests."""

    def __init__(
        self,
        redis: Store,
        subscriber: Subscriber,
        *,
        timeout_s: float = 1.0,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        self._redis = redis
        subscriber.listen(JOBS_CHANNEL, self.wake)
        # In a cluster the targets are on several servers, so each needs its own call.
        self._targets_per_call = 1 if isinstance(redis, RedisCluster) else TARGETS_PER_CALL
        self._scripts = RedisScripts(redis, "jobs", timeout_s=timeout_s)
        self._timeout_s = timeout_s
        self._now_us = now_us
        self._listeners: dict[str, WeakSet[Listener]] = {}
        #: Set when the settings of a target were changed.
        self.settings_event = asyncio.Event()

    def listen(self, target: str, *, is_worker: bool = False) -> Listener:
        """Return a new listener for a target. It is woken as long as a reference to it exists."""
        listener = Listener(is_worker=is_worker)
        self._listeners.setdefault(target, WeakSet()).add(listener)
        return listener

    def wake(self, message: str) -> None:
        """Wake the listeners that a message of JOBS_CHANNEL concerns. An empty one concerns all."""
        if not message or message.startswith(_SETTINGS_PREFIX):
            self.settings_event.set()
        target = message.removeprefix(_ABORT_PREFIX).removeprefix(_SETTINGS_PREFIX)
        names = [target] if message else list(self._listeners)
        for listener in [item for name in names for item in self._listeners.get(name, ())]:
            listener.wake_event.set()
            if message.startswith(_ABORT_PREFIX):
                listener.abort_event.set()

    async def announce(self, target: str) -> None:
        """Notify all processes that a target's settings were changed. A process that misses the
        message reads the settings at its next refresh."""
        message = f"{_SETTINGS_PREFIX}{target}"
        self.wake(message)
        with contextlib.suppress(StoreError):
            await publish(self._redis, JOBS_CHANNEL, message, timeout_s=self._timeout_s)

    async def run(self) -> None:
        """Wake listeners by polling, until cancelled. The subscriber wakes them by messages."""
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self.poll()
            except StoreError as error:
                log.debug("round_failed", error=str(error))

    async def poll(self) -> None:
        """Wake the listeners of targets that have jobs or whose queue was lost. Record in Redis
        which targets have a worker in this process. Raises StoreError."""
        has_worker = {
            name: any(listener.is_worker for listener in listeners)
            for name, listeners in self._listeners.items()
            if listeners
        }
        names = list(has_worker)
        size = self._targets_per_call
        batches = [names[start : start + size] for start in range(0, len(names), size)]
        polls = (self._poll(batch, has_worker) for batch in batches)
        for active_names in await asyncio.gather(*polls):
            for name in active_names:
                self.wake(name)

    async def _poll(self, names: Sequence[str], has_worker: Mapping[str, bool]) -> list[str]:
        parts = ("state", "line", "later", "active", "ended")
        keys = [target_key(name, part) for name in names for part in parts]
        now = "" if self._now_us is None else self._now_us()
        args = [now, *(int(has_worker[name]) for name in names)]
        async with driver_errors("round", self._timeout_s):
            replies = await self._scripts.send("round", keys, args)
        return [name for name, reply in zip(names, replies, strict=True) if reply]
