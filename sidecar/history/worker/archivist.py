"""Keeps the history small: what is too old goes or moves, and stays without an end are closed.

One replica a room and hour, in small batches, each a transaction of its own: whatever stops it,
the next one goes on.
"""

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

import structlog

from sidecar.history.metrics import HistoryMetrics
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.rooms.service import Room, Rooms
from sidecar.settings.model import Settings

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: Rows in one transaction.
BATCH = 500
INTERVAL_S = 3600.0
#: How often replicas look for a free leader lease.
LOOK_S = 60.0
REST_S = 0.05

log = structlog.get_logger()


async def tidy_forever(
    rooms: Rooms, history: "History", settings: Settings, metrics: Metrics
) -> None:
    """Runs until cancelled."""
    while True:
        await asyncio.sleep(LOOK_S * random.uniform(0.5, 1.5))  # noqa: S311
        for room in rooms:
            try:
                if await room.store.acquire_leader_lease("tidying", seconds=INTERVAL_S):
                    await tidy(room, history, settings, metrics)
            except (StoreError, DatabaseError) as error:
                log.warning("tidy_failed", room=room.name, error=str(error))
                with contextlib.suppress(StoreError):
                    await room.store.release_leader_lease("tidying")


async def tidy(room: Room, history: "History", settings: Settings, metrics: Metrics) -> None:
    """Raises StoreError and DatabaseError; what was done until then stays done."""
    await history.check()
    stuck = await close_stuck(room, history, settings.history_stuck_after)
    metrics.of(HistoryMetrics).recorder_stuck.labels(room.name).inc(stuck)
    if stuck:
        log.warning("stuck", room=room.name, stays=stuck, hint="nothing was heard of their end")
    if settings.history_retention is None:
        return
    before_ms = room.clock.now_ms() - int(settings.history_retention * 1000)
    keep = settings.history_archive == "move"
    retired = 0
    while gone := await history.retire(room.name, before_ms=before_ms, limit=BATCH, keep=keep):
        retired += gone
        await asyncio.sleep(REST_S)
    if retired:
        log.info("retired", room=room.name, rows=retired, to=settings.history_archive)


async def close_stuck(room: Room, history: "History", after_s: float) -> int:
    """Closes stays of which nothing was heard for so long, and which the store does not know."""
    before_ms = room.clock.now_ms() - int(after_s * 1000)
    closed = 0
    while visitors := await history.silent(room.name, before_ms=before_ms, limit=BATCH):
        here = await room.store.lists.here(visitors)
        closed += await history.settle(
            room.name,
            stuck=[visitor for visitor in visitors if visitor not in here],
            here=sorted(here),
            now_ms=room.clock.now_ms(),
            before_ms=before_ms,
        )
        await asyncio.sleep(REST_S)
    return closed
