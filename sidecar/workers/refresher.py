"""Every second asks the store for changed settings, revoked passes and the numbers.

The script it runs also drops what ran out and calls the next: a line moves although
nobody polls.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from sidecar.base.errors import StoreError
from sidecar.base.model import REFRESH_MS

if TYPE_CHECKING:
    from sidecar.base.metrics import Metrics
    from sidecar.core.rooms import Room, Rooms

log = structlog.get_logger()

_STAYS = ("joined", "called", "admitted", "expired", "left", "released")


async def refresh_forever(rooms: Rooms, metrics: Metrics) -> None:
    """Runs until cancelled. A room whose store is away is tried again a second later."""
    while True:
        await refresh_once(rooms, metrics)
        await asyncio.sleep(REFRESH_MS / 1000)


async def refresh_once(rooms: Rooms, metrics: Metrics) -> bool:
    """Whether every room was refreshed."""
    done = await asyncio.gather(*(_refresh(room, metrics) for room in rooms))
    return all(done)


async def _refresh(room: Room, metrics: Metrics) -> bool:
    was_away = room.store.is_away
    try:
        snapshot = await room.refresh()
    except StoreError as error:
        log.warning("refresh_failed", room=room.name, error=str(error))
        if room.store.is_away and not was_away:
            policy = room.settings.on_store_failure
            log.error("store_away", room=room.name, on_store_failure=policy, error=str(error))
        metrics.store_away.labels(room.name).set(room.store.is_away)
        metrics.let_in_alone.labels(room.name)  # so that it is there, at 0
        return False
    if was_away:
        log.warning("store_back", room=room.name)
    metrics.store_away.labels(room.name).set(0)
    metrics.recovery.labels(room.name).set(snapshot.recovery_stage)
    metrics.replicas.labels(room.name).set(snapshot.replicas)
    metrics.waiting.labels(room.name).set(snapshot.waiting)
    metrics.active.labels(room.name).set(snapshot.active)
    metrics.provisional.labels(room.name).set(snapshot.provisional)
    metrics.cap.labels(room.name).set(room.settings.total_active_users)
    for kind in _STAYS:
        metrics.stays.labels(room.name, kind).set(snapshot.counters.get(kind, 0))
    return True
