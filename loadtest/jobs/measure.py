"""`make bench-jobs`: what a job costs from submission to result, compared with the library arq.

systems.py has the two systems, and what they call. Both are measured in turn, with one
redis-server. idle.py measures workers without jobs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import uvloop

from loadtest import databases, machine
from loadtest.amount import option
from loadtest.jobs import idle
from loadtest.jobs.idle import OWN_DELAY_S, Idle
from loadtest.jobs.systems import (
    CONCURRENCY,
    LIST_LENGTH,
    Arq,
    Counter,
    CountingNginx,
    System,
    Waitroom,
    install_arq,
)
from loadtest.report import Report, Target, render
from loadtest.rounds import Rounds
from tests.support.site import SocketRedis
from tests.support.target import Target as SingleTarget
from tests.support.target import run_target

#: How many callers submit at the same time.
CALLERS = (16, 64)
#: The values of poll_delay that are tried for arq's worker, in seconds. The fastest is measured,
#: and idle workers also with arq's default.
POLL_DELAYS_S = (0.5, 0.05, 0.01, 0.001)
#: The part of a queue's calls that is measured, without the start and the end of a worker.
FIRST, LAST = 0.1, 0.9
TITLES = {
    **{f"submit {callers}": f"submitted, {callers} callers" for callers in CALLERS},
    "submit list": f"submitted as lists of {LIST_LENGTH}",
    "execute": "executed",
    "both": "both at once",
}
#: The kinds of processes.
KINDS = ("caller", "replica", "worker", "Redis", "SQL")
#: The CPU time per minute that an idle runner with 20 targets may take.
IDLE_MS = 100
TARGETS = (
    Target("jobs executed/s, over arq's ([jobs.md](jobs.md))", "≥ 1"),
    Target("an idle runner with 20 targets, CPU a minute ([jobs.md](jobs.md))", f"≤ {IDLE_MS} ms"),
)
#: How often the number of calls is read, in seconds.
COUNT_S = 0.01
#: The pause before a single job, and how long a worker may take to start, in seconds.
PAUSE_S, START_S = 0.05, 30.0


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured."""

    rounds: int = 5
    #: How many jobs the callers submit, for each number of callers.
    jobs: int = option(1000, "another number of jobs per number of callers")
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


class Sample(NamedTuple):
    """The calls of the target so far, the time, and the CPU time by kind of process."""

    calls: int
    at_s: float
    cpu_ns: dict[str, int]


class Single(NamedTuple):
    """A job on an idle machine: the time from its submission until its target was called, and until
    its caller saw that the job was done."""

    called_ms: float
    seen_ms: float


@dataclass(slots=True)
class Figures:
    """What was measured."""

    amount: Amount
    #: The rates by what was measured (TITLES) and system. arq submits no lists.
    rates: Rounds[tuple[str, str], Rate]
    systems: list[str] = field(default_factory=list)
    #: The single jobs by system, and by how their callers saw their ends: "watched", "reported".
    singles: dict[tuple[str, str], list[Single]] = field(default_factory=dict)
    idle: list[Idle] = field(default_factory=list)
    poll_delay_s: float = OWN_DELAY_S
    versions: dict[str, str] = field(default_factory=dict)


def measure_reports(amount: Amount) -> Iterator[Report]:
    yield report(uvloop.run(measure(amount)))


async def measure(amount: Amount) -> Figures:
    figures = Figures(amount, Rounds(amount.rounds))
    python = install_arq()
    figures.versions = idle.read_versions(python)
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(SocketRedis())
        target = stack.enter_context(CountingNginx())
        counter = await stack.enter_async_context(target.counter())
        single = stack.enter_context(run_target(redis.folder))
        urls = {"url": target.url, "bell": f"{single.url}ok"}
        arq = Arq(python, redis.url, redis.folder, poll_delay=OWN_DELAY_S, **urls)
        systems: list[System] = [await stack.enter_async_context(arq)]
        for kind in ("sqlite", "postgresql"):
            database = stack.enter_context(databases.open_database(kind))
            # A Redis database holds the jobs of one SQL database.
            address = f"{redis.url}?db={len(systems)}"
            waitroom = Waitroom(address, database, **urls)
            systems.append(await stack.enter_async_context(waitroom))
        measurement = _Measurement(figures, counter, single, redis.pid)
        arq.poll_delay = await measurement.find_fastest_delay(arq, quick=amount != WHOLE)
        figures.poll_delay_s = arq.poll_delay
        figures.systems = [system.name for system in systems]
        for ordered in figures.rates.turns(systems):
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
    def __init__(
        self, figures: Figures, counter: Counter, single: SingleTarget, redis: int
    ) -> None:
        self._figures, self._amount, self._rates = figures, figures.amount, figures.rates
        self._counter, self._single, self._redis = counter, single, redis

    async def measure_round(self, system: System) -> None:
        await system.count_done()
        jobs = self._amount.jobs
        submissions = {
            f"submit {callers}": partial(system.submit, jobs, callers) for callers in CALLERS
        }
        if isinstance(system, Waitroom):
            submissions["submit list"] = partial(system.submit_list, jobs)
        for what, submit in submissions.items():
            before = await self._sample(system)
            first_s, last_s = await submit()
            assert first_s >= before.at_s
            after = (await self._sample(system))._replace(at_s=last_s)
            rate = _rate(jobs, before._replace(at_s=first_s), after)
            self._rates.add((what, system.name), rate)
        queued = jobs * len(submissions)
        async with self.working(system):
            self._rates.add(("execute", system.name), await self._execute(system, queued))
            await self.run_single_jobs(system, "watched")
            if isinstance(system, Waitroom):
                await self.run_single_jobs(system, "reported")
            self._rates.add(("both", system.name), await self._submit_and_execute(system))
        done = await system.count_done()
        expected = queued + jobs
        expected += self._amount.singles * (1 + isinstance(system, Waitroom))
        if done != expected:
            problem = f"{system.name}: {done:,} of {expected:,} jobs were done"
            self._rates.problems.append(problem)

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
        samples = await self._watch_calls(system, queued)
        first, last = (
            next((sample for sample in samples if sample.calls >= part * queued), samples[-1])
            for part in (FIRST, LAST)
        )
        return _rate(last.calls - first.calls, first, last)

    async def _submit_and_execute(self, system: System) -> Rate:
        """Measure a worker that works while jobs are submitted."""
        await self._counter.start()
        jobs, before = self._amount.jobs, await self._sample(system)
        submitting = asyncio.create_task(system.submit(jobs, CALLERS[-1]))
        last = (await self._watch_calls(system, jobs))[-1]
        began_s, _ = await submitting
        return _rate(last.calls, before._replace(at_s=began_s), last)

    async def _watch_calls(self, system: System, jobs: int) -> list[Sample]:
        """Return samples until the target has been called so often."""
        samples = [await self._sample(system)]
        ends_s = time.monotonic() + START_S + jobs / 20
        while samples[-1].calls < jobs and time.monotonic() < ends_s:
            await asyncio.sleep(COUNT_S)
            samples.append(await self._sample(system))
        if samples[-1].calls < jobs:
            problem = f"{system.name}: {samples[-1].calls:,} of {jobs:,} jobs were called"
            self._rates.problems.append(problem)
        return samples

    async def _sample(self, system: System) -> Sample:
        kinds = {**system.pids, "Redis": [self._redis]}
        # Waitroom's caller is this process. Its children are all other processes.
        cpu_ns = {
            kind: machine.cpu_ns(pids, with_children=kind != "caller")
            for kind, pids in kinds.items()
        }
        return Sample(await self._counter.count_calls(), time.monotonic(), cpu_ns)

    async def run_single_jobs(self, system: System, way: str) -> None:
        singles = self._figures.singles.setdefault((system.name, way), [])
        for _ in range(self._amount.singles):
            await asyncio.sleep(PAUSE_S)
            began, ended = await system.run_job(is_watched=way == "watched")
            while (called := self._read_last_call()) < began:  # noqa: ASYNC110 - in a file
                await asyncio.sleep(COUNT_S)
            singles.append(Single(1000 * (called - began), 1000 * (ended - began)))

    def _read_last_call(self) -> float:
        """Return when the target of single jobs was called last, by the monotonic clock."""
        return max((call["began_ns"] / 1e9 for call in self._single.calls()), default=0.0)


def _rate(jobs: int, before: Sample, after: Sample) -> Rate:
    cpu_us = {
        kind: (after.cpu_ns[kind] - before.cpu_ns[kind]) / 1000 / max(1, jobs)
        for kind in before.cpu_ns.keys() & after.cpu_ns.keys()
    }
    return Rate(jobs / max(after.at_s - before.at_s, 1e-6), cpu_us)


def report(figures: Figures) -> Report:
    def cpu_ms(what: str, system: str) -> list[float | None]:
        # While a worker executes a queue, the caller only watches.
        unmeasured = set() if what.startswith("submit") else {"caller"}
        there = figures.rates.of((what, system))[0].cpu_us.keys() - unmeasured
        return [
            figures.rates.median((what, system), lambda rate: rate.cpu_us[kind] / 1000)  # noqa: B023
            if kind in there else None
            for kind in KINDS
        ]  # fmt: skip

    values = {
        "figures": figures, "rates": figures.rates, "concurrency": CONCURRENCY,
        "callers": CALLERS, "own_delay_s": OWN_DELAY_S, "titles": TITLES, "kinds": KINDS,
        "cpu_ms": cpu_ms,
    }  # fmt: skip
    return Report("jobs", values, figures, problems=figures.rates.problems, targets=_judge(figures))


def _judge(figures: Figures) -> Sequence[Target]:
    ratio = figures.rates.ratio(("execute", "Waitroom, SQLite"), ("execute", "arq"), "per_second")
    cpu_ms = next(idle.cpu_ms for idle in figures.idle if "20 targets" in idle.name)
    return [
        replace(TARGETS[0], is_reached=ratio >= 1, figure=f"{ratio:.2f}"),
        replace(TARGETS[1], is_reached=cpu_ms <= IDLE_MS, figure=f"{cpu_ms:,.0f} ms"),
    ]


def section(figures: Figures) -> str:
    """Return the section of jobs in the report of `make bench`."""

    def rates_of(what: str) -> list[float | None]:
        rates = figures.rates
        cases = [(what, system) for system in figures.systems]
        return [rates.median(c, "per_second") if c in rates.runs else None for c in cases]

    return render("jobs-section", figures=figures, titles=TITLES, rates_of=rates_of)
