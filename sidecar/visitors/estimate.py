"""The range of a wait estimate. The scripts make the estimate itself, to decide when to poll next
(rooms/lua/parts/estimate_wait.lua)."""

import math

from sidecar.kit.values import value
from sidecar.visitors.model import Standing

#: The quantile of the normal distribution that leaves a tenth on either side.
Z_80 = 1.2816
#: How much the share of visitors who give up may change during a wait.
DRIFT = 0.03


@value
class Wait:
    """Seconds; `low` to `high` holds the true wait four times in five."""

    seconds: int
    low: int
    high: int


def estimate(standing: Standing) -> Wait | None:
    """Return the range, or None if the wait is unknown.

    Calls come at random, so the wait for k of them is gamma distributed: relative to its
    mean it varies by 1/k. The rate's own error (`spread`) and what will change add to
    that. The quantiles are Wilson and Hilferty's: the cube root of a gamma variable is
    nearly normal.
    """
    if standing.wait_ms is None:
        return None
    calls = standing.ahead if standing.calls is None else standing.calls
    variance = 1 / (calls + 1) + standing.spread**2 + DRIFT**2
    seconds = standing.wait_ms / 1000
    middle, side = 1 - variance / 9, Z_80 * math.sqrt(variance) / 3
    low, high = seconds * max(0.0, middle - side) ** 3, seconds * max(0.0, middle + side) ** 3
    return Wait(round(seconds), math.floor(low), math.ceil(high))
