"""Writes what was measured: limits.md, limits.json with the figures of each round, limits.svg."""

import json
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from loadtest.charts import OURS, PLAIN, new_figure, save
from loadtest.limits import cases, race
from loadtest.limits.cases import Calls, Case
from loadtest.limits.measure import TASKS, THREADS, Figures, Run, Single
from loadtest.machine import Machine, table

_HOW = (
    "One redis-server (unix socket) for all; {rounds}, {amount.seconds:g} s a case "
    "after {amount.warming_s:g} s of warming, one case after the other, each round beginning "
    "elsewhere; medians of the rounds, ± is half the distance between the best and the worst. "
    "The caller, the replica and Redis shared this machine. `limits` is version {version}, with "
    "redis-py as Waitroom has it; it was tried with {tasks} tasks and {threads} threads, and is "
    "measured with as many as made it quickest. All tasks run in one event loop (uvloop). The "
    "machine's load when each round began: {loads}."
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
_RACE = (
    "A limit of 20 a second. One call as a second begins; {racers} racers, of {callers} callers "
    "with connections of their own, come {late:g} s later and ask every {rest:g} ms, for "
    "{seconds:g} s. Counted is when they had their leave, in any {looked:g} s, so that the way of "
    "an answer counts for nobody. {races}; the worst of each."
)


def write(figures: Figures, machine: Machine, folder: Path) -> str:
    """All three files into `folder`; the report's text."""
    folder.mkdir(parents=True, exist_ok=True)
    text = render(figures, machine)
    (folder / "limits.md").write_text(text)
    (folder / "limits.json").write_text(json.dumps(_as_dict(figures, machine), indent=1) + "\n")
    _draw(figures, folder / "limits.svg")
    return text


def render(figures: Figures, machine: Machine) -> str:
    how = _HOW.format(
        amount=figures.amount, rounds=_times(figures.amount.rounds, "round"),
        version=version("limits"), tasks=_either(TASKS), threads=_either(THREADS),
        loads=", ".join(f"{load:.1f}" for load in figures.loads),
    )  # fmt: skip
    parts = [
        "# Rate limits, measured",
        f"{machine}.",
        how,
        *(f"**{problem}.**" for problem in figures.problems),
        "## Decisions a second",
        _WAYS,
        "![Decisions a second](limits.svg)",
    ]
    for calls, said in _CALLS.items():
        parts += [said, _table(figures, calls)]
    parts += [
        "## One decision, on an idle machine",
        _singles(figures),
        "## A crowd",
        _RACE.format(
            racers=race.RACERS, callers=race.CALLERS, late=race.LATE_S, rest=1000 * race.REST_S,
            seconds=figures.amount.racing_s, looked=race.LOOKED_AT_S,
            races=_times(figures.amount.races, "race"),
        ),
        _races(figures),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _times(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _either(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def per_second(run: Run) -> float:
    return run.per_second


def _median(figures: Figures, case: Case, value: Callable[[Run], float]) -> float:
    return median(value(run) for run in figures.of(case))


def _table(figures: Figures, calls: Calls) -> str:
    rows = []
    for case in figures.cases:
        if case.calls != calls:
            continue
        rates = [run.per_second for run in figures.of(case)]
        replica_us = _median(figures, case, lambda run: run.replica_us)
        rows.append([
            case.system, case.algorithm, case.way, f"{median(rates):,.0f}",
            f"±{(max(rates) - min(rates)) / 2 / median(rates):.0%}" if len(rates) > 1 else "",
            f"{_median(figures, case, lambda run: run.redis_us):.1f}",
            f"{_median(figures, case, lambda run: run.asking_us):.1f}",
            f"{replica_us:.1f}" if case.pids else "",
        ])  # fmt: skip
    head = ["", "algorithm", "asked by", "decisions/s", "", "Redis", "caller", "replica"]
    return table(head, rows, words=3)


def _singles(figures: Figures) -> str:
    rows = []
    for name, of in figures.singles.items():
        half, most = _latency(of)
        redis_us = median(single.redis_us for single in of)
        rows.append([name, f"{half:.2f}", f"{most:.2f}", f"{redis_us:.0f}"])
    return table(["", "median, ms", "p99, ms", "Redis, µs of CPU"], rows)


def _latency(of: list[Single]) -> tuple[float, float]:
    """Median and p99, ms."""
    found = [single.ms for single in of]
    return median(found), quantiles(found, n=100)[98]


def _races(figures: Figures) -> str:
    rows = []
    for name in dict.fromkeys(each.name for each in figures.races):
        of = [each for each in figures.races if each.name == name]
        rows.append([
            name, of[0].promise, f"{max(each.most for each in of)}",
            f"{max(each.granted for each in of)}",
        ])  # fmt: skip
    return table(["", "what it promises", "in the worst second", "in all"], rows, words=2)


def _draw(figures: Figures, path: Path) -> None:
    """The calls that are let through, the slowest below."""
    of = [case for case in figures.cases if case.calls == "granted"]
    of.sort(key=lambda case: _median(figures, case, per_second))
    figure = new_figure(9, 0.28 * len(of) + 1)
    axes = figure.subplots()
    bars = axes.barh(
        [case.name for case in of],
        [_median(figures, case, per_second) for case in of],
        color=[OURS if case.system == "Waitroom" else PLAIN for case in of],
    )
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.tick_params(axis="y", labelsize=8)
    axes.set(xlabel=f"decisions a second, {len(cases.KEYS['granted']):,} keys, all let through")
    axes.margins(x=0.1)
    save(figure, path)


def _as_dict(figures: Figures, machine: Machine) -> dict[str, Any]:
    return {
        "machine": machine.as_dict(),
        "limits": version("limits"),
        "amount": asdict(figures.amount),
        "loads": figures.loads,
        "problems": figures.problems,
        "cases": [
            {
                "system": case.system,
                "algorithm": case.algorithm,
                "way": case.way,
                "calls": case.calls,
                "rounds": [asdict(run) for run in figures.of(case)],
            }
            for case in figures.cases
        ],
        "singles": {
            name: {
                "median_ms": _latency(of)[0],
                "p99_ms": _latency(of)[1],
                "redis_us": median(single.redis_us for single in of),
            }
            for name, of in figures.singles.items()
        },
        "races": [asdict(each) for each in figures.races],
    }
