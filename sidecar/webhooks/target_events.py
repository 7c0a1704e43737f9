"""Detects that a target's queue is long, and enqueues messages about it.

A latch turns on when more jobs wait than the target's notify_above, but at most once a minute. It
turns off when fewer jobs than 80 % of notify_above wait. The replica that holds a leader lease
checks all targets. As in detector.py, Redis stores the latches together with the messages.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.detector import CHECK_S, LEASE_MS
from sidecar.webhooks.latch import Latch
from sidecar.webhooks.model import Document, Notice
from sidecar.webhooks.redis_keys import TARGET_LEASE_KEY, TARGET_NOTICES_KEY
from sidecar.webhooks.retention import UNSENT_LIMIT
from sidecar.webhooks.room_events import OVER_OFF_SHARE
from sidecar.webhooks.service import Webhooks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TargetQueue:
    """The queue of a target at `now_ms`. `above` is the target's notify_above."""

    target: str
    now_ms: int
    waiting: int
    active: int
    cap: int
    wait_s: float | None
    above: int | None


@dataclass(frozen=True, slots=True)
class TargetLatch(Document):
    """The latch of a target, and the messages that are not enqueued yet. `began_ms` (the time of
    the first check) and `event_count` (the events so far) are parts of the messages' ids."""

    began_ms: int
    event_count: int = 0
    over: Latch = field(default_factory=Latch)
    unsent: tuple[Notice, ...] = ()


def detect_target_events(
    before: TargetLatch | None, queue: TargetQueue
) -> tuple[TargetLatch, list[Notice]]:
    """Return the latch after a check of a queue, and the messages to send. The first check causes
    no message, because the queue may have been long before."""
    above, waiting = queue.above, queue.waiting
    is_over = above is not None and waiting > above
    if before is None:
        return TargetLatch(queue.now_ms, over=Latch(is_on=is_over)), []
    is_below = above is None or waiting < OVER_OFF_SHARE * above
    over = before.over.update(queue.now_ms, turn_on=is_over, turn_off=is_below)
    if before.over.is_on or not over.is_on:
        return replace(before, over=over), []
    count = before.event_count + 1
    notice = Notice(
        f"{queue.target}-{before.began_ms}-{count}-target_queue_over",
        "target_queue_over",
        "",
        queue.now_ms,
        waiting,
        queue.active,
        queue.cap,
        None if queue.wait_s is None else round(queue.wait_s),
        above,
        queue.target,
    )
    return replace(before, event_count=count, over=over), [notice]


class TargetDetector:
    """Detects the events of all targets, in the queues that `read_queues` returns."""

    def __init__(
        self,
        webhooks: Webhooks,
        redis: Store,
        read_queues: Callable[[], Iterable[TargetQueue]],
        *,
        timeout_s: float,
    ) -> None:
        self._webhooks = [webhook for webhook in webhooks if webhook.is_about_targets()]
        self._redis: Any = redis
        self._read_queues = read_queues
        self._timeout_s = timeout_s
        owner = secrets.token_urlsafe(9)
        self._lease = LeaderLease(redis, TARGET_LEASE_KEY, owner=owner, timeout_s=timeout_s)
        #: Maps a target to the latch that this replica last stored, in case Redis loses it.
        self._last_latches: dict[str, TargetLatch] = {}

    async def run(self) -> None:
        """Check all targets every second until cancelled."""
        while self._webhooks:
            await self.check_targets()
            await asyncio.sleep(CHECK_S)

    async def check_targets(self) -> None:
        """Check each target once, if this replica has the lease and Redis is available."""
        try:
            if not await self._lease.hold(milliseconds=LEASE_MS):
                return
            async with driver_errors("notices", self._timeout_s):
                stored = await self._redis.hgetall(TARGET_NOTICES_KEY)
            documents = {text(name): text(document) for name, document in stored.items()}
            for queue in self._read_queues():
                await self._check_target(queue, documents.get(queue.target))
        except StoreError as error:
            log.warning("notify_failed", error=str(error))

    async def _check_target(self, queue: TargetQueue, stored: str | None) -> None:
        before = TargetLatch.read(stored) or self._last_latches.get(queue.target)
        latch, notices = detect_target_events(before, queue)
        unsent = (*latch.unsent, *notices)[-UNSENT_LIMIT:]
        await self._store(queue.target, replace(latch, unsent=unsent), stored)
        for notice in unsent:
            await asyncio.gather(*(webhook.enqueue(notice) for webhook in self._webhooks))
        if unsent:
            await self._store(queue.target, replace(latch, unsent=()), None)

    async def _store(self, target: str, latch: TargetLatch, stored: str | None) -> None:
        """Store a latch, unless it is equal to the one that Redis has (`stored`)."""
        if (document := latch.to_json()) != stored:
            async with driver_errors("notices", self._timeout_s):
                await self._redis.hset(TARGET_NOTICES_KEY, target, document)
        self._last_latches[target] = latch
