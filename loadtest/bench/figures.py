"""Medians, paired ratios, and the targets. Pure.

A ratio is taken within a round, where the two runs were neighbours, and the median is taken
of the rounds' ratios: what the machine did besides hits both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loadtest.bench.runs import Run

    Value = Callable[[Run], float]

KINDS = ("nginx", "replicas", "redis", "origin")


def per_second(run: Run) -> float:
    return run.per_second


class Figures:
    """All runs, by workload and system; `lost` says which could not be measured, and why."""

    def __init__(self, runs: Iterable[Run], lost: Iterable[str] = ()) -> None:
        self.runs, self.lost = list(runs), list(lost)

    def of(self, workload: str, system: str) -> list[Run]:
        return [r for r in self.runs if (r.workload, r.system) == (workload, system)]

    def systems(self, workload: str) -> list[str]:
        return list(dict.fromkeys(r.system for r in self.sorted() if r.workload == workload))

    def sorted(self) -> list[Run]:
        order = ("plain", "waitroom", "lua")
        return sorted(self.runs, key=lambda run: order.index(run.system))

    def median(self, workload: str, system: str, value: Value) -> float | None:
        values = [value(run) for run in self.of(workload, system)]
        return median(values) if values else None

    def ratio(self, workload: str, system: str, to: str, value: Value) -> float | None:
        """The median of the rounds' ratios; None where a side was not measured."""
        others = {run.round: value(run) for run in self.of(workload, to)}
        ratios = [
            value(run) / others[run.round]
            for run in self.of(workload, system)
            if others.get(run.round)
        ]
        return median(ratios) if ratios else None

    def spread(self, workload: str, system: str, value: Value) -> float | None:
        """Half the range over the median: how far the rounds lie apart."""
        values = [value(run) for run in self.of(workload, system)]
        if not values or not median(values):
            return None
        return (max(values) - min(values)) / 2 / median(values)

    def overshoot(self, system: str) -> int | None:
        """The most visitors above the cap, in any run."""
        return max((r.overshoot for r in self.runs if r.system == system and r.cap), default=None)

    def problems(self) -> list[str]:
        spoiled = [
            f"{run.system}, {run.workload}, round {run.round + 1}: {problem}"
            for run in self.runs
            for problem in run.problems
        ]
        return self.lost + spoiled


@dataclass(frozen=True, slots=True)
class Target:
    what: str
    wanted: str
    #: None: not measured.
    reached: bool | None
    figure: str


def targets(figures: Figures) -> list[Target]:
    rows = []

    def ratio(  # noqa: PLR0913 - a row of a table
        what: str, workload: str, to: str, value: Value, bound: float, *, most: bool = False
    ) -> None:
        found = figures.ratio(workload, "waitroom", to, value)
        wanted = f"{'at most' if most else 'at least'} {bound:g} times {_NAMES[to]}"
        if found is None:
            rows.append(Target(what, wanted, None, "not measured"))
        else:
            reached = found <= bound if most else found >= bound
            rows.append(Target(what, wanted, reached, f"{found:.2f} times"))

    ratio("visitors inside, requests/s", "admitted", "lua", per_second, 1.2)
    ratio("visitors inside, requests/s", "admitted", "plain", per_second, 0.8)
    ratio("flood without cookies, requests/s", "flood", "lua", per_second, 2)
    ratio(
        "CPU per waiting visitor and minute, 100,000 waiting", "deep", "lua",
        lambda run: run.cpu_per_waiting_minute, 0.5, most=True,
    )  # fmt: skip
    ratio(
        "newcomers let in per CPU second", "newcomers", "lua",
        lambda run: run.joins_per_cpu_second, 0.6,
    )  # fmt: skip
    ours, theirs = figures.overshoot("waitroom"), figures.overshoot("lua")
    rows.append(
        Target(
            "visitors above the cap, most of all runs", "0",
            None if ours is None else ours == 0,
            f"{_or_unmeasured(ours)} (Lua design: {_or_unmeasured(theirs)})",
        )
    )  # fmt: skip
    return rows


def _or_unmeasured(value: int | None) -> str:
    return "not measured" if value is None else f"{value:,}"


_NAMES = {"plain": "plain nginx", "waitroom": "Waitroom", "lua": "the Lua design"}
