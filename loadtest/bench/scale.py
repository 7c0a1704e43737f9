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
from itertools import cycle
from typing import Any

from matplotlib.figure import Figure
from redis.asyncio import Redis

from loadtest.redis_server import (
    NOW_MS,
    Server,
    by_thousand,
    fill_line,
    fill_sessions,
    redis_server,
)
from loadtest.report import OLD, OURS, PLAIN, new_figure, table
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.model import Standing, Ticket
from sidecar.visitors.tokens import new_visitor

BATCH = 64
CAP = 1_000
RAISE = 10_000
#: Number of scripts of one visitor each that are sent at a time, each by another replica.
ALONE = 32

POLLS, JOINS = f"poll, {BATCH} a batch", f"join, full room, {BATCH} a batch"


class Now:
    """Redis' time, which the measurement sets."""

    ms = NOW_MS

    def __call__(self) -> int:
        return self.ms


def room_store(redis: Redis, room: str, now: Now, **settings: Any) -> RoomStore:
    checked = RoomSettings.model_validate({"total_active_users": CAP, **settings})
    return RoomStore(
        redis, room, settings=checked.for_scripts(), clock=StoreClock(), now_ms=now, timeout_s=60
    )


def replicas(redis: Redis, room: str, now: Now, **settings: Any) -> list[RoomStore]:
    """Create the stores that send scripts at the same time."""
    return [room_store(redis, room, now, **settings) for _ in range(ALONE)]


async def beats(stores: Sequence[RoomStore], tickets: Sequence[Ticket]) -> list[Standing]:
    """Poll with all tickets. The tickets of a store are a batch."""
    asked = zip(cycle(stores), tickets, strict=False)
    return await asyncio.gather(*(store.beat(ticket) for store, ticket in asked))


async def enters(stores: Sequence[RoomStore], number: int) -> list[Standing]:
    asked = zip(cycle(stores), range(number), strict=False)
    return await asyncio.gather(*(store.enter(new_visitor()) for store, _ in asked))


async def measure_size(number: int, *, polls: int) -> dict[str, Any]:
    """Measure a room in which `number` visitors wait."""
    now = Now()
    async with redis_server() as server:
        stores = replicas(server.redis, "scale", now)
        store = stores[0]
        await fill_sessions(server.redis, "scale", CAP)
        before = await server.used_memory()
        line = await fill_line(server.redis, "scale", number)
        taken = await server.used_memory() - before
        memory = {name: await server.size("scale", name) for name in ("waiting", "due", "events")}
        memory["stats"] = await server.size("scale", "stats")
        await _poll(server, stores, now, line, polls)
        await _join(server, stores, replicas(server.redis, "open", now, total_active_users=10**6))
        async with server.cost("snapshot") as meter:
            for _ in range(20):
                await meter.script(store.snapshot())
        swept = await _sweep(server, store, now, line, number // 10)
        await _raise_cap(server, store)
        return {
            "waiting": number,
            "bytes_each": taken / number,
            "bytes": memory,
            "polls_bytes_each": await _polls_bytes(server, line) / number,
            "swept": swept,
            "scripts": {name: cost.as_dict() for name, cost in server.costs.items()},
        }


async def _poll(
    server: Server,
    stores: Sequence[RoomStore],
    now: Now,
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
                now.ms = max(now.ms, some[-1][0])
                standings = await meter.script(
                    beats(asked, [ticket for _, _, ticket in some]),
                    visitors=together,
                    scripts=len(asked),
                )
                for (_, i, ticket), standing in zip(some, standings, strict=True):
                    heapq.heappush(entries, (now.ms + standing.refresh_ms, i, ticket))
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
    server: Server, store: RoomStore, now: Now, line: list[tuple[int, Ticket]], number: int
) -> int:
    """Make `number` random visitors silent, and sweep them."""
    silent = [ticket.visitor for _, ticket in random.sample(line, number)]
    due = room_key("scale", "due")
    for some in by_thousand(silent):
        await server.redis.zadd(due, dict.fromkeys(some, now.ms - 300_000), xx=True)
    removed, more = 0, True
    async with server.cost("sweep") as meter:
        while more:
            swept = await meter.script(store.sweep())
            removed, more = removed + swept.waiting, swept.more
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


def measure(quick: bool) -> dict[str, Any]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    polls = 4_000 if quick else 20_000
    return {"sizes": [asyncio.run(measure_size(size, polls=polls)) for size in sizes]}


# The report ---------------------------------------------------------------------------------------

_BEYOND_CACHES = (
    "A queue of a million takes a quarter of a GB, which no processor's cache holds: each step to "
    "a visitor's entry waits for memory. The script sends the same commands as at 1,000. A queue "
    "in parts, of which the one at the head stays in the caches, would reach it; a position would "
    "then be a sum over the parts."
)

#: The targets of a room in which a million wait.
TARGET_WAITING = 1_000_000
POLL_US, VISITOR_BYTES, SCRIPT_MS = 18.0, 300.0, 5.0


def reached(result: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Return name, measured value for the largest queue, and limit of each target."""
    size = result["sizes"][-1]
    longest = max(script["longest_cpu_ms"] for script in size["scripts"].values())
    return [
        ("µs of Redis CPU a poll", size["scripts"][POLLS]["cpu_us_each"], POLL_US),
        ("bytes a visitor", size["bytes_each"], VISITOR_BYTES),
        ("ms of CPU for the longest script", longest, SCRIPT_MS),
    ]


_ALONE = (
    "One Redis; the scripts are sent together, as busy replicas send them: 32 of one visitor each, "
    "or one of 64. CPU is all that Redis's main thread took, its reading and writing included; a "
    "script's own time is by the clock of Redis (`INFO commandstats`), so another program on the "
    "machine can lengthen it. One script that comes when Redis has been idle for some milliseconds "
    "takes about twice as long, because the processor's caches hold other things by then."
)


def section(result: dict[str, Any]) -> str:
    sizes = result["sizes"]
    header = ["", *(f"{size['waiting']:,} waiting" for size in sizes)]
    rows = [
        ["bytes a visitor", *(f"{size['bytes_each']:.0f}" for size in sizes)],
        ["…in `waiting`", *(_bytes_in(size, "waiting") for size in sizes)],
        ["…in `due`", *(_bytes_in(size, "due") for size in sizes)],
        ["…in `events` (100,000 are kept)", *(_bytes_in(size, "events") for size in sizes)],
        ["bytes in `stats`, in all", *(f"{size['bytes']['stats']:,}" for size in sizes)],
        [
            "bytes in `polls` of one who polls early",
            *(f"{s['polls_bytes_each']:.0f}" for s in sizes),
        ],
    ]
    for name, first in sizes[0]["scripts"].items():
        each = bool(first["visitors"])
        label = f"{name}: µs of CPU for each" if each else f"{name}: µs of CPU"
        rows.append([label, *(_each(size["scripts"][name], "cpu_us") for size in sizes)])
        own = (_each(size["scripts"][name], "script_us") for size in sizes)
        rows.append(["…in the script itself", *own])
        rows.append([
            f"{name}: longest script, ms of CPU (by the clock)",
            *(_longest(size["scripts"][name]) for size in sizes),
        ])  # fmt: skip
    for name, label in (("sweep", "a sweep of a tenth"), ("raised cap", "a cap raised by 10,000")):
        rows.append([f"{label}: ms of CPU in all", *(_total(s["scripts"][name]) for s in sizes)])
        rows.append([f"{label}: scripts", *(str(s["scripts"][name]["scripts"]) for s in sizes)])
    lines = ["## A long line", "", "![Redis's CPU for a poll, by how many wait](scale.svg)", ""]
    lines += [
        table(header, rows),
        "",
        _ALONE,
        "",
        f"Asked of {TARGET_WAITING:,} waiting; measured with {sizes[-1]['waiting']:,}:",
        "",
    ]
    for what, measured, most in reached(result):
        verdict = "reached" if measured <= most else "**not reached**"
        lines.append(f"* {measured:.1f} {what}, {most:g} at most: {verdict}")
    if any(measured > most for _, measured, most in reached(result)):
        lines += ["", _BEYOND_CACHES]
    return "\n".join(lines) + "\n"


def draw(result: dict[str, Any]) -> Figure:
    """Draw Redis's CPU for a poll and for a join into a full room, by how many wait."""
    figure = new_figure()
    axes = figure.subplots()
    waiting = [size["waiting"] for size in result["sizes"]]
    for name, colour in ((POLLS, OURS), (JOINS, PLAIN)):
        costs = [size["scripts"][name]["cpu_us_each"] for size in result["sizes"]]
        axes.plot(waiting, costs, color=colour, marker="o", label=name)
    axes.axhline(POLL_US, color=OLD, linestyle="--", label="the target for a poll")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("visitors waiting in the room")
    axes.set_ylabel("Redis CPU each, µs")
    axes.legend()
    return figure


def _bytes_in(size: dict[str, Any], key: str) -> str:
    return f"{size['bytes'][key] / size['waiting']:.0f}"


def _each(script: dict[str, Any], name: str) -> str:
    return f"{script[name] / (script['visitors'] or script['scripts']):.1f}"


def _longest(script: dict[str, Any]) -> str:
    return f"{script['longest_cpu_ms']:.1f} ({script['longest_ms']:.1f})"


def _total(script: dict[str, Any]) -> str:
    return f"{script['cpu_us'] / 1000:.1f}"
