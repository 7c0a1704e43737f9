"""The recorder writes the events of rooms to the database, and the archivist removes old rows.

The events of a room are recorded by one replica at a time. It reads a batch of events, writes them
in one transaction, and acknowledges them. If it stops in between, the next replica reads the batch
again and skips events that are already in the database, so no event is lost or written twice. While
the database is unavailable, the events wait in Redis.

Once an hour one replica cleans up each room, in small transactions.
"""

import asyncio
import contextlib
import math
import random
from typing import TYPE_CHECKING, Any

import structlog

from sidecar.history.metrics import HistoryMetrics
from sidecar.history.settings import HistorySection
from sidecar.history.store.event_stream import EventStream
from sidecar.http.metrics import Metrics
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.retry import Backoff
from sidecar.rooms.service import WaitingRoom, WaitingRooms

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: How many events one transaction writes. 250 events block the event loop for about 5 ms.
BATCH = 250
#: How long the lease of the recorder is valid without renewal, in ms.
LEASE_MS = 15_000
#: How often to check for new events, in seconds.
CHECK_S = 1.0
#: The pause between two full batches, seconds, so that visitors' requests are not delayed.
PAUSE_S = 0.005
#: The delays between attempts while the database is unavailable.
BACKOFF = Backoff(1.0, 15.0)

#: The maximum number of rows that one transaction of the archivist moves or deletes.
TIDY_BATCH = 500
#: Seconds between two runs of the archivist for a room, between two attempts of a replica to get
#: the lease for such a run, and between two transactions.
TIDY_INTERVAL_S = 3600.0
TIDY_CHECK_S = 60.0
TIDY_PAUSE_S = 0.05

log = structlog.get_logger()


async def record_forever(
    rooms: WaitingRooms,
    streams: dict[str, EventStream],
    history: "History",
    metrics: Metrics,
    *,
    backlog: int,
) -> None:
    """Record the events of all rooms until cancelled. `backlog` is the limit of a room's stream."""
    recorder = Recorder(history, metrics, backlog=backlog)
    with contextlib.suppress(DatabaseError):  # endpoints need the tables before the first event
        await history.check()
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(recorder.run(room, streams[room.name]))


class Recorder:
    """Records the events of all rooms in one database."""

    def __init__(self, history: "History", metrics: Metrics, *, backlog: float = math.inf) -> None:
        self._history = history
        self._backlog = backlog
        #: The names of the rooms whose stream is full.
        self._full_rooms = set[str]()
        self._metrics = metrics.of(HistoryMetrics)
        self._is_checked = False
        self._is_unavailable = False

    async def run(self, room: WaitingRoom, stream: EventStream) -> None:
        """Record the events of a room until cancelled."""
        failures = 0
        metrics = self._metrics
        for counter in (metrics.recorder_written, metrics.recorder_errors, metrics.recorder_stuck):
            counter.labels(room.name)  # this exports the counter as 0
        try:
            while True:
                pause_s = CHECK_S
                try:
                    self._set_gauges(room)
                    has_work = room.snapshot is not None and room.snapshot.events > 0
                    if has_work and await stream.lease.hold(milliseconds=LEASE_MS):
                        pause_s = PAUSE_S if await self.record(room, stream) == BATCH else CHECK_S
                    failures = 0
                except StoreError as error:
                    log.debug("record_failed", room=room.name, error=str(error))
                except Exception as error:
                    # Retry unexpected errors too, because they must not stop the other rooms.
                    if not isinstance(error, DatabaseError):
                        log.exception("record_failed", room=room.name)
                    self._report_failure(room, error)
                    await self._release_lease(stream)  # another replica may reach the database
                    failures += 1
                    pause_s = BACKOFF.delay_s(failures)
                await asyncio.sleep(pause_s * random.uniform(0.9, 1.1))  # noqa: S311
        finally:
            await self._release_lease(stream)

    async def record(self, room: WaitingRoom, stream: EventStream) -> int:
        """Record a batch of events. Return its size. Raises StoreError or DatabaseError."""
        if not self._is_checked:
            await self._history.check()
            self._is_checked = True
        batch = await stream.read(BATCH)
        if lost_count := batch.lost_count:
            log.error("events_lost", room=room.name, events=lost_count, hint="history_backlog")
        if not batch.events:
            return 0
        written_count = await self._history.write(room.name, batch.events)
        self._metrics.recorder_written.labels(room.name).inc(written_count)
        await stream.acknowledge(batch.events)
        if self._is_unavailable:
            self._is_unavailable = False
            log.warning("history_back", room=room.name)
        return len(batch.events)

    async def _release_lease(self, stream: EventStream) -> None:
        with contextlib.suppress(StoreError):
            await stream.lease.give_up()

    def _set_gauges(self, room: WaitingRoom) -> None:
        """Set the gauges of the backlog, which every replica does, even if it does not record."""
        if room.snapshot is None:
            return
        events, oldest_ms = room.snapshot.events, room.snapshot.oldest_event_ms
        late_ms = max(0, room.clock.now_ms() - oldest_ms) if events else 0
        self._metrics.recorder_backlog.labels(room.name).set(events)
        self._metrics.recorder_lag.labels(room.name).set(late_ms / 1000)
        if events < self._backlog:
            self._full_rooms.discard(room.name)
        elif room.name not in self._full_rooms:
            self._full_rooms.add(room.name)
            hint = "history_backlog is reached: the oldest events are lost until they are written"
            log.error("backlog_full", room=room.name, events=events, hint=hint)

    def _report_failure(self, room: WaitingRoom, error: Exception) -> None:
        self._metrics.recorder_errors.labels(room.name).inc()
        self._is_checked = False
        if not self._is_unavailable:
            self._is_unavailable = True
            hint = "events wait in the store; visitors notice nothing"
            log.error("history_away", room=room.name, error=str(error), hint=hint)


async def tidy_forever(
    rooms: WaitingRooms, history: "History", settings: HistorySection, metrics: Metrics
) -> None:
    """Clean up the history of each room once an hour, until cancelled."""
    while True:
        await asyncio.sleep(TIDY_CHECK_S * random.uniform(0.5, 1.5))  # noqa: S311
        for room in rooms:
            try:
                if await room.store.acquire_leader_lease("tidying", seconds=TIDY_INTERVAL_S):
                    await tidy_room(room, history, settings, metrics)
            except (StoreError, DatabaseError) as error:
                log.warning("tidy_failed", room=room.name, error=str(error))
                with contextlib.suppress(StoreError):
                    await room.store.release_leader_lease("tidying")


async def tidy_room(
    room: WaitingRoom, history: "History", settings: HistorySection, metrics: Metrics
) -> None:
    """Close stuck stays, and delete or archive old stays and events. Raises StoreError or
    DatabaseError. The transactions before the error stay committed."""
    await history.check()
    count = await close_stuck_stays(room, history, settings.history_stuck_after)
    metrics.of(HistoryMetrics).recorder_stuck.labels(room.name).inc(count)
    if count:
        log.warning("stuck", room=room.name, stays=count, hint="nothing was heard of their end")
    if settings.history_retention is None:
        return
    before_ms = room.clock.now_ms() - int(settings.history_retention * 1000)
    options: Any = {"limit": TIDY_BATCH, "archive": settings.history_archive == "move"}
    retired_count = 0
    while rows := await history.retire(room.name, before_ms=before_ms, **options):
        retired_count += rows
        await asyncio.sleep(TIDY_PAUSE_S)
    if retired_count:
        log.info("retired", room=room.name, rows=retired_count, to=settings.history_archive)


async def close_stuck_stays(room: WaitingRoom, history: "History", after_s: float) -> int:
    """Close the stays that had no event for `after_s` seconds and whose visitors are not in Redis.
    Return the number of closed stays."""
    before_ms = room.clock.now_ms() - int(after_s * 1000)
    closed_count = 0
    while visitors := await history.find_inactive_visitors(
        room.name, before_ms=before_ms, limit=TIDY_BATCH
    ):
        present = await room.store.lists.filter_present(visitors)
        closed_count += await history.close_inactive_stays(
            room.name,
            absent=[visitor for visitor in visitors if visitor not in present],
            present=sorted(present),
            now_ms=room.clock.now_ms(),
            before_ms=before_ms,
        )
        await asyncio.sleep(TIDY_PAUSE_S)
    return closed_count
