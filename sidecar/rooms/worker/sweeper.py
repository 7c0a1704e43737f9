"""Sweeps every room, one replica an interval.

The leader lease is a key that expires after the interval: the replica that sets it sweeps. If that
replica dies, another one sweeps in the next interval. The queue moves without sweeps too, since
calls skip silent visitors; sweeps keep its length correct.
"""

import asyncio
import random

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.service import Room, Rooms

#: Replicas look for a free leader lease this often at least.
LOOK_S = 5.0
#: Rest between two batches, so that visitors' scripts run in between.
REST_S = 0.01

log = structlog.get_logger()


async def sweep_forever(rooms: Rooms, metrics: Metrics) -> None:
    """Sweep until cancelled."""
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(_sweep_room_forever(room, metrics))


async def _sweep_room_forever(room: Room, metrics: Metrics) -> None:
    while True:
        interval = room.settings.sweep_interval
        await asyncio.sleep(min(LOOK_S, interval / 4) * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            if await room.store.acquire_leader_lease("sweeping", seconds=interval):
                await sweep(room, metrics)
        except StoreError as error:
            log.warning("sweep_failed", room=room.name, error=str(error))


async def sweep(room: Room, metrics: Metrics) -> int:
    """Remove what is overdue, at most 1,000 at a time. Return how many places in the queue were
    removed."""
    waiting = sessions = 0
    more = True
    while more:
        swept = await room.store.sweep()
        waiting += swept.waiting
        sessions += swept.sessions
        more = swept.more
        if more:
            await asyncio.sleep(REST_S)
    counted = metrics.of(RoomMetrics)
    counted.sweeps.labels(room.name).inc()
    counted.swept.labels(room.name, "waiting").inc(waiting)
    counted.swept.labels(room.name, "sessions").inc(sessions)
    write = log.info if waiting or sessions else log.debug
    write("swept", room=room.name, waiting=waiting, sessions=sessions)
    return waiting
