"""What a decision about a rate limit costs, beside the `limits` library: `make bench-limits`.

cases.py has what is measured, http.py how replicas are asked; race.py counts what is let through.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from statistics import median, quantiles

import uvloop
from matplotlib.figure import Figure

from loadtest.limits import cases, race
from loadtest.limits.cases import Calls
from loadtest.limits.measure import QUICK, WHOLE, Amount, Figures, measure
from loadtest.report import (
    OURS,
    PLAIN,
    Report,
    Target,
    bold,
    count,
    median_of,
    new_figure,
    spread,
    table,
)
from loadtest.rounds import describe_loads

__all__ = ["QUICK", "TARGET", "WHOLE", "add_options", "measure_reports", "report"]

_HOW = (
    "One redis-server (unix socket) for all; {rounds}, {amount.seconds:g} s a case "
    "after {amount.warming_s:g} s of warming, one case after the other, each round beginning "
    "elsewhere; medians of the rounds, ± is half the distance between the best and the worst. "
    "The caller, the replica and Redis shared this machine. `limits` is version {version}, with "
    "redis-py as Waitroom has it. All tasks run in one event loop (uvloop). "
    "{loads}"
)
_WAYS = (
    "*tasks*: so many in one process, each asking for one call after the other; *lists*: calls "
    "that were collected by the caller. Without HTTP that is the code of a replica "
    "(`LimitStore`), beside the library in the same place; *HTTP* is one replica that is asked "
    "over loopback, by the Python client, or by a client that writes prepared requests and reads "
    "next to nothing. A *pipeline* has the library's own script for each call; the library has no "
    "call for that. CPU is µs a decision."
)
_CALLS: dict[Calls, str] = {
    "granted": "1,000 keys in turn, each with a limit that nobody reaches: all are let through.",
    "refused": "One key with a limit of 20 a second, which all want: nearly all are refused.",
}
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
    *((f"HTTP, its client, {count(n, 'task')}", f"async, {count(n, 'task')}") for n in cases.TASKS),
    *((count(n, "task"), f"async, {count(n, 'task')}") for n in cases.TASKS),
    (f"lists of {cases.LIST:,}", f"async, pipelines of {cases.LIST:,}"),
    (f"HTTP, lists of {cases.LIST:,}", f"async, pipelines of {cases.LIST:,}"),
)
_COMPARISON = (
    "A sliding window, and the library's moving window, both exact; 1,000 keys, all let through. "
    "The first rows are what a program has: Waitroom's Python client and a replica, beside the "
    "library in the program. The next rows are a replica's code in the library's place, without "
    "HTTP. The ratio is the median of the rounds' ratios."
)
_RACE = (
    "A limit of 20 a second. One call as a second begins; {racers} racers, of {callers} callers "
    "with connections of their own, come {late:g} s later and ask every {rest:g} ms, for "
    "{seconds:g} s. Counted is when they had their leave, in any {looked:g} s, so that the way of "
    "an answer counts for nobody. {races}; the worst of each."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, help="another duration of a run")


def measure_reports(amount: Amount) -> Iterator[Report]:
    yield report(uvloop.run(measure(amount)))


def report(figures: Figures) -> Report:
    how = _HOW.format(
        amount=figures.amount, rounds=count(figures.amount.rounds, "round"),
        version=version("limits"), loads=describe_loads(figures.loads),
    )  # fmt: skip
    parts = [
        how,
        *bold(figures.problems),
        "## Like beside like",
        _COMPARISON,
        _comparison(figures),
        "## Decisions a second",
        _WAYS,
        "![Decisions a second](limits.svg)",
    ]
    for calls, description in _CALLS.items():
        parts += [description, _table(figures, calls)]
    parts += [
        "## One decision, on an idle machine",
        _singles(figures),
        "## A crowd",
        _RACE.format(
            racers=race.RACERS, callers=race.CALLERS, late=race.LATE_S, rest=1000 * race.REST_S,
            seconds=figures.amount.racing_s, looked=race.LOOKED_AT_S,
            races=count(figures.amount.races, "race"),
        ),
        _races(figures),
    ]  # fmt: skip
    return Report(
        "limits", "Rate limits, measured", parts, figures, {"limits.svg": _chart(figures)},
        figures.problems, [_target(figures)],
    )  # fmt: skip


def _rates(figures: Figures, system: str, algorithm: str, way: str) -> list[float]:
    """Return the decisions a second of each round."""
    wanted = (system, algorithm, "granted", way)
    [case] = [c for c in figures.cases if (c.system, c.algorithm, c.calls, c.way) == wanted]
    return [run.per_second for run in figures.of(case)]


def _compare(figures: Figures, way: str, library_way: str) -> tuple[float, float, float]:
    """Return the medians of Waitroom's and the library's rates, and of their ratios."""
    ours = _rates(figures, "Waitroom", "sliding_window", way)
    theirs = _rates(figures, "limits", cases.PAIRS["sliding_window"], library_way)
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    return median(ours), median(theirs), ratio


def _comparison(figures: Figures) -> str:
    rows = []
    for way, library_way in _COMPARED:
        ours, theirs, ratio = _compare(figures, way, library_way)
        rows.append([way, f"{ours:,.0f}", library_way, f"{theirs:,.0f}", f"{ratio:.2f}"])
    head = ["Waitroom", "decisions/s", "limits", "decisions/s", "ratio"]
    return table(head, rows, words=1)


def _target(figures: Figures) -> Target:
    lesser = min(_compare(figures, *ways)[2] for ways in _COMPARED[1 : len(cases.TASKS)])
    return replace(TARGET, is_reached=lesser >= 1, figure=f"{lesser:.2f}", why_not=_WHY_NOT)


def _table(figures: Figures, calls: Calls) -> str:
    rows = []
    for case in (case for case in figures.cases if case.calls == calls):
        runs = figures.of(case)
        rates = [run.per_second for run in runs]
        rows.append([
            case.system, case.algorithm, case.way, f"{median(rates):,.0f}", spread(rates),
            f"{median_of(runs, lambda run: run.redis_us):.1f}",
            f"{median_of(runs, lambda run: run.asking_us):.1f}",
            f"{median_of(runs, lambda run: run.replica_us):.1f}" if case.pids else "",
        ])  # fmt: skip
    head = ["", "algorithm", "asked by", "decisions/s", "", "Redis", "caller", "replica"]
    return table(head, rows, words=3)


def _singles(figures: Figures) -> str:
    rows = []
    for name, singles in figures.singles.items():
        durations_ms = [single.ms for single in singles]
        p99_ms = quantiles(durations_ms, n=100)[98]
        redis_us = median(single.redis_us for single in singles)
        rows.append([name, f"{median(durations_ms):.2f}", f"{p99_ms:.2f}", f"{redis_us:.0f}"])
    return table(["", "median, ms", "p99, ms", "Redis, µs of CPU"], rows)


def _races(figures: Figures) -> str:
    rows = []
    for name in dict.fromkeys(each.name for each in figures.races):
        races = [each for each in figures.races if each.name == name]
        most, granted = max(each.most for each in races), max(each.granted for each in races)
        rows.append([name, races[0].promise, f"{most}", f"{granted}"])
    return table(["", "what it promises", "in the worst second", "in all"], rows, words=2)


def _chart(figures: Figures) -> Figure:
    """Draw the calls that are let through, the slowest at the bottom."""
    granted = [case for case in figures.cases if case.calls == "granted"]
    pairs = sorted((median(run.per_second for run in figures.of(c)), c.name) for c in granted)
    figure = new_figure(9, 0.28 * len(pairs) + 1)
    axes = figure.subplots()
    bars = axes.barh(
        [name for _, name in pairs],
        [rate for rate, _ in pairs],
        color=[OURS if name.startswith("Waitroom") else PLAIN for _, name in pairs],
    )
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.tick_params(axis="y", labelsize=8)
    axes.set(xlabel=f"decisions a second, {len(cases.KEYS['granted']):,} keys, all let through")
    axes.margins(x=0.1)
    return figure
