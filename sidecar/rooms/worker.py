"""The loops that refresh every room once a second, and sweep each room once a sweep_interval.

A refresh reads changed settings, revoked passes and counters. Its script also removes expired
entries and calls the next visitors, so a queue moves even while nobody polls. A sweep removes
visitors who stopped polling. It keeps the queue's length correct, but the queue moves without it,
because a call skips such visitors. Only the replica that gets an interval's leader lease sweeps. If
that replica dies, another one sweeps in the next interval."""

import asyncio
import random

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Phase
from sidecar.visitors.verdict_lifetime import REFRESH_MS

#: The phases. The index of a phase is its value in the metric waitroom_phase.
_PHASES = (Phase.OPEN, Phase.PREQUEUE, Phase.CLOSED)
#: The longest time between two attempts to get the leader lease, in seconds.
RETRY_S = 5.0
#: The pause between two batches of a sweep, in seconds, so that Redis runs visitors' scripts too.
BATCH_PAUSE_S = 0.01

log = structlog.get_logger()


async def refresh_forever(rooms: WaitingRooms, metrics: Metrics) -> None:
    """Refresh all rooms once a second until cancelled, even while Redis is unavailable."""
    while True:
        await refresh_once(rooms, metrics)
        await asyncio.sleep(REFRESH_MS / 1000)


async def refresh_once(rooms: WaitingRooms, metrics: Metrics) -> bool:
    """Refresh all rooms at the same time. Return True if every refresh succeeded."""
    results = await asyncio.gather(*(_refresh(room, metrics.of(RoomMetrics)) for room in rooms))
    return all(results)


async def _refresh(room: WaitingRoom, metrics: RoomMetrics) -> bool:
    was_away = room.store.is_away
    try:
        snapshot = await room.refresh()
    except StoreError as error:
        log.warning("refresh_failed", room=room.name, error=str(error))
        if room.store.is_away and not was_away:
            policy = room.settings.on_store_failure
            log.error("store_away", room=room.name, on_store_failure=policy, error=str(error))
        metrics.store_away.labels(room.name).set(room.store.is_away)
        if room.store.is_away:
            metrics.remove_store_samples(room.name)
        _export_settings(room, metrics)
        return False
    if was_away:
        log.warning("store_back", room=room.name)
    metrics.store_away.labels(room.name).set(0)
    _export_settings(room, metrics)
    _export_snapshot(room, snapshot, metrics)
    return True


def _export_settings(room: WaitingRoom, metrics: RoomMetrics) -> None:
    name, settings = room.name, room.settings
    learned = room.snapshot.learned if room.snapshot else None
    metrics.cap.labels(name).set(settings.find_cap(learned))
    metrics.session_duration.labels(name).set(settings.session_duration)
    metrics.queue_all.labels(name).set(settings.queue_all)
    metrics.suspended.labels(name).set(room.is_open)
    phase = settings.schedule_at(room.clock.now_ms()).phase
    metrics.phase.labels(name).set(_PHASES.index(phase))
    metrics.refused_leaves.labels(name)
    metrics.fail_open_admissions.labels(name)  # exports 0 before the first admission
    metrics.wait_seconds.labels(name)


def _export_snapshot(room: WaitingRoom, snapshot: Snapshot, metrics: RoomMetrics) -> None:
    for field in ("waiting", "active", "provisional", "replicas", "remembered"):
        getattr(metrics, field).labels(room.name).set(getattr(snapshot, field))
    metrics.recovery.labels(room.name).set(snapshot.recovery_stage)
    metrics.shield_up.labels(room.name).set(snapshot.now_ms < snapshot.shield_until_ms)
    if snapshot.wait_ms is None:
        metrics.wait_estimate.remove(room.name)
    else:
        metrics.wait_estimate.labels(room.name).set(snapshot.wait_ms / 1000)
    names = (line.name for line in room.settings.lines)
    metrics.export_sub_queues(room.name, dict(zip(names, snapshot.lines, strict=False)))
    metrics.stays.update(room.name, snapshot.counters)


async def sweep_forever(rooms: WaitingRooms, metrics: Metrics) -> None:
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(_sweep_room_forever(room, metrics))


async def _sweep_room_forever(room: WaitingRoom, metrics: Metrics) -> None:
    while True:
        interval = room.settings.sweep_interval
        await asyncio.sleep(min(RETRY_S, interval / 4) * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            if await room.store.acquire_leader_lease("sweeping", seconds=interval):
                await sweep(room, metrics)
        except StoreError as error:
            log.warning("sweep_failed", room=room.name, error=str(error))


async def sweep(room: WaitingRoom, metrics: Metrics) -> int:
    """Remove expired places and sessions, in batches. Return how many places were removed."""
    waiting = sessions = 0
    has_more = True
    while has_more:
        swept = await room.store.sweep()
        waiting += swept.waiting
        sessions += swept.sessions
        has_more = swept.has_more
        if has_more:
            await asyncio.sleep(BATCH_PAUSE_S)
    room_metrics = metrics.of(RoomMetrics)
    room_metrics.sweeps.labels(room.name).inc()
    room_metrics.swept.labels(room.name, "waiting").inc(waiting)
    room_metrics.swept.labels(room.name, "sessions").inc(sessions)
    log_event = log.info if waiting or sessions else log.debug
    log_event("swept", room=room.name, waiting=waiting, sessions=sessions)
    return waiting
