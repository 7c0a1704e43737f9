"""What a live view has seen of a room in the last minutes: rates, and curves of Unicode blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.rooms.statistics import ABANDONED, difference

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waitroom import Room

#: How far back curves go; over how long a figure "a minute" is measured.
SPAN_S = 300.0
RATE_S = 60.0
_BLOCKS = "▁▂▃▄▅▆▇█"
_STEPS = len(_BLOCKS) - 1
#: What counters add up to each figure.
_RATES = {
    "in": ("admitted",),
    "out": ("expired_session", "left_session", "released"),
    "gave up": ABANDONED,
}


@dataclass(frozen=True, slots=True)
class Point:
    at_s: float
    waiting: int
    active: int
    wait_s: int | None
    counters: dict[str, int]


class Trends:
    """By room, what was seen of it, oldest first."""

    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}

    def add(self, room: Room, now_s: float) -> None:
        points = self._points.setdefault(room["room"], deque())
        points.append(
            Point(now_s, room["waiting"], room["active"], room["wait_seconds"], room["counters"])
        )
        while points[0].at_s < now_s - SPAN_S:
            points.popleft()

    def of(self, room: str) -> tuple[Point, ...]:
        return tuple(self._points.get(room, ()))


def rates(points: Sequence[Point]) -> dict[str, float]:
    """How many a minute came in, went and gave up; nothing at the first look."""
    recent = [point for point in points if point.at_s >= points[-1].at_s - RATE_S]
    if len(recent) < 2:
        return {}
    first, last = recent[0], recent[-1]
    happened = difference(last.counters, first.counters)
    scale = 60 / (last.at_s - first.at_s)
    return {
        name: scale * sum(happened.get(counter, 0) for counter in counters)
        for name, counters in _RATES.items()
    }


def curve(seen: Sequence[tuple[float, int]], width: int, *, top: int) -> str:
    """What was seen in the last SPAN_S, or since the first look, as so many blocks at most: each is
    the last value of its part of the time. `top`: what a whole block stands for, if nothing is
    higher."""
    if not seen or width < 1:
        return ""
    times = [at_s for at_s, _ in seen]
    width = min(width, len(seen))
    step_s = (times[-1] - times[0]) / max(1, width - 1)
    highest = max(top, 1, *(value for _, value in seen))
    found = [bisect_right(times, times[0] + number * step_s) - 1 for number in range(width - 1)]
    # Rounded up: nobody is not the same as hardly anybody.
    return "".join(_BLOCKS[-(-seen[at][1] * _STEPS // highest)] for at in (*found, -1))
