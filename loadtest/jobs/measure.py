"""Both systems in turn, on one redis-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtest import databases
from loadtest.jobs import idle
from loadtest.jobs.idle import Idle
from loadtest.jobs.systems import Arq, System, Waitroom, environment_of_arq
from loadtest.jobs.target import Bell, Counter, Target
from loadtest.machine import cpu_ns
from loadtest.rounds import rounds
from tests.support.site import SocketRedis

#: Numbers of callers that submit at the same time.
CALLERS = (16, 64)
#: The pauses that are tried between two looks of arq's worker at its queue, seconds. The quickest
#: is measured, and idle workers also with arq's default.
POLL_DELAYS = (0.5, 0.05, 0.01, 0.001)
OWN_DELAY = 0.5
#: The part of a queue's calls that counts: without a worker's start and its end.
FIRST, LAST = 0.1, 0.9
LOOK_S = 0.01
#: The pause before a single job, and how long a worker may take to start, seconds.
REST_S, START_S = 0.05, 30.0


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    #: Jobs that each number of callers submits, while nothing is called.
    jobs: int = 1000
    #: Single jobs per round and way to see that they are done.
    singles: int = 5
    idle_s: float = 20.0


WHOLE = Amount()
QUICK = Amount(rounds=1, jobs=300, singles=3, idle_s=3.0)


@dataclass(frozen=True, slots=True)
class Rate:
    """Jobs per second, and the CPU time of a job by kind of process, µs."""

    per_second: float
    cpu_us: dict[str, float]


class Single(NamedTuple):
    """One job on an idle machine: ms from its submission until its target was called, and until its
    caller saw that it was done."""

    called_ms: float
    seen_ms: float


@dataclass(slots=True)
class Figures:
    amount: Amount
    systems: list[str] = field(default_factory=list)
    #: Rates of each round, by what was done ("submit 16", "execute", "both") and by system.
    rates: dict[tuple[str, str], list[Rate]] = field(default_factory=dict)
    #: Single jobs by system, and by how their callers saw them done: "watched", "reported".
    singles: dict[tuple[str, str], list[Single]] = field(default_factory=dict)
    idle: list[Idle] = field(default_factory=list)
    poll_delay_s: float = OWN_DELAY
    loads: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, system: System, rate: Rate) -> None:
        self.rates.setdefault((what, system.name), []).append(rate)
        print(f"{len(self.loads)}/{self.amount.rounds} {system.name:22}{what:12}"
              f"{rate.per_second:10,.0f}/s", flush=True)  # fmt: skip


async def measure(amount: Amount, *, kinds: tuple[str, ...] = ("sqlite", "postgresql")) -> Figures:
    figures = Figures(amount)
    python = environment_of_arq()
    figures.versions = idle.versions(python)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(SocketRedis())
        target = stack.enter_context(Target())
        counter = await stack.enter_async_context(target.counter())
        bell = await stack.enter_async_context(Bell().open())
        where = {"url": target.url, "bell": bell.url}
        arq = Arq(python, redis.url, redis.folder, poll_delay=OWN_DELAY, **where)
        systems: list[System] = [await stack.enter_async_context(arq)]
        for kind in kinds:
            database = stack.enter_context(databases.open_database(kind))
            # A Redis database holds the jobs of one SQL database.
            address = f"{redis.url}?db={len(systems)}"
            ours = Waitroom(address, database, **where)
            systems.append(await stack.enter_async_context(ours))
        work = _Measurement(figures, counter, bell, redis.pid)
        arq.poll_delay = figures.poll_delay_s = await work.best(arq, quick=amount != WHOLE)
        figures.systems = [system.name for system in systems]
        for _, ordered in rounds(amount.rounds, systems, figures.loads):
            for system in ordered:
                await work.round(system)
            await work.reported_by_default(arq)
    figures.idle = await idle.measure(python, amount.idle_s, figures.poll_delay_s)
    return figures


class _Measurement:
    def __init__(self, figures: Figures, counter: Counter, bell: Bell, redis: int) -> None:
        self._figures, self._amount = figures, figures.amount
        self._counter, self._bell, self._redis = counter, bell, redis

    async def round(self, system: System) -> None:
        await system.done()
        for callers in CALLERS:
            began_ns, ns = time.monotonic(), self._cpu(system)
            first, last = await system.submit(self._amount.jobs, callers)
            assert first >= began_ns
            rate = self._rate(self._amount.jobs, last - first, ns, self._cpu(system))
            self._figures.add(f"submit {callers}", system, rate)
        line = self._amount.jobs * len(CALLERS)
        async with self._working(system):
            self._figures.add("execute", system, await self._execute(system, line))
            await self._singles(system, "watched")
            if isinstance(system, Waitroom):
                await self._singles(system, "reported")
            self._figures.add("both", system, await self._both(system))
        done = await system.done()
        expected = line + self._amount.jobs
        expected += self._amount.singles * (1 + isinstance(system, Waitroom))
        if done != expected:
            self._figures.problems.append(f"{system.name}: {done:,} of {expected:,} jobs were done")

    async def reported_by_default(self, arq: Arq) -> None:
        """Measure single jobs with arq's default pause."""
        chosen, arq.poll_delay = arq.poll_delay, OWN_DELAY
        async with self._working(arq):
            await self._singles(arq, "reported")
        arq.poll_delay = chosen

    async def best(self, arq: Arq, *, quick: bool) -> float:
        """Return the pause with which arq's worker does most."""
        found: dict[float, float] = {}
        for delay in POLL_DELAYS[1::2] if quick else POLL_DELAYS:
            arq.poll_delay = delay
            await arq.submit(self._amount.jobs // 2, CALLERS[0])
            async with self._working(arq):
                rate = await self._execute(arq, self._amount.jobs // 2)
            found[delay] = rate.per_second
        best = max(found, key=lambda delay: found[delay])
        rates = ", ".join(f"{delay:g} s {rate:,.0f}/s" for delay, rate in found.items())
        print(f"arq's worker, by its poll_delay: {rates}", flush=True)
        return best

    @asynccontextmanager
    async def _working(self, system: System) -> AsyncIterator[None]:
        await self._counter.start()
        system.start_worker()
        try:
            yield
        finally:
            await asyncio.to_thread(system.stop_worker)

    async def _execute(self, system: System, line: int) -> Rate:
        """Measure how a worker that was just started works off `line` jobs."""
        looks: list[tuple[int, float, dict[str, int]]] = []
        ends = time.monotonic() + START_S + line / 20
        calls = 0
        while calls < line and time.monotonic() < ends:
            await asyncio.sleep(LOOK_S)
            calls = await self._counter.calls()
            looks.append((calls, time.monotonic(), self._cpu(system)))
        first = next((each for each in looks if each[0] >= FIRST * line), looks[-1])
        last = next((each for each in looks if each[0] >= LAST * line), looks[-1])
        if calls < line:
            self._figures.problems.append(f"{system.name}: {calls:,} of {line:,} jobs were called")
        return self._rate(last[0] - first[0], last[1] - first[1], first[2], last[2])

    async def _both(self, system: System) -> Rate:
        """Measure a worker that works while jobs are submitted."""
        before = await self._counter.calls()
        ns = self._cpu(system)
        submitting = asyncio.create_task(system.submit(self._amount.jobs, CALLERS[-1]))
        ends = time.monotonic() + START_S + self._amount.jobs / 20
        while (calls := await self._counter.calls() - before) < self._amount.jobs:
            if time.monotonic() > ends:
                self._figures.problems.append(f"{system.name}: {calls:,} jobs were called")
                break
            await asyncio.sleep(LOOK_S)
        ended = time.monotonic()
        first, _ = await submitting
        return self._rate(calls, ended - first, ns, self._cpu(system))

    async def _singles(self, system: System, way: str) -> None:
        found = self._figures.singles.setdefault((system.name, way), [])
        for _ in range(self._amount.singles):
            await asyncio.sleep(REST_S)
            began, ended = await system.single(is_watched=way == "watched")
            found.append(Single(1000 * (self._bell.rung_s - began), 1000 * (ended - began)))

    def _cpu(self, system: System) -> dict[str, int]:
        """Return the CPU time by kind of process, ns."""
        kinds = {**system.pids, "Redis": [self._redis]}
        # Waitroom's caller is this process, whose children are everything else.
        return {kind: cpu_ns(pids, with_children=kind != "caller") for kind, pids in kinds.items()}

    def _rate(
        self, jobs: int, seconds: float, before: dict[str, int], after: dict[str, int]
    ) -> Rate:
        each = {
            kind: (after[kind] - before[kind]) / 1000 / max(1, jobs)
            for kind in before.keys() & after.keys()
        }
        return Rate(jobs / max(seconds, 1e-6), each)
