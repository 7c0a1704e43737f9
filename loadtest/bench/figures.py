"""Medians and paired ratios of runs.

A ratio compares two runs of the same round, which ran one after the other, so that other load on
the machine slowed both. The result is the median of the ratios of all rounds.
"""

from collections.abc import Callable, Iterable
from statistics import median

from loadtest.bench.runs import Run

Value = Callable[[Run], float]

KINDS = ("nginx", "replicas", "redis", "origin")


def per_second(run: Run) -> float:
    return run.per_second


class Figures:
    """All runs of a benchmark. `lost` has a line for each failed run."""

    def __init__(self, runs: Iterable[Run], lost: Iterable[str] = ()) -> None:
        self.runs, self.lost = list(runs), list(lost)

    def of(self, workload: str, system: str) -> list[Run]:
        return [r for r in self.runs if (r.workload, r.system) == (workload, system)]

    def systems(self, workload: str) -> list[str]:
        return list(dict.fromkeys(r.system for r in self.sorted() if r.workload == workload))

    def sorted(self) -> list[Run]:
        order = ("plain", "bare", "waitroom", "lua")
        return sorted(self.runs, key=lambda run: order.index(run.system))

    def median(self, workload: str, system: str, value: Value) -> float | None:
        values = [value(run) for run in self.of(workload, system)]
        return median(values) if values else None

    def ratio(self, workload: str, system: str, to: str, value: Value) -> float | None:
        """Return the median of the ratios of all rounds, or None if a system was not measured."""
        others = {run.round: value(run) for run in self.of(workload, to)}
        ratios = [
            value(run) / others[run.round]
            for run in self.of(workload, system)
            if others.get(run.round)
        ]
        return median(ratios) if ratios else None

    def spread(self, workload: str, system: str, value: Value) -> float | None:
        """Return half the range of the values, divided by the median."""
        values = [value(run) for run in self.of(workload, system)]
        if not values or not median(values):
            return None
        return (max(values) - min(values)) / 2 / median(values)

    def overshoot(self, system: str) -> int | None:
        """Return the highest number of visitors above the cap in any run."""
        return max((r.overshoot for r in self.runs if r.system == system and r.cap), default=None)

    def memory_mb(self, workload: str, system: str) -> float | None:
        """Return the highest memory usage of a replica in these runs."""
        return max((run.memory_mb for run in self.of(workload, system)), default=None)

    def problems(self) -> list[str]:
        spoiled = [
            f"{run.system}, {run.workload}, round {run.round + 1}: {problem}"
            for run in self.runs
            for problem in run.problems
        ]
        return self.lost + spoiled
