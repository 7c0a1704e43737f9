"""Loads generated stays into MariaDB."""

import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

from loadtest.history.stays import Size, events_of, make_stays
from sidecar.history.model import Stay
from sidecar.history.store.tables import entries, events
from tests.support.databases import Mariadb

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
