"""A call that a rate limit counts, and the decision on the call."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.limits.settings import UNLIMITED


class Outcome(StrEnum):
    """The outcome of a call, as in the API and the metrics."""

    #: The call may go now.
    GRANTED = "granted"
    #: The call may go at a later time, which is reserved for it.
    PACED = "paced"
    REFUSED = "refused"
    #: The key has no limit, so nothing is counted.
    UNLIMITED = "unlimited"
    #: Redis was unavailable, so `on_store_failure` decided.
    ADMITTED_ALONE = "admitted_alone"
    REFUSED_ALONE = "refused_alone"


@dataclass(frozen=True, slots=True)
class Call:
    """One call that needs permission."""

    key: str = ""
    cost: int = 1
    #: The caller's own id. A second request with the same id is not counted. Empty: no id.
    id: str = ""


@dataclass(slots=True)
class Decision:
    """The decision on one call, which nobody may change. Times are in µs by Redis' clock. The class
    is not frozen, because the creation of a frozen object takes three times as long."""

    outcome: Outcome
    now_us: int = 0
    #: When the call may go, or a refused call may ask again; 0: never.
    at_us: int = 0
    limit: int = UNLIMITED
    #: The highest cost that another call may have now; 0 if this call was refused or paced.
    remaining: int = 0
    #: When the whole limit is free again, if nobody calls meanwhile.
    reset_us: int = 0
    #: The permit that can be released. Empty: there is nothing to release.
    permit: str = ""

    @property
    def is_allowed(self) -> bool:
        outcome = self.outcome
        return outcome is not Outcome.REFUSED and outcome is not Outcome.REFUSED_ALONE

    @property
    def wait_s(self) -> float:
        """The seconds until the call may go, or a refused call may ask again."""
        return max(0, self.at_us - self.now_us) / 1_000_000
