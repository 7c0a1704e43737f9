"""Reads each room's changed settings, revoked passes and numbers once a second.

The script also removes what expired and calls the next visitors: a queue moves even while nobody
polls.
"""

import asyncio

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.rooms.metrics import RoomMetrics, absent
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Phase
from sidecar.visitors.verdict_lifetime import REFRESH_MS

#: The phases in the order of the gauge's numbers.
_PHASES = (Phase.OPEN, Phase.PREQUEUE, Phase.CLOSED)

log = structlog.get_logger()


async def refresh_forever(rooms: Rooms, metrics: Metrics) -> None:
    """Refresh until cancelled. A room whose Redis is unavailable is tried again a second later."""
    while True:
        await refresh_once(rooms, metrics)
        await asyncio.sleep(REFRESH_MS / 1000)


async def refresh_once(rooms: Rooms, metrics: Metrics) -> bool:
    """Refresh all rooms at the same time. Return True if every one succeeded."""
    done = await asyncio.gather(*(_refresh(room, metrics.of(RoomMetrics)) for room in rooms))
    return all(done)


async def _refresh(room: Room, metrics: RoomMetrics) -> bool:
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
            metrics.forget(room.name)
        _show_settings(room, metrics)
        return False
    if was_away:
        log.warning("store_back", room=room.name)
    metrics.store_away.labels(room.name).set(0)
    _show_settings(room, metrics)
    _show_snapshot(room.name, snapshot, metrics)
    _show_sub_queues(room, snapshot, metrics)
    return True


def _show_settings(room: Room, metrics: RoomMetrics) -> None:
    name, settings = room.name, room.settings
    metrics.cap.labels(name).set(settings.total_active_users)
    metrics.session_duration.labels(name).set(settings.session_duration)
    metrics.queue_all.labels(name).set(settings.queue_all)
    metrics.suspended.labels(name).set(room.is_open)
    phase = settings.moments(room.clock.now_ms()).phase
    metrics.phase.labels(name).set(_PHASES.index(phase))
    metrics.refused_leaves.labels(name)
    metrics.let_in_alone.labels(name)  # so that they are there, at 0, before there is a need
    metrics.wait_seconds.labels(name)


def _show_snapshot(name: str, snapshot: Snapshot, metrics: RoomMetrics) -> None:
    metrics.recovery.labels(name).set(snapshot.recovery_stage)
    metrics.replicas.labels(name).set(snapshot.replicas)
    metrics.waiting.labels(name).set(snapshot.waiting)
    metrics.active.labels(name).set(snapshot.active)
    metrics.provisional.labels(name).set(snapshot.provisional)
    metrics.remembered.labels(name).set(snapshot.remembered)
    metrics.shield_up.labels(name).set(snapshot.now_ms < snapshot.shield_until_ms)
    if snapshot.wait_ms is None:
        absent(metrics.wait_estimate, name)
    else:
        metrics.wait_estimate.labels(name).set(snapshot.wait_ms / 1000)
    metrics.stays.learn(name, snapshot.counters)


def _show_sub_queues(room: Room, snapshot: Snapshot, metrics: RoomMetrics) -> None:
    waits = {
        line.name: (people, None if ms is None else ms / 1000)
        for line, (people, ms) in zip(room.settings.lines, snapshot.lines, strict=False)
    }
    metrics.queues.learn(room.name, waits)
