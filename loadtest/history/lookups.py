"""Measures look-ups through Waitroom's own code, and explains how the database executes them."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event

from loadtest.report import percentile
from sidecar.history.lookups import AHEAD_LIMIT, EVENTS_LIMIT, find_visitor
from sidecar.history.stays import compute_positions
from sidecar.history.store.stays import History
from sidecar.storage.sql import database as sql

LookUp = Callable[[History, str, str], Awaitable[Any]]
#: Durations of look-ups in ms, by kind and by the title of the room.
Durations = dict[tuple[str, str], list[float]]


@dataclass(frozen=True, slots=True)
class Sample:
    """Visitors of one room who are looked up."""

    room: str
    #: "hot", "middling" or "small".
    title: str
    stays: int
    visitors: Sequence[str]


@dataclass(frozen=True, slots=True)
class Times:
    """Statistics of durations, ms."""

    number: int
    median: float
    p90: float
    p99: float
    most: float


async def _find_events(history: History, room: str, visitor: str) -> Any:
    return await history.find_events(room, visitor, limit=EVENTS_LIMIT)


async def _find_positions(history: History, room: str, visitor: str) -> Any:
    stay = await history.find_stay(room, visitor)
    ahead = stay and await history.find_waits_ahead(room, stay, limit=AHEAD_LIMIT)
    return stay and compute_positions(stay, ahead or [])


#: How many look-ups are explained. The statements for visitors who still wait differ.
_EXPLAINED = 40

#: The kinds of look-ups, by their titles in the report.
KINDS: dict[str, LookUp] = {
    "in the queue? (stay)": History.find_stay,
    "history (events)": _find_events,
    "place over time": _find_positions,
    "all three": find_visitor,
}


@asynccontextmanager
async def open_history(url: str, partitions: int = 1) -> AsyncIterator[History]:
    """Open a history. `migrate` would create this number of partitions."""
    history = History(sql.open_database(url), partitions=partitions)
    try:
        yield history
    finally:
        await history.close()


async def look_up(url: str, samples: Sequence[Sample], *, begin: int = 0, number: int) -> Durations:
    """Look up `number` visitors of each room, with each kind in turn, from kind `begin` on."""
    kinds = list(KINDS)
    kinds = kinds[begin % len(kinds) :] + kinds[: begin % len(kinds)]
    durations: Durations = {(kind, sample.title): [] for kind in KINDS for sample in samples}
    async with open_history(url) as history:
        for i in range(number):
            for kind in kinds:
                for sample in samples:
                    visitor = sample.visitors[i % len(sample.visitors)]
                    start_s = time.perf_counter()
                    result = await KINDS[kind](history, sample.room, visitor)
                    duration_ms = 1000 * (time.perf_counter() - start_s)
                    durations[kind, sample.title].append(duration_ms)
                    if result is None:
                        raise RuntimeError(f"{visitor} is not found in {sample.room}")
    return durations


def summarize(durations_ms: Sequence[float]) -> Times:
    """Return the statistics of durations, with percentiles by nearest rank."""
    return Times(len(durations_ms), *(percentile(durations_ms, p) for p in (0.5, 0.9, 0.99, 1)))


@dataclass(frozen=True, slots=True)
class Plan:
    """How the database executes one statement, by EXPLAIN."""

    lookup: str
    statement: str
    partitions: str
    key: str
    kind: str
    rows: int

    @property
    def is_one_partition(self) -> bool:
        return self.partitions.startswith("p") and "," not in self.partitions


async def explain(history: History, sample: Sample) -> list[Plan]:
    """Return the plan of each statement that the look-ups of some visitors send."""
    plans: dict[str, Plan] = {}
    for visitor in sample.visitors[:_EXPLAINED]:
        for name, look in KINDS.items():
            for statement, parameters in await _record_queries(history, sample.room, visitor, look):
                if statement not in plans:
                    plans[statement] = await _explain(history, name, statement, parameters)
    return list(plans.values())


async def _explain(history: History, name: str, statement: str, parameters: Any) -> Plan:
    async with sql.begin(history._engine) as connection:  # noqa: SLF001
        explained = await connection.exec_driver_sql(f"EXPLAIN PARTITIONS {statement}", parameters)
        row = explained.mappings().one()
    partitions, key, kind = (str(row[column]) for column in ("partitions", "key", "type"))
    return Plan(name, statement, partitions, key, kind, int(row["rows"]))


async def _record_queries(
    history: History, room: str, visitor: str, look: LookUp
) -> list[tuple[str, Any]]:
    """Return the SELECTs of a look-up with their parameters, as the driver gets them."""
    queries: list[tuple[str, Any]] = []
    engine = history._engine.sync_engine  # noqa: SLF001

    def record(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            queries.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    try:
        await look(history, room, visitor)
    finally:
        event.remove(engine, "before_cursor_execute", record)
    return queries
