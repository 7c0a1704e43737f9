"""`make bench-jobs`: what a job costs from submission to result, compared with the library arq.

systems.py has the two systems, and target.py what they call. measure.py measures both in turn, and
idle.py measures workers without jobs.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import uvloop

from loadtest.jobs.idle import OWN_DELAY_S, Idle
from loadtest.jobs.measure import (
    CALLERS,
    QUICK,
    WHOLE,
    Amount,
    Figures,
    measure,
)
from loadtest.jobs.systems import CONCURRENCY, LIST_LENGTH
from loadtest.report import Report, Target, bold, count, spread, table
from loadtest.rounds import describe_loads

__all__ = ["QUICK", "TARGETS", "WHOLE", "add_options", "measure_reports", "report"]

_HOW = (
    "One redis-server for all, one replica and one runner of each of ours, one worker of arq's; a "
    "target that says 200 at once (nginx, on loopback), {concurrency} calls at a time. {rounds}, "
    "one system after the other, each round beginning with another; medians of the rounds, ± is "
    "half the distance between the best and the worst. Callers, replicas, workers, Redis, SQL and "
    "the target shared this machine. {loads}"
)
_WHAT = (
    "*Submitted*: so many callers, each submitting again as soon as it is answered, while nothing "
    "is called; *as lists*: by two callers, each list one request. "
    "*Executed*: from the queue that this left, by a worker that was just started: the "
    "calls that the target saw, from the first tenth to the last. *Both at once*: "
    "{most} callers submit while the worker works, until the last job was called. CPU is ms a job: "
    "*caller* (a client that writes prepared requests and reads next to nothing; arq's own), "
    "*replica*, *worker* (ours: the runner), *Redis*, *SQL* (the server; SQLite works within "
    "replica and worker)."
)
_DIFFERS = (
    "**What differs.** A job of ours is an HTTP request to a replica, which checks it, and is in "
    "SQL, flushed to the disk, before it is answered (202); its result is too, before its place "
    "is free. arq's callers speak to Redis themselves, and that is all there is: no endpoint with "
    "tokens, no SQL, and what Redis loses is lost (this one writes nothing to the disk). arq calls "
    "a Python function; here that makes the same POST with aiohttp and returns the answer. It has "
    "no rate, no priority, no position, no breaker; its bound of {concurrency} at a time is "
    "each worker's own, ours is exact over all runners. arq's worker looks at its queue every "
    "{own:g} s by itself; for these figures it looks every {delay:g} s, with which it was quickest."
)
_VERSIONS = (
    "arq {arq}, in an environment of its own: it wants redis-py below 6 (it has {theirs}, "
    "Waitroom {ours})."
)
_SINGLE = (
    "One job while nothing else happens, ms from its submission on. *Called*: the target hears of "
    "it. *Done*: seen by somebody who looks every 2 ms; arq's worker looks every {delay:g} s for "
    "these two. *Reported*: to a caller who waits for it in the way that is meant: `?wait=20`, and "
    "arq's `result()` with a worker that looks every {own:g} s, both arq's defaults."
)
_IDLE = (
    "A worker without jobs, for {seconds:g} s, as a minute. Of ours that is a runner with its "
    "reconciler and callbacks, on SQLite. Commands are those sent to Redis, statements those "
    "sent to SQL."
)
_TITLES = {
    **{f"submit {callers}": f"submitted, {callers} callers" for callers in CALLERS},
    "submit list": f"submitted as lists of {LIST_LENGTH}",
    "execute": "executed",
    "both": "both at once",
}
#: The CPU time per minute that an idle runner with 20 targets may take.
IDLE_MS = 100
TARGETS = (
    Target("jobs executed/s, over arq's ([jobs.md](jobs.md))", "≥ 1"),
    Target("an idle runner with 20 targets, CPU a minute ([jobs.md](jobs.md))", f"≤ {IDLE_MS} ms"),
)
KINDS = ("caller", "replica", "worker", "Redis", "SQL")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, help="another number of jobs per number of callers")


def measure_reports(amount: Amount) -> Iterator[Report]:
    yield report(uvloop.run(measure(amount)))


def report(figures: Figures) -> Report:
    values = {
        "concurrency": CONCURRENCY,
        "rounds": count(figures.amount.rounds, "round"),
        "loads": describe_loads(figures.loads),
        "own": OWN_DELAY_S,
        "delay": figures.poll_delay_s,
        "most": CALLERS[-1],
        "seconds": figures.amount.idle_s,
        "arq": figures.versions["arq"],
        "theirs": figures.versions["arq's redis-py"],
        "ours": figures.versions["our redis-py"],
    }
    parts = [
        _HOW.format(**values),
        *bold(figures.problems),
        f"{_DIFFERS} {_VERSIONS}".format(**values),
        "## Jobs a second",
        _WHAT.format(**values),
        _rate_table(figures),
        "## One job, on an idle machine",
        _SINGLE.format(**values),
        _single_table(figures),
        "## A worker that has nothing to do",
        _IDLE.format(**values),
        _idle_table(figures.idle),
    ]
    return Report(
        "jobs",
        "Jobs, measured",
        parts,
        figures,
        problems=figures.problems,
        targets=_reached_targets(figures),
    )


def _reached_targets(figures: Figures) -> list[Target]:
    ours, theirs = (figures.rates["execute", name] for name in ("Waitroom, SQLite", "arq"))
    pairs = zip(ours, theirs, strict=True)
    ratio = median(one.per_second / other.per_second for one, other in pairs)
    cpu_ms = next(idle.cpu_ms for idle in figures.idle if "20 targets" in idle.name)
    return [
        replace(TARGETS[0], is_reached=ratio >= 1, figure=f"{ratio:.2f}"),
        replace(TARGETS[1], is_reached=cpu_ms <= IDLE_MS, figure=f"{cpu_ms:,.0f} ms"),
    ]


def section(figures: Figures) -> str:
    """Return the section of jobs in the report of `make bench`."""
    head = ["jobs a second", *figures.systems]
    rows = [
        [title, *(_median_rate(figures, what, system) for system in figures.systems)]
        for what, title in _TITLES.items()
    ]
    note = (
        "From submission to result against a target that says 200 at once; what differs between "
        "the two, what a job costs and what a runner that has nothing to do: [jobs.md](jobs.md)."
    )
    return "\n\n".join(["## Jobs", table(head, rows), note])


def _median_rate(figures: Figures, what: str, system: str) -> str:
    rates = figures.rates.get((what, system))
    return f"{median(rate.per_second for rate in rates):,.0f}" if rates else ""


def _rate_table(figures: Figures) -> str:
    rows = []
    for what, title in _TITLES.items():
        for system in figures.systems:
            if (what, system) not in figures.rates:
                continue
            rates = figures.rates[what, system]
            per_second = [rate.per_second for rate in rates]
            # While a worker executes a queue, the caller only watches.
            unmeasured = set() if what.startswith("submit") else {"caller"}
            cpu = (
                f"{median(rate.cpu_us[kind] for rate in rates) / 1000:.2f}"
                if kind in rates[0].cpu_us.keys() - unmeasured else ""
                for kind in KINDS
            )  # fmt: skip
            rows.append([title, system, f"{median(per_second):,.0f}", spread(per_second), *cpu])
    return table(["", "", "jobs/s", "", *KINDS], rows, words=2)


def _single_table(figures: Figures) -> str:
    rows = []
    for system in figures.systems:
        watched, reported = (figures.singles[system, way] for way in ("watched", "reported"))
        times = (
            [job.called_ms for job in watched],
            [job.seen_ms for job in watched],
            [job.seen_ms for job in reported],
        )
        rows.append([system, *(f"{median(times_ms):.0f}" for times_ms in times)])
    return table(["median, ms", "called", "done", "reported"], rows)


def _idle_table(workers: list[Idle]) -> str:
    rows = [
        [
            idle.name, f"{idle.cpu_ms:,.0f}", f"{idle.redis_cpu_ms:,.0f}", f"{idle.commands:,.0f}",
            "" if idle.statements is None else f"{idle.statements:,.0f}",
        ]
        for idle in workers
    ]  # fmt: skip
    head = ["a minute", "CPU, ms", "Redis' CPU, ms", "commands to Redis", "statements to SQL"]
    return table(head, rows)
