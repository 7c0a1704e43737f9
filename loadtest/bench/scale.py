"""The cost of scripts in Redis while a thousand to a million visitors wait in a room.

Costs are CPU time of Redis, which other programs do not affect. The time inside of scripts and the
longest script are wall-clock times. The queue is written without scripts, with the same keys that
real joins leave (`tests/loadtest/test_scale.py` compares them). Then visitors poll when they are
due, 64 in a batch, or 32 at a time in a script each. Single scripts with pauses find the caches of
the processor cold, and take twice as long.
"""

import asyncio
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from matplotlib.figure import Figure
from redis.asyncio import Redis

from loadtest import redis_server
from loadtest.redis_server import Cost, Server, by_thousand, fill_line, fill_sessions, room_store
from loadtest.report import OLD, OURS, PLAIN, Target, new_figure, render
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.model import Standing, Ticket
from sidecar.visitors.tokens import new_visitor
from tests.support.rooms import RedisTime

BATCH = 64
CAP = 1_000
RAISE = 10_000
#: Number of scripts of one visitor each that are sent at a time, each by another replica.
ALONE = 32

POLLS, JOINS = f"poll, {BATCH} a batch", f"join, full room, {BATCH} a batch"


def replicas(redis: Redis, room: str, now: RedisTime, cap: int = CAP) -> list[RoomStore]:
    """Create the stores that send scripts at the same time."""
    settings = RoomSettings(total_active_users=cap)
    return [room_store(redis, room, settings, now_ms=now) for _ in range(ALONE)]


async def beats(stores: Sequence[RoomStore], tickets: Sequence[Ticket]) -> list[Standing]:
    """Poll with all tickets. The tickets of a store are a batch."""
    asked = zip(cycle(stores), tickets, strict=False)
    return await asyncio.gather(*(store.beat(ticket) for store, ticket in asked))


async def enters(stores: Sequence[RoomStore], number: int) -> list[Standing]:
    asked = zip(cycle(stores), range(number), strict=False)
    return await asyncio.gather(*(store.enter(new_visitor()) for store, _ in asked))


@dataclass(frozen=True, slots=True)
class Size:
    """The costs of a room in which so many wait. Bytes are for each visitor."""

    waiting: int
    bytes_each: float
    waiting_bytes_each: float
    due_bytes_each: float
    events_bytes_each: float
    polls_bytes_each: float
    #: In all.
    stats_bytes: int
    swept: int
    scripts: dict[str, Cost]


async def measure_size(number: int, *, polls: int) -> Size:
    """Measure a room in which `number` visitors wait."""
    now = RedisTime(redis_server.NOW_MS)
    async with redis_server.start() as server:
        stores = replicas(server.redis, "scale", now)
        store = stores[0]
        await fill_sessions(server.redis, "scale", CAP)
        before = await server.used_memory()
        line = await fill_line(server.redis, "scale", number)
        taken = await server.used_memory() - before
        keys = ("waiting", "due", "events")
        each = {f"{key}_bytes_each": await server.size("scale", key) / number for key in keys}
        stats_bytes = await server.size("scale", "stats")
        await _poll(server, stores, now, line, polls)
        await _join(server, stores, replicas(server.redis, "open", now, 10**6))
        async with server.cost("snapshot") as meter:
            for _ in range(20):
                await meter.script(store.snapshot())
        swept = await _sweep(server, store, now, line, number // 10)
        await _raise_cap(server, store)
        return Size(
            number, taken / number, **each, stats_bytes=stats_bytes, swept=swept,
            polls_bytes_each=await _polls_bytes(server, line) / number, scripts=server.costs,
        )  # fmt: skip


async def _poll(
    server: Server,
    stores: Sequence[RoomStore],
    now: RedisTime,
    line: list[tuple[int, Ticket]],
    polls: int,
) -> None:
    """Let visitors poll when they are due. `line` has the next poll of each."""
    line.sort(key=lambda place: place[0])
    entries = [(due, i, ticket) for i, (due, ticket) in enumerate(line)]
    for size, number in ((BATCH, polls), (1, polls // 10)):
        asked, together = _choose_stores(stores, size)
        async with server.cost(f"poll, {size} a batch") as meter:
            for _ in range(number // together):
                some = [heapq.heappop(entries) for _ in range(together)]
                now.now_ms = max(now.now_ms, some[-1][0])
                standings = await meter.script(
                    beats(asked, [ticket for _, _, ticket in some]),
                    visitors=together,
                    scripts=len(asked),
                )
                for (_, i, ticket), standing in zip(some, standings, strict=True):
                    heapq.heappush(entries, (now.now_ms + standing.refresh_ms, i, ticket))
    line[:] = [(due, ticket) for due, _, ticket in entries]


async def _join(server: Server, full: Sequence[RoomStore], empty: Sequence[RoomStore]) -> None:
    for room, stores in (("full", full), ("open", empty)):
        for size, number in ((BATCH, 20 * BATCH), (1, 7 * ALONE)):
            asked, together = _choose_stores(stores, size)
            async with server.cost(f"join, {room} room, {size} a batch") as meter:
                for _ in range(number // together):
                    await meter.script(
                        enters(asked, together), visitors=together, scripts=len(asked)
                    )


def _choose_stores(stores: Sequence[RoomStore], size: int) -> tuple[Sequence[RoomStore], int]:
    """Return the stores that send scripts of this size, and the number of visitors in all."""
    return (stores, len(stores)) if size == 1 else (stores[:1], size)


async def _sweep(
    server: Server, store: RoomStore, now: RedisTime, line: list[tuple[int, Ticket]], number: int
) -> int:
    """Make `number` random visitors silent, and sweep them."""
    silent = [ticket.visitor for _, ticket in random.sample(line, number)]
    due = room_key("scale", "due")
    for some in by_thousand(silent):
        await server.redis.zadd(due, dict.fromkeys(some, now.now_ms - 300_000), xx=True)
    removed, more = 0, True
    async with server.cost("sweep") as meter:
        while more:
            swept = await meter.script(store.sweep())
            removed, more = removed + swept.waiting, swept.has_more
            meter.cost.visitors += swept.waiting
    return removed


async def _raise_cap(server: Server, store: RoomStore) -> None:
    before = (await store.snapshot()).waiting
    async with server.cost("raised cap") as meter:
        await meter.script(store.configure({"total_active_users": CAP + RAISE}))
        left = max(0, before - RAISE)
        while (await meter.script(store.snapshot())).waiting > left:
            pass
        meter.cost.visitors = before - left


async def _polls_bytes(server: Server, line: list[tuple[int, Ticket]]) -> int:
    """Return the size of the key `polls` if all visitors polled too early within a minute."""
    key = room_key("scale", "polls")
    for some in by_thousand(line):
        await server.redis.hset(key, mapping={ticket.visitor: "1" for _, ticket in some})
    size = await server.size("scale", "polls")
    await server.redis.unlink(key)
    return size


def measure(quick: bool) -> list[Size]:
    numbers = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    polls = 4_000 if quick else 20_000
    return [asyncio.run(measure_size(number, polls=polls)) for number in numbers]


#: The targets of a room in which a million wait.
TARGET_WAITING = 1_000_000
POLL_US, VISITOR_BYTES, SCRIPT_MS = 18.0, 300.0, 5.0


def section(sizes: Sequence[Size]) -> str:
    """Return the section of the report. The targets are judged by the largest queue."""
    scripts = sizes[-1].scripts
    longest_ms = max(script.longest_cpu_ms for script in scripts.values())
    measured = [
        ("µs of Redis CPU a poll", scripts[POLLS].cpu_us_each, POLL_US),
        ("bytes a visitor", sizes[-1].bytes_each, VISITOR_BYTES),
        ("ms of CPU for the longest script", longest_ms, SCRIPT_MS),
    ]
    targets = [
        Target(what, f"{most:g} at most", value <= most, f"{value:.1f}")
        for what, value, most in measured
    ]
    labels = [f"{size.waiting:,} waiting" for size in sizes]
    return render("scale", sizes=sizes, labels=labels, targets=targets, asked=TARGET_WAITING)


def draw(sizes: Sequence[Size]) -> Figure:
    """Draw Redis's CPU for a poll and for a join into a full room, by how many wait."""
    figure = new_figure()
    axes = figure.subplots()
    waiting = [size.waiting for size in sizes]
    for name, colour in ((POLLS, OURS), (JOINS, PLAIN)):
        costs = [size.scripts[name].cpu_us_each for size in sizes]
        axes.plot(waiting, costs, color=colour, marker="o", label=name)
    axes.axhline(POLL_US, color=OLD, linestyle="--", label="the target for a poll")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("visitors waiting in the room")
    axes.set_ylabel("Redis CPU each, µs")
    axes.legend()
    return figure
