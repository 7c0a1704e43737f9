"""What a decision about a rate limit costs, beside the `limits` library: `make bench-limits`.

All cases (cases.py) and races (race.py) run in turn, on one redis-server.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import NamedTuple

import uvloop
from limits import RateLimitItemPerSecond
from matplotlib.figure import Figure

from loadtest import machine, redis_server
from loadtest.amount import option
from loadtest.limits import cases, race
from loadtest.limits.cases import LIST, PAIRS, TASKS, Case
from loadtest.limits.race import Race
from loadtest.redis_server import Server
from loadtest.report import OURS, PLAIN, Report, Target, count, draw_bars
from loadtest.rounds import Rounds
from sidecar.limits.model import Call
from sidecar.limits.store import LimitStore

#: The pause before a single decision, after which everything is idle.
REST_S = 0.002


#: What a program has: the Python client and a replica, beside the library in the program itself,
#: which asks Redis without HTTP. Exact rates are compared, with the same number of tasks.
TARGET = Target(
    "limits: decisions/s of the Python client over HTTP, over the limits library's, with 64 tasks "
    "each and with 256 each; the lesser counts ([limits.md](limits.md))",
    "≥ 1",
)
_WHY_NOT = "the client's and the replica's HTTP take longer than the library's way to Redis."
#: The ways to ask that are compared: Waitroom's, and the library's.
_COMPARED = (
    *((f"HTTP, its client, {count(n, 'task')}", f"async, {count(n, 'task')}") for n in TASKS),
    *((count(n, "task"), f"async, {count(n, 'task')}") for n in TASKS),
    (f"lists of {LIST:,}", f"async, pipelines of {LIST:,}"),
    (f"HTTP, lists of {LIST:,}", f"async, pipelines of {LIST:,}"),
)


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: float = option(1.0, "another duration of a run")
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
    runs: Rounds[Case, Run]
    singles: dict[str, list[Single]] = field(default_factory=dict)
    races: dict[str, list[Race]] = field(default_factory=dict)


def measure_reports(amount: Amount) -> Iterator[Report]:
    yield report(uvloop.run(measure(amount)))


async def measure(amount: Amount) -> Figures:
    figures = Figures(amount, Rounds(amount.rounds))
    runs = figures.runs
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server.start())
        await server.redis.config_set("slowlog-log-slower-than", -1)
        uri = f"unix://{server.redis.connection_pool.connection_kwargs['path']}"
        over_http, connections = await stack.enter_async_context(cases.of_replica(uri))
        measured: list[Case] = []
        for calls in cases.KEYS:
            measured += cases.of_store(server.redis, calls)
            measured += over_http if calls == "granted" else []
            measured += cases.of_library(uri, calls)
        ways = _singles(server, uri)
        ways["Waitroom, HTTP"] = lambda: cases.ask_once(connections)
        for ordered in runs.turns(measured):
            for case in ordered:
                run = await _measure(case, server, amount)
                runs.add(case, run)
                runs.problems += _problems(case, run)
            for name, ask in ways.items():
                figures.singles.setdefault(name, []).extend(
                    [await _one(ask, server) for _ in range(amount.singles)]
                )
        await server.redis.flushall()
        for _ in range(amount.races):
            for each in race.systems(uri):
                result = await race.run(each, amount.racing_s)
                figures.races.setdefault(result.name, []).append(result)
                runs.problems += [result.problem] if result.problem else []
                print(f"race: {result.name:60}{result.most:4} in a second", flush=True)
    return figures


async def _measure(case: Case, server: Server, amount: Amount) -> Run:
    await server.redis.flushall()
    await case.run(amount.warming_s)
    redis_ns, asking_ns = server.cpu_ns(), time.process_time_ns()
    replica_ns, began = machine.cpu_ns(case.pids), time.perf_counter()
    decisions, granted = await case.run(amount.seconds)
    seconds = time.perf_counter() - began
    return Run(
        decisions, granted, seconds, (server.cpu_ns() - redis_ns) / 1000 / decisions,
        (time.process_time_ns() - asking_ns) / 1000 / decisions,
        (machine.cpu_ns(case.pids) - replica_ns) / 1000 / decisions,
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


def report(figures: Figures) -> Report:
    by_way = {
        (case.system, case.way): case
        for case in figures.runs.runs
        if case.calls == "granted" and case.algorithm in ("sliding_window", PAIRS["sliding_window"])
    }
    compared = [(by_way["Waitroom", ours], by_way["limits", theirs]) for ours, theirs in _COMPARED]
    lesser = min(figures.runs.ratio(*pair, "per_second") for pair in compared[1 : len(TASKS)])
    target = replace(TARGET, is_reached=lesser >= 1, figure=f"{lesser:.2f}", why_not=_WHY_NOT)
    values = {
        "amount": figures.amount, "runs": figures.runs, "singles": figures.singles,
        "races": figures.races, "race": race, "compared": compared, "version": version("limits"),
    }  # fmt: skip
    files: dict[str, Figure | str] = {"limits.svg": _draw(figures.runs)}
    return Report("limits", values, figures, files, figures.runs.problems, [target])


def _draw(runs: Rounds[Case, Run]) -> Figure:
    """Draw the calls that are let through, the slowest at the bottom."""
    rates: dict[str, dict[str, float]] = {
        case.name: {case.system: runs.median(case, "per_second")}
        for case in runs.runs
        if case.calls == "granted"
    }
    rows = dict(sorted(rates.items(), key=lambda row: -sum(row[1].values())))
    what = f"decisions a second, {len(cases.KEYS['granted']):,} keys, all let through"
    return draw_bars(rows, {"Waitroom": OURS, "limits": PLAIN}, what, ",.0f")
