"""Loads generated stays into MariaDB."""

import random
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from pathlib import Path

from loadtest.history.stays import Size, events_of, make_stays
from sidecar.history.model import Stay
from sidecar.history.store.tables import entries, events
from tests.support.databases import Mariadb

#: How many stays are in one file: some 20 MB, one transaction.
CHUNK = 100_000
#: How many of a room's latest stays have events, at least.
_LATEST = 100
_COLUMNS = [column.name for column in entries.columns][1:]
_INDEXES = sorted(entries.indexes, key=lambda index: str(index.name), reverse=True)


@dataclass(slots=True)
class Loaded:
    """The numbers of loaded rows, and samples of visitors."""

    stays: int = 0
    events: int = 0
    rooms: int = 0
    seconds: float = 0
    waiting: int = 0
    inside: int = 0
    #: Visitors by room: of any age, and of the latest, who have events.
    some: dict[str, list[str]] = field(default_factory=dict)
    latest: dict[str, list[str]] = field(default_factory=dict)


def load(
    server: Mariadb, rooms: list[Size], *, now_ms: int, with_events: float, sample: dict[str, int]
) -> Loaded:
    """Load all stays, and the events of the latest stays of each room, a share `with_events` of
    all. `sample` says how many visitors of a room to return."""
    start_s, loaded = time.monotonic(), Loaded(rooms=len(rooms))
    _alter_entries(server, [f"DROP INDEX {index.name}" for index in _INDEXES])
    loader = _Loader(server)
    for size in rooms:
        first_event = size.stays - max(_LATEST, int(with_events * size.stays))
        picker = random.Random(size.rank)
        wanted = sample.get(size.room, 0)
        picked = set(picker.sample(range(size.stays), min(wanted, size.stays)))
        latest: list[str] = []
        stays, start = make_stays(size, now_ms), 0
        while chunk := list(islice(stays, CHUNK)):
            loader.add(entries.name, _format_entries(size.room, chunk))
            recent = chunk[max(0, first_event - start) :]
            lines = _format_events(size.room, recent, start)
            loaded.events += len(lines)
            loader.add(events.name, lines)
            loaded.stays += len(chunk)
            loaded.waiting += sum(e.called_ms is None is e.ended_ms is e.admitted_ms for e in chunk)
            loaded.inside += sum(e.ended_ms is None is not e.admitted_ms for e in chunk)
            if wanted:
                names = [e.visitor for i, e in enumerate(chunk, start) if i in picked]
                loaded.some.setdefault(size.room, []).extend(names)
                latest += (e.visitor for e in recent)
            start += len(chunk)
        if wanted:
            picker.shuffle(loaded.some[size.room])
            loaded.latest[size.room] = picker.sample(latest, min(wanted, len(latest)))
    loader.finish()
    # Indexes that are built from all rows at once take a third of the time.
    _alter_entries(
        server, [f"ADD INDEX {i.name} ({', '.join(i.columns.keys())})" for i in _INDEXES]
    )
    loaded.seconds = time.monotonic() - start_s
    return loaded


def _alter_entries(server: Mariadb, changes: list[str]) -> None:
    change = f"ALTER TABLE {entries.name} {', '.join(changes)}"
    subprocess.run([*server.client, "history", "-e", change], check=True)


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
    """Writes rows to files, and lets the client load one file while the next is written."""

    def __init__(self, server: Mariadb) -> None:
        self._client = [*server.client, "--local-infile=1", "history", "-e"]
        self._folder = server.folder
        self._lines: dict[str, list[str]] = {}
        self._loading: tuple[subprocess.Popen[bytes], Path] | None = None
        self._number = 0

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
        lines, self._lines[table] = self._lines[table], []
        self._number += 1
        file = self._folder / f"rows-{self._number}"
        file.write_text("\n".join(lines) + "\n" if lines else "")
        self._wait()
        load = f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {table} FIELDS ESCAPED BY '\\\\'"
        self._loading = subprocess.Popen([*self._client, load]), file

    def _wait(self) -> None:
        if self._loading:
            process, file = self._loading
            if process.wait() != 0:
                raise RuntimeError("rows could not be loaded: see above")
            file.unlink()
