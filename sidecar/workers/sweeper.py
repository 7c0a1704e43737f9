"""Sweeps every room, one replica an interval; and the leases, each replica each second.

The turn to sweep is a key that runs out after the interval: who sets it sweeps. When
its holder dies, the next interval has another. The line moves without sweeps too
(the call passes over the silent); they keep its length honest.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import structlog

from sidecar.base.errors import StoreError

if TYPE_CHECKING:
    from sidecar.base.metrics import Metrics
    from sidecar.core.leases import Leases, Template
    from sidecar.core.rooms import Room, Rooms

#: Replicas look for a free turn this often at least, so a dead one's is soon taken.
LOOK_S = 5.0
#: Rest between two batches, so that visitors' scripts get their turn.
REST_S = 0.01
#: Between two sweeps of a template's leases, seconds.
LEASES_S = 1.0

log = structlog.get_logger()


async def sweep_forever(rooms: Rooms, metrics: Metrics) -> None:
    """Runs until cancelled."""
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(_sweep_room_forever(room, metrics))


async def _sweep_room_forever(room: Room, metrics: Metrics) -> None:
    while True:
        interval = room.settings.sweep_interval
        await asyncio.sleep(min(LOOK_S, interval / 4) * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            if await room.store.take_turn("sweeping", seconds=interval):
                await sweep(room, metrics)
        except StoreError as error:
            log.warning("sweep_failed", room=room.name, error=str(error))


async def sweep_leases_forever(leases: Leases) -> None:
    """Ends what ran out and calls who is next, also where nobody asks. Runs until cancelled."""
    async with asyncio.TaskGroup() as group:
        for template in leases:
            group.create_task(_sweep_template_forever(template))


async def _sweep_template_forever(template: Template) -> None:
    while True:
        await asyncio.sleep(LEASES_S * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            await sweep_leases(template)
        except StoreError as error:
            log.warning("sweep_failed", lease=template.name, error=str(error))


async def sweep_leases(template: Template) -> None:
    """Each replica does it: twice equals once."""
    name, metrics = template.name, template.metrics
    more = True
    while more:
        swept, more = await template.store.sweep()
        metrics.leases_swept.labels(name).inc(swept)
        if more:
            await asyncio.sleep(REST_S)
    metrics.lease_resources.labels(name).set(await template.store.count())


async def sweep(room: Room, metrics: Metrics) -> int:
    """Removes all that is overdue, at most 1,000 at a time. How many waiting went."""
    waiting = sessions = 0
    more = True
    while more:
        swept = await room.store.sweep()
        waiting += swept.waiting
        sessions += swept.sessions
        more = swept.more
        if more:
            await asyncio.sleep(REST_S)
    metrics.sweeps.labels(room.name).inc()
    metrics.swept.labels(room.name, "waiting").inc(waiting)
    metrics.swept.labels(room.name, "sessions").inc(sessions)
    said = log.info if waiting or sessions else log.debug
    said("swept", room=room.name, waiting=waiting, sessions=sessions)
    return waiting
