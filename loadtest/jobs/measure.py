"""Measures both systems in turn, with one redis-server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from loadtest import databases
from loadtest.jobs import idle
from loadtest.jobs.idle import OWN_DELAY_S, Idle
from loadtest.jobs.systems import Arq, System, Waitroom, install_arq
from loadtest.jobs.target import Bell, Counter, Target
from loadtest.machine import cpu_ns
from loadtest.rounds import rounds
from tests.support.site import SocketRedis

#: How many callers submit at the same time.
CALLERS = (16, 64)
#: The values of poll_delay that are tried for arq's worker, in seconds. The fastest is measured,
#: and idle workers also with arq's default.
POLL_DELAYS_S = (0.5, 0.05, 0.01, 0.001)
#: The part of a queue's calls that is measured, without the start and the end of a worker.
FIRST, LAST = 0.1, 0.9
#: How often the number of calls is read, in seconds.
COUNT_S = 0.01
#: The pause before a single job, and how long a worker may take to start, in seconds.
PAUSE_S, START_S = 0.05, 30.0


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    rounds: int = 5
    #: How many jobs the callers submit, for each number of callers.
    jobs: int = 1000
    #: How many single jobs a round has, for each way to see that a job is done.
    singles: int = 5
    idle_s: float = 20.0


WHOLE = Amount()
QUICK = Amount(rounds=1, jobs=300, singles=3, idle_s=3.0)


@dataclass(frozen=True, slots=True)
class Rate:
    """The jobs per second, and the CPU time per job by kind of process, in µs."""

    per_second: float
    cpu_us: dict[str, float]


class Single(NamedTuple):
    """A job on an idle machine: the time from its submission until its target was called, and until
    its caller saw that the job was done."""

    called_ms: float
    seen_ms: float


@dataclass(slots=True)
class Figures:
    """What was measured."""

    amount: Amount
    systems: list[str] = field(default_factory=list)
    #: The rates of all rounds, by what was measured ("submit 16", "submit list", "execute",
    #: "both") and system. arq submits no lists.
    rates: dict[tuple[str, str], list[Rate]] = field(default_factory=dict)
    #: The single jobs by system, and by how their callers saw their ends: "watched", "reported".
    singles: dict[tuple[str, str], list[Single]] = field(default_factory=dict)
    idle: list[Idle] = field(default_factory=list)
    poll_delay_s: float = OWN_DELAY_S
    loads: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, system: System, rate: Rate) -> None:
        self.rates.setdefault((what, system.name), []).append(rate)
        print(f"{len(self.loads)}/{self.amount.rounds} {system.name:22}{what:12}"
              f"{rate.per_second:10,.0f}/s", flush=True)  # fmt: skip


async def measure(amount: Amount, *, kinds: tuple[str, ...] = ("sqlite", "postgresql")) -> Figures:
    figures = Figures(amount)
    python = install_arq()
    figures.versions = idle.read_versions(python)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(SocketRedis())
        target = stack.enter_context(Target())
        counter = await stack.enter_async_context(target.counter())
        bell = await stack.enter_async_context(Bell().open())
        urls = {"url": target.url, "bell": bell.url}
        arq = Arq(python, redis.url, redis.folder, poll_delay=OWN_DELAY_S, **urls)
        systems: list[System] = [await stack.enter_async_context(arq)]
        for kind in kinds:
            database = stack.enter_context(databases.open_database(kind))
            # A Redis database holds the jobs of one SQL database.
            address = f"{redis.url}?db={len(systems)}"
            waitroom = Waitroom(address, database, **urls)
            systems.append(await stack.enter_async_context(waitroom))
        measurement = _Measurement(figures, counter, bell, redis.pid)
        arq.poll_delay = await measurement.find_fastest_delay(arq, quick=amount != WHOLE)
        figures.poll_delay_s = arq.poll_delay
        figures.systems = [system.name for system in systems]
        for _, ordered in rounds(amount.rounds, systems, figures.loads):
            for system in ordered:
                await measurement.measure_round(system)
            # Callers wait for arq's jobs with arq's default.
            arq.poll_delay = OWN_DELAY_S
            async with measurement.working(arq):
                await measurement.run_single_jobs(arq, "reported")
            arq.poll_delay = figures.poll_delay_s
    figures.idle = await idle.measure(python, amount.idle_s, figures.poll_delay_s)
    return figures


class _Measurement:
    def __init__(self, figures: Figures, counter: Counter, bell: Bell, redis: int) -> None:
        self._figures, self._amount = figures, figures.amount
        self._counter, self._bell, self._redis = counter, bell, redis

    async def measure_round(self, system: System) -> None:
        await system.count_done()
        for callers in CALLERS:
            began_s, cpu = time.monotonic(), self._read_cpu(system)
            first, last = await system.submit(self._amount.jobs, callers)
            assert first >= began_s
            rate = _rate(self._amount.jobs, last - first, cpu, self._read_cpu(system))
            self._figures.add(f"submit {callers}", system, rate)
        queued = self._amount.jobs * len(CALLERS)
        if isinstance(system, Waitroom):
            cpu = self._read_cpu(system)
            first, last = await system.submit_list(self._amount.jobs)
            rate = _rate(self._amount.jobs, last - first, cpu, self._read_cpu(system))
            self._figures.add("submit list", system, rate)
            queued += self._amount.jobs
        async with self.working(system):
            self._figures.add("execute", system, await self._execute(system, queued))
            await self.run_single_jobs(system, "watched")
            if isinstance(system, Waitroom):
                await self.run_single_jobs(system, "reported")
            self._figures.add("both", system, await self._submit_and_execute(system))
        done = await system.count_done()
        expected = queued + self._amount.jobs
        expected += self._amount.singles * (1 + isinstance(system, Waitroom))
        if done != expected:
            self._figures.problems.append(f"{system.name}: {done:,} of {expected:,} jobs were done")

    async def find_fastest_delay(self, arq: Arq, *, quick: bool) -> float:
        """Return the poll_delay with which arq's worker is fastest."""
        rates: dict[float, float] = {}
        for delay_s in POLL_DELAYS_S[1::2] if quick else POLL_DELAYS_S:
            arq.poll_delay = delay_s
            await arq.submit(self._amount.jobs // 2, CALLERS[0])
            async with self.working(arq):
                rate = await self._execute(arq, self._amount.jobs // 2)
            rates[delay_s] = rate.per_second
        text = ", ".join(f"{delay_s:g} s {rate:,.0f}/s" for delay_s, rate in rates.items())
        print(f"arq's worker, by its poll_delay: {text}", flush=True)
        return max(rates, key=lambda delay_s: rates[delay_s])

    @asynccontextmanager
    async def working(self, system: System) -> AsyncIterator[None]:
        await self._counter.start()
        system.start_worker()
        try:
            yield
        finally:
            await asyncio.to_thread(system.stop_worker)

    async def _execute(self, system: System, queued: int) -> Rate:
        """Measure how a worker that was just started executes `queued` jobs."""
        samples: list[tuple[int, float, dict[str, int]]] = []
        ends_s = time.monotonic() + START_S + queued / 20
        calls = 0
        while calls < queued and time.monotonic() < ends_s:
            await asyncio.sleep(COUNT_S)
            calls = await self._counter.count_calls()
            samples.append((calls, time.monotonic(), self._read_cpu(system)))
        (first_calls, first_s, first_cpu), (last_calls, last_s, last_cpu) = (
            next((sample for sample in samples if sample[0] >= part * queued), samples[-1])
            for part in (FIRST, LAST)
        )
        if calls < queued:
            self._figures.problems.append(
                f"{system.name}: {calls:,} of {queued:,} jobs were called"
            )
        return _rate(last_calls - first_calls, last_s - first_s, first_cpu, last_cpu)

    async def _submit_and_execute(self, system: System) -> Rate:
        """Measure a worker that works while jobs are submitted."""
        before = await self._counter.count_calls()
        cpu = self._read_cpu(system)
        submitting = asyncio.create_task(system.submit(self._amount.jobs, CALLERS[-1]))
        ends_s = time.monotonic() + START_S + self._amount.jobs / 20
        while (calls := await self._counter.count_calls() - before) < self._amount.jobs:
            if time.monotonic() > ends_s:
                self._figures.problems.append(f"{system.name}: {calls:,} jobs were called")
                break
            await asyncio.sleep(COUNT_S)
        ended_s = time.monotonic()
        first, _ = await submitting
        return _rate(calls, ended_s - first, cpu, self._read_cpu(system))

    async def run_single_jobs(self, system: System, way: str) -> None:
        singles = self._figures.singles.setdefault((system.name, way), [])
        for _ in range(self._amount.singles):
            await asyncio.sleep(PAUSE_S)
            began, ended = await system.run_job(is_watched=way == "watched")
            singles.append(Single(1000 * (self._bell.rung_s - began), 1000 * (ended - began)))

    def _read_cpu(self, system: System) -> dict[str, int]:
        """Return the CPU time by kind of process, in ns."""
        kinds = {**system.pids, "Redis": [self._redis]}
        # Waitroom's caller is this process. Its children are all other processes.
        return {kind: cpu_ns(pids, with_children=kind != "caller") for kind, pids in kinds.items()}


def _rate(jobs: int, seconds: float, before: dict[str, int], after: dict[str, int]) -> Rate:
    cpu_us = {
        kind: (after[kind] - before[kind]) / 1000 / max(1, jobs)
        for kind in before.keys() & after.keys()
    }
    return Rate(jobs / max(seconds, 1e-6), cpu_us)
