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
from loadtest.limits.measure import QUICK, TASKS, THREADS, WHOLE, Amount, Figures, measure
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
    "redis-py as Waitroom has it; it was tried with {tasks} tasks and {threads} threads, and is "
    "measured with as many as made it quickest. All tasks run in one event loop (uvloop). "
    "{loads}"
)
_WAYS = (
    "*tasks*: so many in one process, each asking for one call after the other; *lists*: calls "
    "that were collected by the caller. Without HTTP that is the code of a replica "
    "(`LimitStore`), beside the library in the same place; *HTTP* is one replica that is asked "
    "over loopback, by the Python client, or by a client that writes prepared requests and reads "
    "next to nothing. CPU is µs a decision."
)
_CALLS: dict[Calls, str] = {
    "granted": "1,000 keys in turn, each with a limit that nobody reaches: all are let through.",
    "refused": "One key with a limit of 20 a second, which all want: nearly all are refused.",
}
#: Exact rates are compared with exact ones, simple ones with simple; the lesser ratio counts.
TARGET = Target("limits: decisions/s, over the limits library's ([limits.md](limits.md))", "≥ 5")
_PAIRS = (("sliding_window", "moving window"), ("fixed_window", "fixed window"))
_WHY_NOT = (
    "a decision takes 15 µs of Redis and 10 of a replica, in batches; the library's take 25 and "
    "102. Single rounds gave 4.5 to 6. A replica that decides from a share of the limit would be "
    "quicker, and the limit no longer exact."
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
        version=version("limits"), tasks=_either(TASKS), threads=_either(THREADS),
        loads=describe_loads(figures.loads),
    )  # fmt: skip
    parts = [
        how,
        *bold(figures.problems),
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


def _target(figures: Figures) -> Target:
    def rates(system: str, algorithm: str, way: str) -> list[float]:
        """Return the decisions a second of each round."""
        wanted = (system, algorithm, "granted")
        cases = [c for c in figures.cases if (c.system, c.algorithm, c.calls) == wanted]
        case = next((case for case in cases if way in case.way), None)
        return [run.per_second for run in figures.of(case)] if case else []

    ratios = []
    for ours, theirs in _PAIRS:
        pairs = list(zip(rates("Waitroom", ours, f"{TASKS[-1]} tasks"),
                         rates("limits", theirs, "async"), strict=True))  # fmt: skip
        if pairs:
            ratios.append(median(one / other for one, other in pairs))
    if not ratios:
        return TARGET
    lesser = min(ratios)
    return replace(TARGET, is_reached=lesser >= 5, figure=f"{lesser:.2f}", why_not=_WHY_NOT)


def _either(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


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
