"""Measured runs of several cases, which take turns in rounds.

Ratios compare runs of the same round, so that other load on the machine slowed both.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import median
from typing import Any, Generic, TypeAlias, TypeVar

Item = TypeVar("Item")
Case = TypeVar("Case")
Run = TypeVar("Run")
#: A value of a run: the name of an attribute, or a function.
Value: TypeAlias = str | Callable[[Any], Any]


@dataclass(slots=True)
class Rounds(Generic[Case, Run]):
    """The runs of each case by the number of the round."""

    number: int
    runs: dict[Case, dict[int, Run]] = field(default_factory=dict)
    #: The machine's load average at the start of each round.
    loads: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def turns(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        """Yield all items once a round. Each round begins with a different item."""
        step = max(1, len(items) // self.number)
        for number in range(self.number):
            self.loads.append(os.getloadavg()[0])
            first = number * step % len(items)
            yield [*items[first:], *items[:first]]

    def add(self, case: Case, run: Run) -> None:
        """Add the run of a case in this round with its problems, and print its rate."""
        self.runs.setdefault(case, {})[len(self.loads) - 1] = run
        name = ", ".join(map(str, case)) if isinstance(case, tuple) else str(case)
        for problem in getattr(run, "problems", ()):
            self.problems.append(f"{name}, round {len(self.loads)}: {problem}")
        rate = getattr(run, "per_second", None)
        ending = "" if rate is None else f"{rate:10,.0f}/s"
        print(f"{len(self.loads)}/{self.number} {name:60}{ending}", flush=True)

    def of(self, case: Case) -> list[Run]:
        return list(self.runs.get(case, {}).values())

    def values(self, case: Case, value: Value) -> list[float]:
        return list(map(_getter(value), self.of(case)))

    def median(self, case: Case, value: Value) -> float:
        return float(median(self.values(case, value)))

    def spread(self, case: Case, value: Value) -> str:
        """Return half the distance between the best and the worst round, relative to the median;
        "" for a single round."""
        values = self.values(case, value)
        half = (max(values) - min(values)) / 2 / median(values)
        return f"±{half:.0%}" if len(values) > 1 else ""

    def ratio(self, case: Case, other: Case, value: Value) -> float:
        """Return the median of the rounds' ratios of a case to another. Raises StatisticsError if
        no round has both."""
        get, ours, theirs = _getter(value), self.runs.get(case, {}), self.runs.get(other, {})
        shared = ours.keys() & theirs.keys()
        return float(median(get(ours[n]) / get(theirs[n]) for n in shared if get(theirs[n])))

    def __str__(self) -> str:
        loads = ", ".join(f"{load:.1f}" for load in self.loads)
        return f"The machine's load when each round began: {loads}."


def _getter(value: Value) -> Callable[[Any], Any]:
    return attrgetter(value) if isinstance(value, str) else value
