"""A redis-server for measurements, the cost of its scripts, and full rooms."""

import random
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from redis.asyncio import Redis

from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.lua_source import library
from sidecar.visitors.model import Ticket
from sidecar.visitors.tokens import new_visitor
from tests.support.site import SocketRedis

NOW_MS = 1_800_000_000_000
_EVENTS_KEPT = 100_000  # rooms/lua/parts/room.lua
_SLOW_US = 100

Reply = TypeVar("Reply")
Item = TypeVar("Item")


@dataclass
class Cost:
    """The total cost of all scripts of a kind."""

    scripts: int = 0
    visitors: int = 0
    #: CPU time of Redis for all scripts, including parsing and replies.
    cpu_us: float = 0
    #: Wall-clock time inside FCALL (INFO commandstats).
    script_us: float = 0
    longest_cpu_ms: float = 0
    #: Wall-clock time (SLOWLOG), which other programs may lengthen.
    longest_ms: float = 0

    @property
    def cpu_ms(self) -> float:
        return self.cpu_us / 1000

    @property
    def cpu_us_each(self) -> float:
        """Return the CPU time for a visitor, or for a script if it is about no visitors."""
        return self.cpu_us / (self.visitors or self.scripts)

    @property
    def script_us_each(self) -> float:
        return self.script_us / (self.visitors or self.scripts)

    @property
    def longest(self) -> str:
        return f"{self.longest_cpu_ms:.1f} ({self.longest_ms:.1f})"


@dataclass
class Server:
    """A redis-server and the costs of scripts by name."""

    redis: Redis
    pid: int
    costs: dict[str, Cost] = field(default_factory=dict)

    def cpu_ns(self) -> int:
        """Return the CPU time of the main thread, which is exact between commands."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])

    @asynccontextmanager
    async def cost(self, name: str) -> "AsyncIterator[Meter]":
        """Record the costs of the scripts that run in the block under this name."""
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
        """Return the used memory without that of connections and the slow log."""
        await self.redis.slowlog_reset()
        info = await self.redis.info("memory")
        return int(info["used_memory"]) - int(info["mem_clients_normal"])

    async def size(self, room: str, name: str) -> int:
        return int(await self.redis.memory_usage(room_key(room, name), samples=0) or 0)

    async def _script_us(self) -> float:
        stats = await self.redis.info("commandstats")
        return float(stats.get("cmdstat_fcall", {"usec": 0})["usec"])


class Meter:
    """Runs scripts one after the other, and adds up their costs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.cost = Cost()

    async def script(
        self, reply: Awaitable[Reply], *, visitors: int = 0, scripts: int = 1
    ) -> Reply:
        """Run a script, or several scripts at once. Return the reply."""
        before = self._server.cpu_ns()
        answer = await reply
        cpu_us = (self._server.cpu_ns() - before) / 1000
        self.cost.scripts += scripts
        self.cost.visitors += visitors
        self.cost.cpu_us += cpu_us
        self.cost.longest_cpu_ms = max(self.cost.longest_cpu_ms, cpu_us / scripts / 1000)
        return answer


def room_store(redis: Redis, name: str, settings: RoomSettings, **more: Any) -> RoomStore:
    """Create the store of a room. `more` is for RoomStore."""
    more = {"clock": StoreClock(), "timeout_s": 60, **more}
    return RoomStore(redis, name, settings=settings.get_script_settings(), **more)


@asynccontextmanager
async def start() -> AsyncIterator[Server]:
    options = ["--slowlog-log-slower-than", str(_SLOW_US), "--slowlog-max-len", "100000"]
    with SocketRedis(*options) as started:
        redis = connect(started.url, timeout_s=60)
        assert isinstance(redis, Redis)
        await redis.function_load(library("rooms").text)
        yield Server(redis, started.pid)
        await close(redis)


async def fill_sessions(redis: Redis, room: str, number: int) -> None:
    """Admit `number` visitors, who stay inside."""
    visitors = [new_visitor() for _ in range(number)]
    ends = NOW_MS + 7 * 86_400_000
    await redis.zadd(room_key(room, "active"), dict.fromkeys(visitors, ends))
    await redis.zadd(room_key(room, "admitted"), dict.fromkeys(visitors, NOW_MS))


async def fill_line(redis: Redis, room: str, number: int) -> list[tuple[int, Ticket]]:
    """Write the keys of `number` waiting visitors, who joined in the last ten minutes.

    The keys are those that joins and polls leave. Return the time of the next poll in ms and the
    ticket of each visitor.
    """
    first = (NOW_MS - 600_000) * 1000
    tickets = [
        Ticket(new_visitor(), first + i * 600_000_000 // number, NOW_MS, 0) for i in range(number)
    ]
    dues = [NOW_MS + random.randrange(60_000) for _ in tickets]
    for some in by_thousand(list(zip(tickets, dues, strict=True))):
        pipe = redis.pipeline(transaction=False)
        pipe.zadd(room_key(room, "waiting"), {t.visitor: t.order for t, _ in some})
        pipe.zadd(room_key(room, "due"), {t.visitor: due for t, due in some})
        await pipe.execute()
    kept = list(enumerate(tickets, start=1))[-_EVENTS_KEPT:]
    for numbered in by_thousand(kept):
        pipe = redis.pipeline(transaction=False)
        for position, ticket in numbered:
            event: dict[Any, Any] = {"kind": "joined", "visitor": ticket.visitor, "why": "new"}
            event |= {"at": ticket.order // 1000, "order": ticket.order, "position": position}
            pipe.xadd(room_key(room, "events"), event, maxlen=_EVENTS_KEPT)
        await pipe.execute()
    counters: dict[Any, Any] = {
        "last_order": tickets[-1].order,
        "joined": number,
        "measured_at": NOW_MS,
    }
    await redis.hset(room_key(room, "stats"), mapping=counters)
    return list(zip(dues, tickets, strict=True))


def by_thousand(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), 1000):
        yield items[start : start + 1000]
