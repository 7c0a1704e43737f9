"""Computes the range of a wait estimate. The Lua scripts compute the estimate itself
(rooms/lua/parts/estimate_wait.lua), because they set the time of the next poll by it."""

import math

from sidecar.kit.values import value
from sidecar.visitors.model import Standing

#: 80 % of a normal distribution is within this many standard deviations of the mean.
Z_80 = 1.2816
#: The steps to which a range and a single figure are rounded: (longest wait, step), in minutes.
_RANGE_STEPS = ((20, 1), (60, 5), (80, 10), (240, 30), (math.inf, 60))
_FIGURE_STEPS = ((10, 1), (30, 5), (75, 10), (240, 30), (math.inf, 60))
#: The relative change that is expected, during a wait, in the share of visitors who give up.
DRIFT = 0.03


@value
class Wait:
    """An estimated wait in seconds. In four of five cases the true wait is from `low` to `high`."""

    seconds: int
    low: int
    high: int


def estimate(standing: Standing) -> Wait | None:
    """Return the estimated wait with its range, or None if the wait is unknown or being measured.

    Calls come at random times, so the wait for k calls is gamma distributed, with a relative
    variance of 1/k. The error of the measured rate (`spread`) and of the share of visitors who give
    up (`DRIFT`) add to the variance. The quantiles are computed by the approximation of Wilson and
    Hilferty: the cube root of a gamma variable is nearly normal."""
    if standing.wait_ms is None or standing.is_measuring:
        return None
    calls = standing.ahead if standing.calls is None else standing.calls
    variance = 1 / (calls + 1) + standing.spread**2 + DRIFT**2
    seconds = standing.wait_ms / 1000
    middle, side = 1 - variance / 9, Z_80 * math.sqrt(variance) / 3
    low, high = seconds * max(0.0, middle - side) ** 3, seconds * max(0.0, middle + side) ** 3
    return Wait(round(seconds), math.floor(low), math.ceil(high))


def round_range(low_s: float, middle_s: float, high_s: float) -> tuple[int, int]:
    """Return the range to show to the visitor, in minutes (static/waiting.js has the same rule). A
    range of 3:1 or more would frighten more than it tells, so it becomes one figure, which is
    returned twice. The first number is 0 if only the second, an upper bound, is shown."""
    step = _find_step(_RANGE_STEPS, high_s)
    low, high = math.floor(low_s / 60 / step) * step, math.ceil(high_s / 60 / step) * step
    if high < 3 * low:
        return low, high
    step = _find_step(_FIGURE_STEPS, middle_s)
    figure = math.floor(middle_s / 60 / step + 0.5) * step
    return (figure, figure) if figure > 1 else (0, math.ceil(high_s / 60))


def _find_step(steps: tuple[tuple[float, int], ...], seconds: float) -> int:
    return next(step for max_minutes, step in steps if seconds <= max_minutes * 60)
