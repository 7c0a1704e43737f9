"""All cases and races, in turn, on one redis-server."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from limits import RateLimitItemPerSecond

from loadtest import machine
from loadtest.limits import cases, race
from loadtest.limits.cases import Case
from loadtest.limits.http import of_replica, single
from loadtest.limits.race import Race
from loadtest.redis_server import Server, redis_server
from loadtest.rounds import rounds
from sidecar.limits.model import Call
from sidecar.limits.store import LimitStore

#: The pause before a single decision, after which everything is idle.
REST_S = 0.002


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: float = 1.0
    warming_s: float = 0.2
    #: Single decisions per round.
    singles: int = 200
    races: int = 3
    racing_s: float = 1.5


WHOLE = Amount()
QUICK = Amount(rounds=1, seconds=0.15, warming_s=0.05, singles=100, races=1, racing_s=0.6)


@dataclass(frozen=True, slots=True)
class Run:
    """One case in one round."""

    decisions: int
    granted: int
    seconds: float
    #: CPU time per decision, µs, of Redis, of this process, which asks, and of replicas.
    redis_us: float
    asking_us: float
    replica_us: float

    @property
    def per_second(self) -> float:
        return self.decisions / self.seconds


class Single(NamedTuple):
    """The duration of one decision on an idle machine, and Redis' CPU time."""

    ms: float
    redis_us: float


@dataclass(slots=True)
class Figures:
    amount: Amount
    cases: list[Case] = field(default_factory=list)
    #: Runs by the case's name and calls, one per round.
    runs: dict[tuple[str, str], list[Run]] = field(default_factory=dict)
    singles: dict[str, list[Single]] = field(default_factory=dict)
    races: list[Race] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, case: Case) -> list[Run]:
        return self.runs[case.name, case.calls]


async def measure(amount: Amount) -> Figures:
    figures = Figures(amount)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server())
        await server.redis.config_set("slowlog-log-slower-than", -1)
        uri = f"unix://{server.redis.connection_pool.connection_kwargs['path']}"
        over_http, connection = await stack.enter_async_context(of_replica(uri))
        for calls in cases.KEYS:
            figures.cases += cases.of_store(server.redis, calls)
            figures.cases += over_http if calls == "granted" else []
            figures.cases += cases.of_library(uri, calls)
        ways = _singles(server, uri)
        ways["Waitroom, HTTP"] = lambda: single(connection)
        for number, ordered in rounds(amount.rounds, figures.cases, figures.loads):
            for case in ordered:
                run = await _measure(case, server, amount)
                figures.runs.setdefault((case.name, case.calls), []).append(run)
                figures.problems += _problems(case, run)
                print(f"{number + 1}/{amount.rounds} {case.calls} {case.name:60}"
                      f"{run.per_second:10,.0f}/s {run.redis_us:6.1f} µs", flush=True)  # fmt: skip
            for name, ask in ways.items():
                figures.singles.setdefault(name, []).extend(
                    [await _one(ask, server) for _ in range(amount.singles)]
                )
        await server.redis.flushall()
        for _ in range(amount.races):
            for each in race.systems(uri):
                result = await race.run(each, amount.racing_s)
                figures.races.append(result)
                print(f"race: {result.name:60}{result.most:4} in a second", flush=True)
    figures.problems += [each.problem for each in figures.races if each.problem]
    return figures


async def _measure(case: Case, server: Server, amount: Amount) -> Run:
    await server.redis.flushall()
    await case.run(amount.warming_s)
    redis_ns, asking_s = server.cpu_ns(), time.process_time()
    replica_s, began = machine.cpu_seconds(case.pids), time.perf_counter()
    decisions, granted = await case.run(amount.seconds)
    seconds = time.perf_counter() - began
    return Run(
        decisions, granted, seconds, (server.cpu_ns() - redis_ns) / 1000 / decisions,
        (time.process_time() - asking_s) * 1_000_000 / decisions,
        (machine.cpu_seconds(case.pids) - replica_s) * 1_000_000 / decisions,
    )  # fmt: skip


def _problems(case: Case, run: Run) -> list[str]:
    """Return a problem if calls did not get the answers that they should. (Above the limit, the
    library's fixed windows begin with any call, so that one more begins in the time.)"""
    if case.calls == "granted":
        is_right = run.granted == run.decisions
    else:
        is_right = run.granted <= cases.LIMITS["refused"] * (run.seconds + 2)
    what = f"{case.name}: {run.granted:,} of {run.decisions:,} were let through"
    return [] if is_right else [f"{what} ({case.calls})"]


def _singles(server: Server, uri: str) -> dict[str, Callable[[], Awaitable[object]]]:
    store = LimitStore(
        server.redis, "bench", settings=cases.settings("sliding_window", "granted"), timeout_s=60
    )
    there = cases.async_limiter(uri, "moving window")
    here = cases.sync_limiter(uri, "moving window")
    item = RateLimitItemPerSecond(cases.LIMITS["granted"])

    async def hit() -> bool:
        return here.hit(item, "customer")

    return {
        "Waitroom, the store": lambda: store.acquire(Call("customer")),
        "limits, async": lambda: there.hit(item, "customer"),
        "limits, sync": hit,
    }


async def _one(ask: Callable[[], Awaitable[object]], server: Server) -> Single:
    await asyncio.sleep(REST_S)
    redis_ns, began = server.cpu_ns(), time.perf_counter()
    await ask()
    ms = 1000 * (time.perf_counter() - began)
    return Single(ms, (server.cpu_ns() - redis_ns) / 1000)
