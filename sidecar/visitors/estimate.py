"""The range of a wait estimate. The Lua scripts compute the estimate itself, because they use it to
set the time of the next poll (rooms/lua/parts/estimate_wait.lua)."""

import math

from sidecar.kit.values import value
from sidecar.visitors.model import Standing

#: The quantile of the normal distribution with a tenth of the values beyond it on either side.
Z_80 = 1.2816
#: The relative change to expect, during a wait, in the share of visitors who give up.
DRIFT = 0.03


@value
class Wait:
    """An estimated wait in seconds. The true wait is from `low` to `high` four times in five."""

    seconds: int
    low: int
    high: int


def estimate(standing: Standing) -> Wait | None:
    """Return the estimated wait with its range. None if the wait is unknown.

    Calls come at random times, so the wait for k calls is gamma distributed, with a variance of
    1/k relative to its squared mean. The error of the measured rate (`spread`) and the change of
    conditions during the wait (`DRIFT`) add to the variance. The quantiles are Wilson and
    Hilferty's approximation: the cube root of a gamma variable is nearly normal."""
    if standing.wait_ms is None:
        return None
    calls = standing.ahead if standing.calls is None else standing.calls
    variance = 1 / (calls + 1) + standing.spread**2 + DRIFT**2
    seconds = standing.wait_ms / 1000
    middle, side = 1 - variance / 9, Z_80 * math.sqrt(variance) / 3
    low, high = seconds * max(0.0, middle - side) ** 3, seconds * max(0.0, middle + side) ** 3
    return Wait(round(seconds), math.floor(low), math.ceil(high))
