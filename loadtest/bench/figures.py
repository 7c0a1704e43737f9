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
    #: Where the time goes, and what would reach it.
    why_not: str = ""


_INSIDE = (
    "three quarters in nginx: the question is a second request inside nginx, and the kept verdict "
    "a file that is opened and read. The rest in the replicas: each of the 2,000 passes is used a "
    "few times a second and its verdict kept for two to three seconds, so about every eighth "
    "request asks. The Lua design believes an unsigned cookie and asks nobody. A signature that "
    "nginx checks by itself (secure_link) would bring it nearer; a pass that nginx believes "
    "cannot be released, and verdicts kept longer let a released pass live longer."
)
_FLOOD = (
    "all of it in nginx: the kept verdict is a file that is opened and read, and the page is sent "
    "with every answer. The Lua design sends a redirect, and its page is not counted."
)
_POLLS = (
    "two thirds in the replicas: aiohttp alone takes some 60 µs for an empty answer, and the rest "
    "is a signature to verify, the share of a batch, the document. Waitroom gains by polling five "
    "times less, and spends that on Python. A replica without Python's HTTP would reach it, or "
    "polls that nginx answers from a page of positions written once a second."
)
_JOINS = (
    "two thirds in the replicas: aiohttp, an identity and a signature for each newcomer, the share "
    "of a batch. A replica without Python's HTTP would reach it."
)


def targets(figures: Figures) -> list[Target]:
    rows = []

    def ratio(  # noqa: PLR0913, PLR0917 - a row of a table
        what: str,
        workload: str,
        to: str,
        value: Value,
        bound: float,
        why_not: str,
        *,
        most: bool = False,
    ) -> None:
        found = figures.ratio(workload, "waitroom", to, value)
        wanted = f"{'at most' if most else 'at least'} {bound:g} times {_NAMES[to]}"
        if found is None:
            rows.append(Target(what, wanted, None, "not measured"))
        else:
            reached = found <= bound if most else found >= bound
            rows.append(Target(what, wanted, reached, f"{found:.2f} times", why_not))

    ratio("visitors inside, requests/s", "admitted", "lua", per_second, 1.2, _INSIDE)
    ratio("visitors inside, requests/s", "admitted", "plain", per_second, 0.8, _INSIDE)
    ratio("flood without cookies, requests/s", "flood", "lua", per_second, 2, _FLOOD)
    ratio(
        "CPU per waiting visitor and minute, 100,000 waiting", "deep", "lua",
        lambda run: run.cpu_per_waiting_minute, 0.5, _POLLS, most=True,
    )  # fmt: skip
    ratio(
        "newcomers let in per CPU second", "newcomers", "lua",
        lambda run: run.joins_per_cpu_second, 0.6, _JOINS,
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
