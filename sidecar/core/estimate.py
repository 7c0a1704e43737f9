"""How long somebody will wait, and how sure that is.

The point estimate is made by the scripts, which need it to say when to poll next
(store/lua/shared/wait.lua); this module makes a range of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidecar.base.model import Standing

#: The quantile of the normal distribution that leaves a tenth on either side.
Z_80 = 1.2816
#: The rate of a room drifts; not even a long measurement knows it better than this.
DRIFT = 0.1


@dataclass(frozen=True, slots=True)
class Wait:
    """Seconds; `low` to `high` holds the true wait four times in five."""

    seconds: int
    low: int
    high: int


def estimate(standing: Standing) -> Wait | None:
    """None when the wait cannot be known.

    The wait for k calls at a rate known to within `spread` varies, relative to its mean,
    by sqrt(1/k + spread² + drift²): the calls' own randomness (a Poisson process), the
    measurement's, and the room's. The range is log-normal, so it never reaches below 0.
    """
    if standing.wait_ms is None:
        return None
    sigma = math.sqrt(1 / (standing.ahead + 1) + standing.spread**2 + DRIFT**2)
    seconds = standing.wait_ms / 1000
    factor = math.exp(Z_80 * min(sigma, 1.0))
    return Wait(round(seconds), math.floor(seconds / factor), math.ceil(seconds * factor))
