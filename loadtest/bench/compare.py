"""`make bench`: Waitroom beside plain nginx and a Lua design, in paired, alternating runs.

systems.py, waitroom.py and lua.py have the measured systems, workloads.toml the workloads. runs.py
measures, and targets.py judges.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from itertools import product
from pathlib import Path
from typing import Any

import uvloop
from matplotlib.figure import Figure

from loadtest.amount import option
from loadtest.bench import scale
from loadtest.bench.lua import Lua
from loadtest.bench.runs import NAMES, MeasurementError, Runs, System, measure
from loadtest.bench.systems import Bare, Plain, in_memory
from loadtest.bench.targets import targets
from loadtest.bench.waitroom import Waitroom
from loadtest.jobs import measure as jobs
from loadtest.report import OLD, OURS, PLAIN, Report, Target, count, draw_bars
from sidecar.kit.errors import StoreError


@dataclass(frozen=True, slots=True)
class Workload:
    """A table of workloads.toml."""

    name: str
    title: str
    unit: str
    what: str
    is_rush: bool = False


_FILE = tomllib.loads(Path(__file__).with_name("workloads.toml").read_text())
WORKLOADS = [Workload(**each) for each in _FILE["workloads"]]
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
    rows = targets(runs, rows)
    missed = {row.why_not: row.what for row in rows if row.is_reached is False and row.why_not}
    values = {
        "how": how, "missed": missed, "runs": runs, "workloads": WORKLOADS, "sections": sections
    }  # fmt: skip
    files: dict[str, Figure | str] = {
        "bench-throughput.svg": _draw_throughput(runs), "bench-cpu.svg": _draw_cpu(runs), **charts
    }  # fmt: skip
    return Report("bench", values, data, files, runs.problems, rows)


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
