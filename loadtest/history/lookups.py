"""How long look-ups take through Waitroom's own code, and how the database executes them."""

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event

from sidecar.history.lookups import AHEAD_LIMIT, EVENTS_LIMIT, find_visitor
from sidecar.history.service import positions
from sidecar.history.store.stays import History
from sidecar.storage.sql import database as sql

Ask = Callable[[History, str, str], Awaitable[Any]]
#: Durations of look-ups in ms, by kind and room.
Taken = dict[str, dict[str, list[float]]]


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


async def _stay(history: History, room: str, visitor: str) -> Any:
    return await history.entry(room, visitor)


async def _events(history: History, room: str, visitor: str) -> Any:
    return await history.events_of(room, visitor, limit=EVENTS_LIMIT)


async def _place(history: History, room: str, visitor: str) -> Any:
    entry = await history.entry(room, visitor)
    ahead = entry and await history.ahead_of(room, entry, limit=AHEAD_LIMIT)
    return entry and positions(entry, ahead or [])


#: How many visitors' look-ups are explained: the statements for those who still wait differ.
_EXPLAINED = 40

#: What is looked up, by its title in the report.
KINDS: dict[str, Ask] = {
    "in the queue? (stay)": _stay,
    "history (events)": _events,
    "place over time": _place,
    "all three": find_visitor,
}


@asynccontextmanager
async def open_history(url: str, partitions: int = 1) -> AsyncIterator[History]:
    """Open a history; `migrate` would create this number of partitions."""
    history = History(sql.open_database(url), partitions=partitions)
    try:
        yield history
    finally:
        await history.close()


async def look_up(
    history: History, samples: Sequence[Sample], *, begin: int = 0, number: int = 0
) -> Taken:
    """Look up `number` visitors of each room, or all. The kinds take turns, from `begin` on."""
    kinds = list(KINDS)
    kinds = kinds[begin % len(kinds) :] + kinds[: begin % len(kinds)]
    taken: Taken = {kind: {sample.title: [] for sample in samples} for kind in KINDS}
    for i in range(number or max(len(sample.visitors) for sample in samples)):
        for kind in kinds:
            for sample in samples:
                visitor = sample.visitors[i % len(sample.visitors)]
                began = time.perf_counter()
                found = await KINDS[kind](history, sample.room, visitor)
                taken[kind][sample.title].append(1000 * (time.perf_counter() - began))
                if found is None:
                    raise RuntimeError(f"{visitor} is not found in {sample.room}")
    return taken


async def read_all(history: History, samples: Sequence[Sample]) -> None:
    """Bring everything that will be looked up into memory."""
    for sample in samples:
        for visitor in sample.visitors:
            await find_visitor(history, sample.room, visitor)


def add(to: Taken, more: Taken) -> None:
    for kind, rooms in more.items():
        for title, values in rooms.items():
            to.setdefault(kind, {}).setdefault(title, []).extend(values)


def times(values: Sequence[float]) -> Times:
    ranked = sorted(values)

    def at(share: float) -> float:
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)]

    return Times(len(ranked), at(0.5), at(0.9), at(0.99), ranked[-1])


# What the database says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What EXPLAIN says about one statement."""

    lookup: str
    statement: str
    parameters: list[Any]
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
        for name, ask in KINDS.items():
            for statement, parameters in await _sent(history, sample.room, visitor, ask):
                if statement not in plans:
                    plans[statement] = await _explain(history, name, statement, parameters)
    return list(plans.values())


async def _explain(history: History, name: str, statement: str, parameters: Any) -> Plan:
    async with sql.begin(history._engine) as connection:  # noqa: SLF001 - to ask what it asks
        explained = await connection.exec_driver_sql(f"EXPLAIN PARTITIONS {statement}", parameters)
        row = explained.mappings().one()
    return Plan(
        name, statement, list(parameters), str(row["partitions"]), str(row["key"]),
        str(row["type"]), int(row["rows"]),
    )  # fmt: skip


async def _sent(history: History, room: str, visitor: str, ask: Ask) -> list[tuple[str, Any]]:
    """Return the SELECTs of a look-up, as the driver gets them."""
    sent: list[tuple[str, Any]] = []
    engine = history._engine.sync_engine  # noqa: SLF001

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        await ask(history, room, visitor)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sent
