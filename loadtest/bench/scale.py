"""What the scripts cost Redis while a thousand to a million visitors wait in one room.

Everything is counted in Redis's own CPU time, which another program on the machine does not
lengthen; the scripts' own part and the longest script are given by the clock, as Redis saw it. The
line is filled without the scripts, by the keys that real joins leave behind
(`tests/loadtest/test_scale.py` compares), and then polled as browsers poll it: each visitor when
the last reply said, 64 in a batch or 32 at a time in a script each. Sent one by one, with a client
at work in between, a script finds the processor's caches cold, and a short one takes twice as long.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio import Redis

from sidecar.kit.clock import StoreClock
from sidecar.kit.redis.connect import close, connect
from sidecar.kit.redis.scripts import library
from sidecar.queue.model import Standing, Ticket
from sidecar.queue.tokens import new_visitor
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from tests.support.processes import Process, wait_until

BATCH = 64
CAP = 1_000
RAISE = 10_000
#: Scripts of one visitor each that are sent at a time, each by another replica.
ALONE = 32

POLLS, JOINS = f"poll, {BATCH} a batch", f"join, full room, {BATCH} a batch"
_NOW_MS = 1_800_000_000_000
_EVENTS_KEPT = 100_000  # rooms/lua/parts/room.lua
_SLOW_US = 100

Reply = TypeVar("Reply")
Item = TypeVar("Item")


@dataclass
class Cost:
    """What the scripts of one kind took."""

    scripts: int = 0
    visitors: int = 0
    #: Redis's CPU time for all of them, replies and parsing included.
    cpu_us: float = 0
    #: Of that inside FCALL, by the clock (INFO commandstats).
    script_us: float = 0
    longest_cpu_ms: float = 0
    #: By the clock (SLOWLOG): another program that needs the processor lengthens it.
    longest_ms: float = 0

    def as_dict(self) -> dict[str, Any]:
        each = self.cpu_us / max(1, self.visitors)
        inside = self.script_us / max(1, self.visitors)
        return {**asdict(self), "cpu_us_each": each, "script_us_each": inside}


@dataclass
class Server:
    """A redis-server of the measurement's own."""

    redis: Redis
    pid: int
    costs: dict[str, Cost] = field(default_factory=dict)

    def cpu_ns(self) -> int:
        """Of its main thread, exact while it waits for the next command."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    @asynccontextmanager
    async def cost(self, name: str) -> AsyncIterator[Meter]:
        """The scripts that run within are put down under this name."""
        meter = Meter(self)
        await self.redis.slowlog_reset()
        before = await self._script_us()
        yield meter
        meter.cost.script_us = await self._script_us() - before
        meter.cost.longest_ms = max(
            (
                entry["duration"] / 1000
                for entry in await self.redis.slowlog_get(1_000_000)
                if entry["command"].startswith(b"FCALL")
            ),
            default=0,
        )
        self.costs[name] = meter.cost

    async def used_memory(self) -> int:
        """Without what the connections and the SLOWLOG hold."""
        await self.redis.slowlog_reset()
        info = await self.redis.info("memory")
        return int(info["used_memory"]) - int(info["mem_clients_normal"])

    async def size(self, room: str, name: str) -> int:
        return int(await self.redis.memory_usage(room_key(room, name), samples=0) or 0)

    async def _script_us(self) -> float:
        stats = await self.redis.info("commandstats")
        return float(stats.get("cmdstat_fcall", {"usec": 0})["usec"])


class Meter:
    """Runs scripts one after the other, and adds up."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cost = Cost()

    async def script(
        self, reply: Awaitable[Reply], *, visitors: int = 0, scripts: int = 1
    ) -> Reply:
        """The reply of a script, or of some that were sent together."""
        before = self._server.cpu_ns()
        answer = await reply
        cpu_us = (self._server.cpu_ns() - before) / 1000
        self.cost.scripts += scripts
        self.cost.visitors += visitors
        self.cost.cpu_us += cpu_us
        self.cost.longest_cpu_ms = max(self.cost.longest_cpu_ms, cpu_us / scripts / 1000)
        return answer


class Now:
    """The store's time, turned by the measurement."""

    ms = _NOW_MS

    def __call__(self) -> int:
        return self.ms


@asynccontextmanager
async def redis_server() -> AsyncIterator[Server]:
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("redis-server is not installed; run make install")
    with tempfile.TemporaryDirectory(prefix="waitroom-scale-") as folder:
        socket = Path(folder) / "redis.sock"
        command = [
            binary, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder,
            "--slowlog-log-slower-than", str(_SLOW_US), "--slowlog-max-len", "100000",
        ]  # fmt: skip
        with Process(command, log=Path(folder) / "redis.log") as process:
            await asyncio.to_thread(wait_until, socket.exists, "redis-server's socket")
            redis = connect(f"unix://{socket}", timeout_s=60)
            assert isinstance(redis, Redis)  # which a socket's always is
            await redis.function_load(library("rooms").text)
            yield Server(redis, process.pid)
            await close(redis)


def room_store(redis: Redis, room: str, now: Now, **settings: Any) -> RoomStore:
    checked = RoomSettings.model_validate({"total_active_users": CAP, **settings})
    return RoomStore(
        redis, room, settings=checked.for_scripts(), clock=StoreClock(), now_ms=now, timeout_s=60
    )


async def fill_sessions(redis: Redis, room: str, number: int) -> None:
    """So many are inside, and stay."""
    visitors = [new_visitor() for _ in range(number)]
    ends = _NOW_MS + 7 * 86_400_000
    await redis.zadd(room_key(room, "active"), dict.fromkeys(visitors, ends))
    await redis.zadd(room_key(room, "admitted"), dict.fromkeys(visitors, _NOW_MS))


async def fill_line(redis: Redis, room: str, number: int) -> list[tuple[int, Ticket]]:
    """So many wait who came in the last ten minutes, and when each polls next: within a
    minute. What joins and polls leave behind, without the scripts."""
    first = (_NOW_MS - 600_000) * 1000
    tickets = [
        Ticket(new_visitor(), first + i * 600_000_000 // number, _NOW_MS, 0) for i in range(number)
    ]
    dues = [_NOW_MS + random.randrange(60_000) for _ in tickets]
    for some in _by_thousand(list(zip(tickets, dues, strict=True))):
        pipe = redis.pipeline(transaction=False)
        pipe.zadd(room_key(room, "waiting"), {t.visitor: t.order for t, _ in some})
        pipe.zadd(room_key(room, "due"), {t.visitor: due for t, due in some})
        await pipe.execute()
    kept = list(enumerate(tickets, start=1))[-_EVENTS_KEPT:]
    for numbered in _by_thousand(kept):
        pipe = redis.pipeline(transaction=False)
        for position, ticket in numbered:
            event: dict[Any, Any] = {"kind": "joined", "visitor": ticket.visitor, "why": "new"}
            event |= {"at": ticket.order // 1000, "order": ticket.order, "position": position}
            pipe.xadd(room_key(room, "events"), event, maxlen=_EVENTS_KEPT)
        await pipe.execute()
    counters: dict[Any, Any] = {
        "last_order": tickets[-1].order,
        "joined": number,
        "measured_at": _NOW_MS,
    }
    await redis.hset(room_key(room, "stats"), mapping=counters)
    return list(zip(dues, tickets, strict=True))


def replicas(redis: Redis, room: str, now: Now, **settings: Any) -> list[RoomStore]:
    """As many as send a script at a time."""
    return [room_store(redis, room, now, **settings) for _ in range(ALONE)]


async def beats(stores: Sequence[RoomStore], tickets: Sequence[Ticket]) -> list[Standing]:
    """Those of one replica are one batch."""
    asked = zip(cycle(stores), tickets, strict=False)
    return await asyncio.gather(*(store.beat(ticket) for store, ticket in asked))


async def enters(stores: Sequence[RoomStore], number: int) -> list[Standing]:
    asked = zip(cycle(stores), range(number), strict=False)
    return await asyncio.gather(*(store.enter(new_visitor()) for store, _ in asked))


async def measure_size(number: int, *, polls: int) -> dict[str, Any]:
    """Everything about a room in which so many wait."""
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
    """Each when it is due; `line` is a heap by the time of the next poll."""
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
    """Who sends scripts of that size at a time, and of how many visitors they are together."""
    return (stores, len(stores)) if size == 1 else (stores[:1], size)


async def _sweep(
    server: Server, store: RoomStore, now: Now, line: list[tuple[int, Ticket]], number: int
) -> int:
    """So many fell silent, anywhere in the queue."""
    silent = [ticket.visitor for _, ticket in random.sample(line, number)]
    due = room_key("scale", "due")
    for some in _by_thousand(silent):
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
    """If everybody polled too early within one minute."""
    key = room_key("scale", "polls")
    for some in _by_thousand(line):
        await server.redis.hset(key, mapping={ticket.visitor: "1" for _, ticket in some})
    size = await server.size("scale", "polls")
    await server.redis.unlink(key)
    return size


def _by_thousand(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), 1000):
        yield items[start : start + 1000]


def measure(quick: bool) -> dict[str, Any]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    polls = 4_000 if quick else 20_000
    return {"sizes": [asyncio.run(measure_size(size, polls=polls)) for size in sizes]}
