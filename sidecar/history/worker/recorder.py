"""Writes every room's events to SQL, one replica a room.

A batch is read, written in one transaction, and acknowledged. Whatever happens in between, the
next replica reads it again, and the database knows what it has: nothing is lost, nothing is
double. While the database is unavailable the events wait in the store.
"""

import asyncio
import contextlib
import math
import random
from typing import TYPE_CHECKING

import structlog

from sidecar.history.metrics import HistoryMetrics
from sidecar.history.service import fold
from sidecar.history.store.event_stream import EventStream
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.retry import Backoff
from sidecar.rooms.service import Room, Rooms

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: Events in one transaction. It keeps the event loop from visitors for some 5 ms; 500 would for 10.
BATCH = 250
#: How long a replica records before another may, when nothing is heard of it.
LEASE_MS = 15_000
#: How often to look whether there is something to write.
LOOK_S = 1.0
#: Rest between two batches, so that visitors get their turn.
REST_S = 0.005
#: Between two tries while the database is unavailable.
BACKOFF = Backoff(1.0, 15.0)

log = structlog.get_logger()


async def record_forever(
    rooms: Rooms,
    streams: dict[str, EventStream],
    history: "History",
    metrics: Metrics,
    *,
    backlog: int,
) -> None:
    """Runs until cancelled, and then gives its leases up. `backlog`: how many events a room's
    stream holds."""
    recorder = Recorder(history, metrics, backlog=backlog)
    with contextlib.suppress(DatabaseError):  # so that look-ups find tables before the first event
        await history.check()
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(recorder.run(room, streams[room.name]))


class Recorder:
    """Records rooms; shares between them what it knows of the database."""

    def __init__(self, history: "History", metrics: Metrics, *, backlog: float = math.inf) -> None:
        self._history = history
        self._backlog = backlog
        self._full: set[str] = set()
        self._metrics = metrics.of(HistoryMetrics)
        self._is_checked = False
        self._is_away = False

    async def run(self, room: Room, stream: EventStream) -> None:
        failures = 0
        metrics = self._metrics
        for counter in (metrics.recorder_written, metrics.recorder_errors, metrics.recorder_stuck):
            counter.labels(room.name)  # so that it is there, at 0
        try:
            while True:
                rest_s = LOOK_S
                try:
                    self._show(room)
                    has_work = room.snapshot is not None and room.snapshot.events > 0
                    if has_work and await stream.lease.hold(milliseconds=LEASE_MS):
                        rest_s = REST_S if await self.record(room, stream) == BATCH else LOOK_S
                    failures = 0
                except StoreError as error:
                    log.debug("record_failed", room=room.name, error=str(error))
                except Exception as error:
                    # An error that nobody foresaw is this room's alone, and is tried again too.
                    if not isinstance(error, DatabaseError):
                        log.exception("record_failed", room=room.name)
                    self._failed(room, error)
                    await self._give_up(stream)  # another replica may reach the database
                    failures += 1
                    rest_s = BACKOFF.delay_s(failures)
                await asyncio.sleep(rest_s * random.uniform(0.9, 1.1))  # noqa: S311
        finally:
            await self._give_up(stream)

    async def record(self, room: Room, stream: EventStream) -> int:
        """One batch: how many events it had. Raises StoreError and DatabaseError."""
        if not self._is_checked:
            await self._history.check()
            self._is_checked = True
        batch = await stream.read(BATCH)
        if batch.lost:
            log.error("events_lost", room=room.name, events=batch.lost, hint="history_backlog")
        if not batch.events:
            return 0
        written = await self._history.write(room.name, batch.events, fold)
        self._metrics.recorder_written.labels(room.name).inc(written)
        await stream.done(batch.events)
        if self._is_away:
            self._is_away = False
            log.warning("history_back", room=room.name)
        return len(batch.events)

    async def _give_up(self, stream: EventStream) -> None:
        with contextlib.suppress(StoreError):
            await stream.lease.give_up()

    def _show(self, room: Room) -> None:
        """How far behind it is, whichever replica writes."""
        if room.snapshot is None:
            return
        events, oldest_ms = room.snapshot.events, room.snapshot.oldest_event_ms
        late_ms = max(0, room.clock.now_ms() - oldest_ms) if events else 0
        self._metrics.recorder_backlog.labels(room.name).set(events)
        self._metrics.recorder_lag.labels(room.name).set(late_ms / 1000)
        if events < self._backlog:
            self._full.discard(room.name)
        elif room.name not in self._full:
            self._full.add(room.name)
            hint = "history_backlog is reached: the oldest events are lost until they are written"
            log.error("backlog_full", room=room.name, events=events, hint=hint)

    def _failed(self, room: Room, error: Exception) -> None:
        self._metrics.recorder_errors.labels(room.name).inc()
        self._is_checked = False
        if not self._is_away:
            self._is_away = True
            hint = "events wait in the store; visitors notice nothing"
            log.error("history_away", room=room.name, error=str(error), hint=hint)
