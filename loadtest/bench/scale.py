"""What the scripts cost Redis while a thousand to a million visitors wait in one room.

Costs are Redis's own CPU time, which another program on the machine does not lengthen; the scripts'
own part and the longest script are by the clock. The queue is filled without the scripts, with the
keys that real joins leave behind (`tests/loadtest/test_scale.py` compares them). Then visitors poll
when the last reply told them to, 64 in a batch, or 32 at a time in a script each: single scripts
with pauses find the processor's caches cold, and take twice as long.
"""

import asyncio
import heapq
import random
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from redis.asyncio import Redis

from loadtest.redis_server import (
    NOW_MS,
    Server,
    by_thousand,
    fill_line,
    fill_sessions,
    redis_server,
)
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.model import Standing, Ticket
from sidecar.visitors.tokens import new_visitor

BATCH = 64
CAP = 1_000
RAISE = 10_000
#: How many scripts of one visitor each are sent at a time, each by another replica.
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
    """Return the stores that send scripts at the same time."""
    return [room_store(redis, room, now, **settings) for _ in range(ALONE)]


async def beats(stores: Sequence[RoomStore], tickets: Sequence[Ticket]) -> list[Standing]:
    """Poll; the tickets of one store are one batch."""
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
    """Let visitors poll when they are due; `line` has the next poll of each."""
    line.sort(key=lambda place: place[0])
    entries = [(due, i, ticket) for i, (due, ticket) in enumerate(line)]
    for size, number in ((BATCH, polls), (1, polls // 10)):
        asked, together = _asked(stores, size)
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
            asked, together = _asked(stores, size)
            async with server.cost(f"join, {room} room, {size} a batch") as meter:
                for _ in range(number // together):
                    await meter.script(
                        enters(asked, together), visitors=together, scripts=len(asked)
                    )


def _asked(stores: Sequence[RoomStore], size: int) -> tuple[Sequence[RoomStore], int]:
    """Return the stores that send scripts of that size, and the visitors in all of these."""
    return (stores, len(stores)) if size == 1 else (stores[:1], size)


async def _sweep(
    server: Server, store: RoomStore, now: Now, line: list[tuple[int, Ticket]], number: int
) -> int:
    """Sweep `number` silent visitors, anywhere in the queue."""
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
    """Return the size of the key in which everybody polled too early within a minute."""
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
