"""`make bench`: Waitroom beside plain nginx and a Lua design, in paired, alternating runs.

systems.py, waitroom.py and lua.py have the measured systems, workloads.toml the workloads. runs.py
measures. Targets of ratios are in targets.toml, those of other measurements in their reports.
"""

import csv
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http.client import HTTPException
from itertools import product
from pathlib import Path
from statistics import StatisticsError
from typing import Any

import uvloop
from matplotlib.figure import Figure

from loadtest import cluster
from loadtest.amount import option
from loadtest.bench import scale
from loadtest.bench.lua import Lua
from loadtest.bench.runs import NAMES, MeasurementError, Runs, System, measure
from loadtest.bench.systems import Bare, Plain, in_memory
from loadtest.bench.waitroom import Waitroom
from loadtest.jobs import measure as jobs
from loadtest.limits.measure import TARGET as LIMITS_TARGET
from loadtest.quiet import REPORTS
from loadtest.report import OLD, OURS, PLAIN, Report, Target, count, draw_bars, read_targets
from sidecar.kit.errors import StoreError


@dataclass(frozen=True, slots=True)
class Workload:
    """A table of workloads.toml."""

    name: str
    title: str
    unit: str
    what: str
    is_rush: bool = False


_TARGETS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text())
_WORKLOADS = tomllib.loads(Path(__file__).with_name("workloads.toml").read_text())
WORKLOADS = [Workload(**each) for each in _WORKLOADS["workloads"]]
#: Memory of a replica while 100,000 wait in its room.
MEMORY_MB = 120
_STEADY = [each for each in WORKLOADS if not each.is_rush]
_COLOURS = dict(zip(NAMES.values(), (PLAIN, "#adb5bd", OURS, OLD), strict=True))
_KIND_COLOURS = {
    "nginx": "#0b7285", "replicas": "#66b2c2", "redis": "#e8590c", "origin": "#ced4da",
}  # fmt: skip
RUSH_SECONDS = 2
_FAILURES = (
    MeasurementError,
    StoreError,
    OSError,
    RuntimeError,
    HTTPException,
    subprocess.SubprocessError,
)


_NAMES = tuple(workload.name for workload in WORKLOADS)


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: int = 3
    only: tuple[str, ...] = option(_NAMES, "these workloads", type=str, nargs="+", choices=_NAMES)
    scale: bool = option(
        True, "without what a long queue costs", "--no-scale", action="store_const", const=False
    )
    jobs: bool = option(
        True, "without make bench-jobs", "--no-jobs", action="store_const", const=False
    )


WHOLE = Amount()
QUICK = Amount(rounds=1, seconds=1)


def measure_reports(amount: Amount) -> Iterator[Report]:
    """Yield the report again after each part, so that a failure does not lose earlier parts."""
    runs = compare(amount)
    how = f"{count(amount.rounds, 'round')}, {amount.seconds} s a run, after a second of warming."
    charts: dict[str, Figure | str] = {}
    sections: list[str] = []
    data: dict[str, Any] = {"how": how, "runs": runs.runs}
    rows: Sequence[Target] = ()

    def write() -> Report:
        return report(runs, how=how, sections=sections, charts=charts, data=data, rows=rows)

    yield write()
    if amount.scale:
        data["scale"] = scale.measure(amount.seconds < WHOLE.seconds)
        charts["scale.svg"] = scale.draw(data["scale"])
        sections.append(scale.section(data["scale"]))
        yield write()
    if amount.jobs:
        made = uvloop.run(jobs.measure(jobs.WHOLE if amount.rounds == WHOLE.rounds else jobs.QUICK))
        report_of_jobs = jobs.report(made)
        yield report_of_jobs
        rows = report_of_jobs.targets
        sections.append(jobs.section(made))
        yield write()


def compare(amount: Amount) -> Runs:
    """Run each workload on each system once a round."""
    runs = Runs(amount.rounds)
    workloads = [workload for workload in WORKLOADS if workload.name in amount.only]
    with ExitStack() as stack:
        if not stack.enter_context(in_memory()):
            print("No /dev/shm: verdicts are on a disk, which costs nginx more.", file=sys.stderr)
        for systems in runs.turns(_start(stack)):
            for workload, system in product(workloads, systems):
                _measure(runs, system, workload, amount.seconds)
    return runs


def _measure(runs: Runs, system: System, workload: Workload, seconds: int) -> None:
    seconds = min(seconds, RUSH_SECONDS) if workload.is_rush else seconds
    try:
        run = measure(system, workload.name, warm_s=0 if workload.is_rush else 1, seconds=seconds)
    except _FAILURES as error:
        lost = f"{workload.name}, {system.name}, round {len(runs.loads)}: {error!r}"
        runs.problems.append(lost)
        print(f"LOST {lost}", flush=True)
        return
    if run is not None:
        runs.add((workload.name, system.name), run)


def _start(stack: ExitStack) -> list[System]:
    ours = stack.enter_context(Waitroom())
    systems: list[System] = [ours]
    systems.append(stack.enter_context(Plain(ours.site)))
    systems.append(stack.enter_context(Bare()))
    try:
        systems.append(stack.enter_context(Lua()))
    except (OSError, AssertionError) as error:
        print(f"The Lua design is not measured: {error}", file=sys.stderr)
    return systems


def report(  # noqa: PLR0913 - what a report is made of
    runs: Runs, *, how: str, sections: Sequence[str], charts: dict[str, Figure | str], data: Any,
    rows: Sequence[Target],
) -> Report:  # fmt: skip
    """Build the report. `rows` are the targets of jobs."""
    rows = _judge(runs, rows)
    missed = {row.why_not: row.what for row in rows if row.is_reached is False and row.why_not}
    values = {
        "how": how, "missed": missed, "runs": runs, "workloads": WORKLOADS, "sections": sections
    }  # fmt: skip
    files: dict[str, Figure | str] = {
        "bench-throughput.svg": _draw_throughput(runs), "bench-cpu.svg": _draw_cpu(runs), **charts
    }  # fmt: skip
    return Report("bench", values, data, files, runs.problems, rows)


def _judge(runs: Runs, of_jobs: Sequence[Target]) -> list[Target]:
    """Return all rows of the table. `of_jobs` are those of jobs, if these were measured too."""
    loads = _read_loads()
    return [
        *(_judge_ratio(runs, **ratio) for ratio in _TARGETS["ratios"]),
        *(
            replace(row, what=f"{row.what} ([loadtest.md](loadtest.md))")
            for row in (target.judge(loads) for target in cluster.TARGETS)
        ),
        *(read_targets(REPORTS, "limits") or [LIMITS_TARGET]),
        *(of_jobs or read_targets(REPORTS, "jobs") or jobs.TARGETS),
        _judge_overshoot(runs, loads),
        _judge_memory(runs),
    ]


def _judge_ratio(  # noqa: PLR0913 - what a table of targets.toml has
    runs: Runs, *, what: str, workload: str, value: str, bound: float, reason: str,
    of: str = "waitroom", to: str = "lua", is_most: bool = False,
) -> Target:  # fmt: skip
    wanted = f"{'≤' if is_most else '≥'} {bound:g}"
    try:
        ratio = runs.ratio((workload, of), (workload, to), value)
    except StatisticsError:
        return Target(what, wanted)
    is_reached = ratio <= bound if is_most else ratio >= bound
    return Target(what, wanted, is_reached, f"{ratio:.2f}", _TARGETS["reasons"][reason])


def _read_loads() -> list[dict[str, Any]]:
    """Return the steps of the last `make loadtest`."""
    file = REPORTS / "loadtest.csv"
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def _judge_overshoot(runs: Runs, loads: Sequence[dict[str, Any]]) -> Target:
    """Judge all runs with a cap, including those of `make loadtest`."""
    found: dict[str, list[int]] = {"waitroom": [], "lua": []}
    for (_, system), by_round in runs.runs.items():
        found.setdefault(system, []).extend(run.overshoot for run in by_round.values() if run.cap)
    for load in loads:
        peaks = (load["peak sessions"], load["peak at the origin"])
        found["waitroom"] += [max(0, int(peak) - int(load["cap"])) for peak in peaks if peak]
    target = Target("visitors above the cap, most of all runs", "0")
    if found["waitroom"]:
        most = max(found["waitroom"])
        target = replace(target, is_reached=most == 0, figure=f"{most:,}")
    beside = f" (Lua design: {max(found['lua']):,})" if found["lua"] else ""
    return replace(target, figure=target.figure + beside)


def _judge_memory(runs: Runs) -> Target:
    memory_mb = max((run.memory_mb for run in runs.of(("deep", "waitroom"))), default=None)
    target = Target("peak memory of a replica with 100,000 waiting", f"≤ {MEMORY_MB} MB")
    if memory_mb is None:
        return target
    return replace(target, is_reached=memory_mb <= MEMORY_MB, figure=f"{memory_mb:.0f} MB")


def _draw_throughput(runs: Runs) -> Figure:
    """Draw requests, arrivals or polls a second, by workload and system."""
    rows = {
        f"{workload.title} · {system}": {system: runs.median(case, "per_second")}
        for workload in _STEADY
        for case, system in runs.cases(workload.name).items()
    }
    return draw_bars(rows, _COLOURS, "per second (more is better)", ",.0f")


def _draw_cpu(runs: Runs) -> Figure:
    """Draw CPU per 1,000, by kind of process."""
    rows = {
        f"{workload.title} · {system}": {
            kind: value for kind, value in runs.cpu_by_kind(case).items() if value is not None
        }
        for workload in _STEADY
        for case, system in runs.cases(workload.name).items()
    }
    return draw_bars(rows, _KIND_COLOURS, "CPU seconds per 1,000 (less is better)", ".2f")
