"""`make bench`: Waitroom beside plain nginx and a Lua design, in paired, alternating runs.

systems.py, waitroom.py and lua.py have the measured systems, workloads.py the workloads. runs.py
measures, and figures.py computes medians and ratios.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from itertools import product
from typing import Any

import uvloop
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from loadtest import quiet
from loadtest.bench import scale
from loadtest.bench.figures import KINDS, Figures, per_second
from loadtest.bench.lua import Lua
from loadtest.bench.runs import MeasurementError, Run, System, measure
from loadtest.bench.systems import Bare, Plain, in_memory
from loadtest.bench.targets import targets
from loadtest.bench.waitroom import Waitroom
from loadtest.bench.workloads import WORKLOADS
from loadtest.jobs import measure as jobs
from loadtest.jobs import report as jobs_report
from loadtest.report import OLD, OURS, PLAIN, Report, Target, count, new_figure, table
from loadtest.rounds import rounds
from sidecar.kit.errors import StoreError

NAMES = {
    "plain": "plain nginx", "bare": "bare handlers", "waitroom": "Waitroom", "lua": "Lua design",
}  # fmt: skip
_COLOURS = {"plain": PLAIN, "bare": "#adb5bd", "waitroom": OURS, "lua": OLD}
_KIND_COLOURS = {
    "nginx": "#0b7285", "replicas": "#66b2c2", "redis": "#e8590c", "origin": "#ced4da",
}  # fmt: skip
_SHARED = (
    "wrk, nginx (one worker each), Redis, the replicas and the site shared this machine, so "
    "figures compare the systems with each other and promise nothing about yours. What is "
    "measured and how: [docs/benchmark.md](../../docs/benchmark.md)."
)
_ROUNDS = (
    "Medians of the rounds; ± is half the distance between the best and the worst round. "
    "wrk keeps 64 requests in flight, so latency is that of a saturated system. CPU of nginx and "
    "the replicas is for one request, arrival or poll; it varies less than throughput."
)
_CPU_NOTE = (
    "CPU seconds per 1,000 (user and system, all processes of a kind; nginx with its master). "
    "`own` is everything but the site."
)
_TARGETS_NOTE = (
    "Ratios are medians of the rounds' ratios. Where another report is named, it is from there."
)
_STEADY = [each for each in WORKLOADS if not each.is_rush]
RUSH_SECONDS = 2
_FAILURES = (
    MeasurementError,
    StoreError,
    OSError,
    RuntimeError,
    HTTPException,
    subprocess.SubprocessError,
)


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: int = 3
    #: Names of workloads.
    only: tuple[str, ...] = tuple(workload.name for workload in WORKLOADS)
    #: Whether to measure the cost of a long queue, and to run `make bench-jobs`.
    scale: bool = True
    jobs: bool = True


WHOLE = Amount()
QUICK = Amount(rounds=1, seconds=1)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", choices=WHOLE.only, help="these workloads")
    for name, what in (("scale", "what a long queue costs"), ("jobs", "make bench-jobs")):
        parser.add_argument(
            f"--no-{name}", dest=name, action="store_const", const=False, help=f"without {what}"
        )


def measure_reports(amount: Amount) -> Iterator[Report]:
    """Yield the report again after each part, so that a failure does not lose earlier parts."""
    figures = compare(amount)
    how = f"{count(amount.rounds, 'round')}, {amount.seconds} s a run, after a second of warming."
    charts: dict[str, Figure | str] = {}
    sections: list[str] = []
    data: dict[str, Any] = {"how": how, "runs": figures.runs}
    rows: Sequence[Target] = ()

    def write() -> Report:
        return report(figures, how=how, sections=sections, charts=charts, data=data, rows=rows)

    yield write()
    if amount.scale:
        data["scale"] = scale.measure(amount.seconds < WHOLE.seconds)
        charts["scale.svg"] = scale.draw(data["scale"])
        sections.append(scale.section(data["scale"]))
        yield write()
    if amount.jobs:
        made = uvloop.run(jobs.measure(jobs.WHOLE if amount.rounds == WHOLE.rounds else jobs.QUICK))
        report_of_jobs = jobs_report.report(made)
        yield report_of_jobs
        rows = report_of_jobs.targets
        sections.append(jobs_report.section(made))
        yield write()


def compare(amount: Amount) -> Figures:
    """Run each workload on each system once a round."""
    runs, lost = [], []
    workloads = [workload for workload in WORKLOADS if workload.name in amount.only]
    with ExitStack() as stack:
        if not stack.enter_context(in_memory()):
            print("No /dev/shm: verdicts are on a disk, which costs nginx more.", file=sys.stderr)
        for number, systems in rounds(amount.rounds, _start(stack)):
            for workload, system in product(workloads, systems):
                title = f"{number + 1}/{amount.rounds} {workload.name:10}{system.name:9}"
                seconds = min(amount.seconds, RUSH_SECONDS) if workload.is_rush else amount.seconds
                warm_s = 0 if workload.is_rush else 1
                try:
                    run = measure(system, workload.name, number, warm_s=warm_s, seconds=seconds)
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
    figures: Figures,
    *,
    how: str,
    sections: Sequence[str] = (),
    charts: dict[str, Figure | str] | None = None,
    data: Any = None,
    rows: Sequence[Target] = (),
) -> Report:
    """Build the report. `rows` are the targets of jobs. Others are read from REPORTS."""
    rows = targets(figures, quiet.REPORTS, rows)
    parts = [
        f"{how} {_SHARED}",
        "## Targets",
        _targets(rows),
        _TARGETS_NOTE,
        *_why_not(rows),
        *_problems(figures),
        "## Throughput and latency",
        "![Throughput by workload](bench-throughput.svg)",
        _throughput(figures),
        _ROUNDS,
        "## Where the time goes",
        "![CPU by workload](bench-cpu.svg)",
        _cpu(figures),
        _CPU_NOTE,
        "## A waiting visitor",
        _waiting(figures),
        "## The cap in a rush",
        _rush(figures),
        *sections,
        "## Workloads",
        "\n".join(f"* **{each.title}.** {each.what}" for each in WORKLOADS),
    ]
    files: dict[str, Figure | str] = {
        "bench-throughput.svg": draw_throughput(figures),
        "bench-cpu.svg": draw_cpu(figures),
        **(charts or {}),
    }
    return Report(
        "bench", "Benchmark", parts, data, files, problems=figures.problems(), targets=rows
    )


def _targets(rows: list[Target]) -> str:
    verdicts = {True: "holds", False: "**does not hold**", None: ""}
    body = [[t.what, t.wanted, t.figure, verdicts[t.is_reached]] for t in rows]
    return table(["what", "target", "reached", ""], body, words=4)


def _why_not(rows: list[Target]) -> list[str]:
    """Return a list of the distinct reasons."""
    missed = [row for row in rows if row.is_reached is False and row.why_not]
    whats = {row.why_not: row.what for row in missed}
    if not whats:
        return []
    return [
        "Where the time goes in what was not reached, and what would reach it:",
        "\n".join(f"* **{what}**: {why}" for why, what in whats.items()),
    ]


def _problems(figures: Figures) -> list[str]:
    found = figures.problems()
    if not found:
        return []
    return [
        "**Runs that did not serve what they should have:**",
        "\n".join(f"* {p}" for p in found),
    ]


def _throughput(figures: Figures) -> str:
    rows = []
    for workload in _STEADY:
        for system in figures.systems(workload.name):

            def mid(value: Callable[[Run], float], w: str = workload.name, s: str = system) -> str:
                return f"{figures.median(w, s, value) or 0:.1f}"

            speed = figures.median(workload.name, system, per_second) or 0
            spread = figures.spread(workload.name, system, per_second) or 0
            rows.append([
                workload.title, NAMES[system], f"{speed:,.0f} {workload.unit}/s",
                f"±{100 * spread:.0f} %", mid(lambda r: r.serving_us),
                mid(lambda r: r.totals.p50_ms),
                mid(lambda r: r.totals.p90_ms), mid(lambda r: r.totals.p99_ms),
            ])  # fmt: skip
    return table(
        ["workload", "system", "throughput", "", "CPU µs, nginx and replicas", "p50 ms", "p90 ms",
         "p99 ms"], rows, words=2
    )  # fmt: skip


def _cpu(figures: Figures) -> str:
    rows = []
    for workload in _STEADY:
        for system in figures.systems(workload.name):
            values = [_kind(figures, workload.name, system, kind) for kind in KINDS]
            cells = ["" if value is None else f"{value:.3f}" for value in values]
            own = sum(value or 0 for value in values[:3])
            rows.append([workload.title, NAMES[system], *cells, f"{own:.3f}",
                         f"{own + (values[3] or 0):.3f}"])  # fmt: skip
    return table(["workload", "system", *KINDS[:3], "site", "own", "all"], rows, words=2)


def _kind(figures: Figures, workload: str, system: str, kind: str) -> float | None:
    if not any(kind in run.cpu for run in figures.of(workload, system)):
        return None
    return figures.median(workload, system, lambda run: run.cpu_per_1000(kind))


def _waiting(figures: Figures) -> str:
    rows = []
    for system in figures.systems("deep"):
        polls = figures.median("deep", system, lambda run: run.polls_per_minute) or 0
        own = figures.median("deep", system, lambda run: 1000 * run.own_cpu / run.arrivals) or 0
        cost = figures.median("deep", system, lambda run: run.cpu_per_waiting_minute) or 0
        rows.append([NAMES[system], f"{polls:.2f}", f"{own:.3f}", f"{cost:.3f}",
                     f"{cost * 100_000 / 60_000:.2f}"])  # fmt: skip
    head = ["100,000 waiting", "polls a minute", "CPU ms per poll",
            "CPU ms per visitor and minute", "cores for all of them"]  # fmt: skip
    return (
        table(head, rows) + "\n\nWaitroom's polls a minute are the mean of what its answers advise "
        "at every place (5,000 slots, five-minute sessions); the Lua design's page asks every "
        "ten seconds. The site is left out."
    )


def _rush(figures: Figures) -> str:
    rows = []
    for system in figures.systems("rush"):
        runs = figures.of("rush", system)
        rows.append([
            NAMES[system], f"{runs[0].cap}",
            ", ".join(f"{run.totals.requests:,}" for run in runs),
            ", ".join(str(run.inside) for run in runs),
            f"{max(run.overshoot for run in runs)}",
        ])  # fmt: skip
    return table(
        ["system", "cap", "newcomers, each round", "let in", "above the cap, at most"], rows
    )


def draw_throughput(figures: Figures) -> Figure:
    """Draw requests, arrivals or polls a second, by workload and system."""
    figure = new_figure(11, 4.2)
    axes = figure.subplots()
    found = [
        {name: value for name in NAMES if (value := figures.median(w.name, name, per_second))}
        for w in _STEADY
    ]
    width = 0.8 / max(1, *map(len, found))
    top = max((value for of in found for value in of.values()), default=1)
    for system in (name for name in NAMES if any(name in of for of in found)):
        bars = axes.bar(
            [i + (list(of).index(system) - (len(of) - 1) / 2) * width
             for i, of in enumerate(found) if system in of],
            values := [of[system] for of in found if system in of], width * 0.92,
            color=_COLOURS[system], label=NAMES[system],
        )  # fmt: skip
        labels = [f"{value / 1000:.1f}k" for value in values]
        axes.bar_label(bars, labels=labels, fontsize=7, padding=1)
    axes.set_xticks(range(len(_STEADY)), [w.title.replace(", ", ",\n") for w in _STEADY])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, top * 1.12)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylabel("per second")
    axes.set_title("Throughput (more is better)", loc="left", fontweight="bold")
    figure.legend(loc="outside upper right", ncols=4)
    return figure


def draw_cpu(figures: Figures) -> Figure:
    """Draw CPU per 1,000, by kind of process."""
    figure = new_figure(9, 5.2)
    # The width of the names differs between machines.
    figure.set_layout_engine("constrained", w_pad=0.1)
    axes = figure.subplots()
    places, names, place = [], [], 0.0
    for workload in _STEADY:
        for system in figures.systems(workload.name):
            left = 0.0
            for kind in KINDS:
                value = _kind(figures, workload.name, system, kind) or 0
                axes.barh(place, value, 0.85, left=left, color=_KIND_COLOURS[kind])
                left += value
            axes.text(left, place, f" {left:.2f}", va="center", fontsize=7)
            places.append(place)
            names.append(f"{workload.title} · {NAMES[system]}")
            place += 1
        place += 0.6
    axes.set_yticks(places, names, fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    axes.set_xlabel("CPU seconds per 1,000")
    axes.set_title("Where the time goes (less is better)", loc="left", fontweight="bold")
    handles = [Patch(color=_KIND_COLOURS[kind]) for kind in KINDS]
    figure.legend(handles, [*KINDS[:3], "site"], loc="outside upper right", ncols=4)
    return figure
