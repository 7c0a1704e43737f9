"""Generates histories of rooms, the same each time, and loads them into MariaDB.

The sizes of rooms follow Zipf's law. In each room nine of ten stays begin within one hour of a day,
and the queue is served in two hours. A visitor who finds a free slot is admitted at once. Others
wait in order, and some give up or do not come when they are called. The last rush ends now in the
largest room, and up to a day ago in others.
"""

import base64
import json
import random
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from sidecar.history.model import Stay
from sidecar.history.store.tables import entries, events
from tests.support.databases import Mariadb

DAYS = 90
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
_ZIPF = 0.93
_RUSH, _RUSH_MS, _SERVED_MS = 0.9, HOUR_MS, 2 * HOUR_MS
_GIVES_UP, _PATIENCE_MS = 0.08, 20 * MINUTE_MS
_NO_SHOW, _CLAIM_MS = 0.03, 30_000
_SESSION_MS = 8 * MINUTE_MS
_ENDS, _END_WEIGHTS = ("session", "left", "finished"), (70, 28, 2)

#: How many rows are loaded in one transaction: some 20 MB.
CHUNK = 100_000
#: How many of a room's latest stays have events, at least.
_LATEST = 100
_COUNTS = f"""
SELECT COUNT(*), COUNT(DISTINCT room),
    SUM(called_ms IS NULL AND admitted_ms IS NULL AND ended_ms IS NULL),
    SUM(admitted_ms IS NOT NULL AND ended_ms IS NULL)
FROM {entries.name}
"""
_COLUMNS = [column.name for column in entries.columns][1:]
_INDEXES = sorted(entries.indexes, key=lambda index: str(index.name), reverse=True)

#: The row of an event without its room: ms, kind, visitor, why, more (JSON).
EventRow = tuple[int, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Size:
    """A room and the number of its stays."""

    room: str
    stays: int
    #: 1 for the largest room, the hot one.
    rank: int


def sizes(total: int, rooms: int) -> list[Size]:
    """Divide `total` stays among rooms, the largest first."""
    weights = [rank**-_ZIPF for rank in range(1, rooms + 1)]
    whole = sum(weights)
    counts = [max(1, int(total * weight / whole)) for weight in weights]
    counts[0] += total - sum(counts)
    return [Size(f"room-{rank:04}", count, rank) for rank, count in enumerate(counts, 1)]


def make_stays(size: Size, now_ms: int) -> Iterator[Stay]:
    """Yield all stays of a room in the order in which they began, as of `now_ms`."""
    rng = random.Random(size.room)
    behind_ms = 0 if size.rank == 1 else rng.randrange(DAY_MS)
    queue = _Queue(rng, now_ms, gap_ms=_SERVED_MS / max(1, size.stays / DAYS * _RUSH))
    left = size.stays
    for day in range(DAYS, 0, -1):
        count = left // day
        left -= count
        ends_ms = now_ms - behind_ms - (day - 1) * DAY_MS
        ranges_ms = (_RUSH_MS if rng.random() < _RUSH else DAY_MS for _ in range(count))
        for joined_ms in sorted(ends_ms - 1 - rng.randrange(range_ms) for range_ms in ranges_ms):
            yield queue.join(joined_ms)


class _Queue:
    """A queue that calls a visitor every `gap_ms`, in order."""

    def __init__(self, rng: random.Random, now_ms: int, *, gap_ms: float) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self._gap_ms = gap_ms
        self._next_ms = 0.0
        self._order = 0
        self._calls: deque[int] = deque()

    def join(self, joined_ms: int) -> Stay:
        self._order = max(joined_ms * 1000, self._order + 1)
        visitor = base64.urlsafe_b64encode(self._rng.randbytes(16))[:22].decode()
        stay = Stay(visitor, queue_order=self._order, joined_ms=joined_ms, changed_ms=joined_ms)
        call_ms = int(max(joined_ms, self._next_ms))
        if call_ms == joined_ms:
            self._next_ms = joined_ms + self._gap_ms
            self._admit(stay, joined_ms)
        else:
            self._wait(stay, joined_ms, call_ms)
        return stay

    def _wait(self, stay: Stay, joined_ms: int, call_ms: int) -> None:
        while self._calls and self._calls[0] <= joined_ms:
            self._calls.popleft()
        stay.queued_ms = joined_ms
        stay.first_position = stay.last_position = len(self._calls) + 1
        leaves_ms = joined_ms + int(self._rng.expovariate(1 / _PATIENCE_MS)) + 1
        if self._rng.random() < _GIVES_UP and leaves_ms < call_ms:
            self._end(stay, leaves_ms, self._rng.choice(("left", "swept")))
            return
        self._calls.append(call_ms)
        self._next_ms = call_ms + self._gap_ms
        if call_ms > self._now_ms:
            return
        stay.called_ms = stay.changed_ms = call_ms
        stay.last_position = 1
        if self._rng.random() < _NO_SHOW:
            self._end(stay, call_ms + _CLAIM_MS, "no_show")
        elif (comes_ms := call_ms + self._rng.randrange(10_000)) <= self._now_ms:
            self._admit(stay, comes_ms)

    def _admit(self, stay: Stay, at_ms: int) -> None:
        stay.admitted_ms = stay.changed_ms = at_ms
        length_ms = int(self._rng.expovariate(1 / _SESSION_MS)) + 1000
        self._end(stay, at_ms + length_ms, self._rng.choices(_ENDS, _END_WEIGHTS)[0])

    def _end(self, stay: Stay, at_ms: int, reason: str) -> None:
        if at_ms <= self._now_ms:
            stay.ended_ms = stay.changed_ms = at_ms
            stay.end_reason = reason


def events_of(stay: Stay) -> Iterator[EventRow]:
    """Yield the events that lead to a stay."""
    joined = {"order": str(stay.queue_order), "joined": str(stay.joined_ms)}
    if stay.queued_ms is not None:
        more = {**joined, "position": str(stay.first_position)}
        yield stay.queued_ms, "joined", stay.visitor, "new", _json(more)
    if stay.called_ms is not None:
        yield stay.called_ms, "called", stay.visitor, "head", _json({"position": "1"})
    if stay.admitted_ms is not None:
        why, more = ("claimed", {}) if stay.queued_ms is not None else ("at_once", joined)
        yield stay.admitted_ms, "admitted", stay.visitor, why, _json(more)
    if (reason := stay.end_reason) is not None and stay.ended_ms is not None:
        ends = {"left": "left", "finished": "released"}
        kind, why = (ends[reason], "") if reason in ends else ("expired", reason)
        yield stay.ended_ms, kind, stay.visitor, why, "{}"


def _json(more: dict[str, str]) -> str:
    return json.dumps(more, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """The numbers of loaded rows."""

    seconds: float
    stays: int
    rooms: int
    waiting: int
    inside: int
    events: int


def load(server: Mariadb, rooms: list[Size], *, now_ms: int, with_events: float) -> Loaded:
    """Load all stays, and the events of the latest stays of each room, a share `with_events` of
    all."""
    start_s = time.monotonic()
    query(
        server, f"ALTER TABLE {entries.name} {', '.join(f'DROP INDEX {i.name}' for i in _INDEXES)}"
    )
    loader = _Loader(server)
    for size in rooms:
        first_event = size.stays - max(_LATEST, int(with_events * size.stays))
        stays, start = make_stays(size, now_ms), 0
        while chunk := list(islice(stays, CHUNK)):
            recent = chunk[max(0, first_event - start) :]
            loader.add(entries.name, _format_entries(size.room, chunk))
            loader.add(events.name, _format_events(size.room, recent, start))
            start += len(chunk)
    loader.finish()
    # Indexes that are built from all rows at once take a third of the time.
    adding = (f"ADD INDEX {i.name} ({', '.join(i.columns.keys())})" for i in _INDEXES)
    query(server, f"ALTER TABLE {entries.name} {', '.join(adding)}")
    seconds = time.monotonic() - start_s
    # A server that was filled more slowly would have counted its rows by itself.
    query(server, f"ANALYZE TABLE {entries.name}, {events.name}")
    counts = query(server, _COUNTS) + query(server, f"SELECT COUNT(*) FROM {events.name}")
    return Loaded(seconds, *map(int, counts))


def pick_visitors(server: Mariadb, room: str, number: int) -> list[str]:
    """Return random visitors of a room: by turns one of any age, and one of the latest, who have
    events."""
    wanted = f"WHERE room = '{room}' ORDER BY RAND(1) LIMIT {number // 2}"
    picked = [
        query(server, f"SELECT DISTINCT visitor FROM {table.name} {wanted}")
        for table in (entries, events)
    ]
    return [visitor for pair in zip(*picked, strict=False) for visitor in pair]


def query(server: Mariadb, statement: str) -> list[str]:
    """Run a statement. Return all values of its result."""
    command = [*server.client, "--skip-column-names", "history", "-e", statement]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


def _format_entries(room: str, chunk: list[Stay]) -> list[str]:
    read_values = attrgetter(*_COLUMNS)
    return [
        room + "\t" + "\t".join(["\\N" if v is None else str(v) for v in read_values(stay)])
        for stay in sorted(chunk, key=attrgetter("visitor"))
    ]


def _format_events(room: str, chunk: list[Stay], start: int) -> list[str]:
    """Return rows of events. `seq` is unique, because a stay has fewer than eight events."""
    rows = sorted(row for stay in chunk for row in events_of(stay))
    return [
        f"{room}\t{ms}\t{seq}\t{kind}\t{visitor}\t{why}\t{ms}\t{more}"
        for seq, (ms, kind, visitor, why, more) in enumerate(rows, 8 * start)
    ]


class _Loader:
    """Collects rows, and lets the client load some while the next are made."""

    def __init__(self, server: Mariadb) -> None:
        self._client = [*server.client, "--local-infile=1", "history", "-e"]
        self._lines: dict[str, list[str]] = {}
        self._loading: subprocess.Popen[str] | None = None

    def add(self, table: str, lines: Iterable[str]) -> None:
        waiting = self._lines.setdefault(table, [])
        waiting.extend(lines)
        if len(waiting) >= CHUNK:
            self._load(table)

    def finish(self) -> None:
        for table in self._lines:
            self._load(table)
        self._wait()

    def _load(self, table: str) -> None:
        self._wait()
        load = f"LOAD DATA LOCAL INFILE '/dev/stdin' INTO TABLE {table} FIELDS ESCAPED BY '\\\\'"
        self._loading = subprocess.Popen([*self._client, load], stdin=subprocess.PIPE, text=True)
        assert self._loading.stdin is not None
        with self._loading.stdin as rows:
            rows.writelines(f"{line}\n" for line in self._lines[table])
        self._lines[table] = []

    def _wait(self) -> None:
        if self._loading and self._loading.wait() != 0:
            raise RuntimeError("rows could not be loaded: see above")
