"""`python -m loadtest.bench [--quick]`: measures, writes the report, stops all it started.

Ends with status 1 where a run served something else than its workload claims.
"""

import argparse
import importlib
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from http.client import HTTPException
from itertools import product
from pathlib import Path
from typing import Any

import uvloop

from loadtest import machine, quiet
from loadtest.bench import long_line, report, scale
from loadtest.bench.bare import Bare
from loadtest.bench.figures import Figures
from loadtest.bench.runs import MeasurementError, Run, System, measure
from loadtest.bench.systems import Plain, in_memory
from loadtest.bench.targets import targets
from loadtest.bench.waitroom import Waitroom
from loadtest.bench.workloads import WORKLOADS, Workload
from loadtest.jobs import measure as jobs
from loadtest.jobs import report as jobs_report
from sidecar.kit.errors import StoreError

ROOT = Path(__file__).resolve().parents[2]
_FAILURES = (
    MeasurementError,
    StoreError,
    OSError,
    RuntimeError,
    HTTPException,
    subprocess.SubprocessError,
)
ROUNDS, SECONDS, RUSH_SECONDS = 5, 3, 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round, into .run/reports")
    parser.add_argument("--only", nargs="+", choices=[w.name for w in WORKLOADS])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-scale", action="store_true", help="leave out what a long line costs")
    parser.add_argument("--no-jobs", action="store_true", help="leave out make bench-jobs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    is_partial = any(
        (options.quick, options.only, options.rounds, options.no_scale, options.no_jobs)
    )
    watch = quiet.begin(quiet.PARTS if is_partial else quiet.REPORTS)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    seconds = 1 if options.quick else SECONDS
    began = time.monotonic()
    figures = compare(rounds, seconds, only=options.only)
    how = f"{rounds} round{'s' * (rounds != 1)}, {seconds} s a run, after a second of warming."
    more = More()

    def write() -> Path:
        folder = watch.folder()
        report.write(
            figures, machine.describe(), folder, how=how, scale=more.scale, sections=more.sections
        )
        return folder

    folder = write()
    # Only now: should one of these fail, the rest is written.
    if not options.no_scale:
        more.add_scale(folder, quick=options.quick)
        folder = write()
    if not options.no_jobs:
        more.add_jobs(folder, quick=options.quick or bool(options.rounds))
        folder = write()
    problems = figures.problems() + more.problems
    for target in targets(figures, folder):
        print(f"{target.what}: {target.figure}, wanted {target.wanted}")
    for problem in problems:
        print(f"PROBLEM {problem}", file=sys.stderr)
    print(f"{folder.relative_to(ROOT)}/bench.md, after {time.monotonic() - began:.0f} s")
    return 1 if problems else 0


def compare(rounds: int, seconds: int, *, only: list[str] | None = None) -> Figures:
    """Every system runs every workload once a round; who begins changes with the round."""
    runs, lost = [], []
    chosen = [workload for workload in WORKLOADS if not only or workload.name in only]
    with ExitStack() as stack:
        if not stack.enter_context(in_memory()):
            print("No /dev/shm: verdicts are on a disk, which costs nginx more.", file=sys.stderr)
        systems = _start(stack)
        for number in range(rounds):
            turn = number % len(systems)
            for workload, system in product(chosen, systems[turn:] + systems[:turn]):
                title = f"{number + 1}/{rounds} {workload.name:10}{system.name:9}"
                try:
                    run = _measure(system, workload, number, seconds)
                except _FAILURES as error:
                    lost.append(f"{system.name}, {workload.name}, round {number + 1}: {error!r}")
                    print(f"{title} LOST {error!r}", flush=True)
                    continue
                if run is not None:
                    runs.append(run)
                    cost = run.cpu_per_1000()
                    print(
                        f"{title}{run.per_second:10,.0f}/s{cost:9.3f} CPU s per 1,000", flush=True
                    )
    return Figures(runs, lost)


def _measure(system: System, workload: Workload, number: int, seconds: int) -> Run | None:
    if workload.is_rush:
        return measure(system, workload.name, number, warm_s=0, seconds=min(seconds, RUSH_SECONDS))
    return measure(system, workload.name, number, warm_s=1, seconds=seconds)


def _start(stack: ExitStack) -> list[System]:
    ours = stack.enter_context(Waitroom())
    systems: list[System] = [ours]
    systems.append(stack.enter_context(Plain(ours.site.origin_port, ours.site.origin)))
    systems.append(stack.enter_context(Bare()))
    try:
        lua = importlib.import_module("loadtest.bench.lua")
        systems.append(stack.enter_context(lua.Lua()))
    except (ImportError, OSError, AssertionError) as error:
        print(f"The Lua design is not measured: {error}", file=sys.stderr)
    return systems


class More:
    """What is measured beside the comparison."""

    def __init__(self) -> None:
        self.scale: dict[str, Any] | None = None
        self.sections: list[str] = []
        self.problems: list[str] = []

    def add_scale(self, folder: Path, *, quick: bool) -> None:
        """What a long line costs the store."""
        self.scale = scale.measure(quick)
        long_line.draw(self.scale, folder)
        self.sections.append(long_line.section(self.scale))

    def add_jobs(self, folder: Path, *, quick: bool) -> None:
        """Jobs a second, with a report of their own."""
        found = uvloop.run(jobs.measure(jobs.QUICK if quick else jobs.WHOLE))
        jobs_report.write(found, machine.describe(), folder)
        self.sections.append(jobs_report.section(found))
        self.problems += found.problems


if __name__ == "__main__":
    try:
        sys.exit(main())
    except quiet.NotQuietError as error:
        sys.exit(f"{error}")
    except KeyboardInterrupt:
        sys.exit(130)
