"""How long look-ups take, through Waitroom's own code, and how the database goes about them."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import event

from loadtest.bench.scale import fill_line, fill_sessions, redis_server
from sidecar.core.history import places
from sidecar.core.lookups import EVENTS_LIMIT, tell_visitor
from sidecar.store import sql
from sidecar.store.history import History
from sidecar.store.lists import Lists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    Ask = Callable[[History, str, str], Awaitable[Any]]

PARTITIONS = 128


@dataclass(frozen=True, slots=True)
class Sample:
    """Visitors of one room to look up."""

    room: str
    #: hot, middling or small.
    title: str
    stays: int
    visitors: Sequence[str]


@dataclass(frozen=True, slots=True)
class Times:
    """Of look-ups of one kind, ms."""

    number: int
    first: float
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
    return entry and places(entry, await history.ahead_of(room, entry))


#: What is looked up, in the words of the report.
KINDS: dict[str, Ask] = {
    "in the queue? (stay)": _stay,
    "history (events)": _events,
    "place over time": _place,
    "all three": tell_visitor,
}


@asynccontextmanager
async def open_history(url: str) -> AsyncIterator[History]:
    history = History(sql.open_database(url), partitions=PARTITIONS)
    try:
        yield history
    finally:
        await history.close()


async def measure(
    history: History, samples: Sequence[Sample], *, first: int = 0, kinds: Sequence[str] = ()
) -> dict[str, dict[str, list[float]]]:
    """ms of every look-up, by kind and room: one room after the other, each kind in turn."""
    chosen = list(kinds or KINDS)
    chosen = chosen[first % len(chosen) :] + chosen[: first % len(chosen)]
    taken: dict[str, dict[str, list[float]]] = {kind: {s.title: [] for s in samples} for kind in KINDS}
    for i in range(max(len(sample.visitors) for sample in samples)):
        for kind in chosen:
            for sample in samples:
                visitor = sample.visitors[i % len(sample.visitors)]
                began = time.perf_counter()
                found = await KINDS[kind](history, sample.room, visitor)
                taken[kind][sample.title].append(1000 * (time.perf_counter() - began))
                if found is None:
                    raise RuntimeError(f"{visitor} is not found in {sample.room}")
    return {kind: rooms for kind, rooms in taken.items() if kind in chosen}


def add(
    to: dict[str, dict[str, list[float]]], more: dict[str, dict[str, list[float]]]
) -> dict[str, dict[str, list[float]]]:
    for kind, rooms in more.items():
        for title, values in rooms.items():
            to.setdefault(kind, {}).setdefault(title, []).extend(values)
    return to


def times(values: Sequence[float]) -> Times:
    ranked = sorted(values)

    def at(share: float) -> float:
        return ranked[max(0, math.ceil(share * len(ranked)) - 1)]

    return Times(len(ranked), values[0], at(0.5), at(0.9), at(0.99), ranked[-1])


def all_times(taken: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Times]]:
    return {kind: {t: times(v) for t, v in rooms.items()} for kind, rooms in taken.items()}


# What the database says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What EXPLAIN says of one statement, as it was sent."""

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
    """Of each statement that each look-up of a visitor sends."""
    plans = []
    for name, ask in KINDS.items():
        if ask is tell_visitor:
            continue  # the others' statements once more
        for statement, parameters in await _sent(history, sample, ask):
            if any(plan.statement == statement for plan in plans):
                continue
            async with sql.begin(history._engine) as connection:  # noqa: SLF001 - to ask what it asks
                told = await connection.exec_driver_sql(f"EXPLAIN PARTITIONS {statement}", parameters)
                row = told.mappings().one()
            plans.append(
                Plan(name, statement, list(parameters), str(row["partitions"]), str(row["key"]),
                     str(row["type"]), int(row["rows"]))
            )  # fmt: skip
    return plans


async def _sent(history: History, sample: Sample, ask: Ask) -> list[tuple[str, Any]]:
    """The SELECTs, as the driver gets them."""
    sent: list[tuple[str, Any]] = []
    engine = history._engine.sync_engine  # noqa: SLF001

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    try:
        await ask(history, sample.room, sample.visitors[0])
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sent


# The live answer ---------------------------------------------------------------------------------


async def measure_live(waiting: int, number: int) -> list[float]:
    """ms of asking the store where somebody is, in a room where so many wait."""
    taken = []
    async with redis_server() as server:
        await fill_sessions(server.redis, "hot", 1000)
        line = await fill_line(server.redis, "hot", waiting)
        lists = Lists(server.redis, "hot", timeout_s=5)
        for i in range(number):
            visitor = line[i * 7919 % len(line)][1].visitor
            began = time.perf_counter()
            found = await lists.find(visitor)
            taken.append(1000 * (time.perf_counter() - began))
            if found.position is None:
                raise RuntimeError(f"{visitor} is not in line")
            await asyncio.sleep(0)
    return taken
