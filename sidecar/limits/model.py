"""The model of rate limits: a call for which a client needs permission, and the decision on it."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.limits.settings import UNLIMITED


class Outcome(StrEnum):
    """The outcome of a decision on a call. The API and the metrics use the same values."""

    #: The call may proceed now.
    GRANTED = "granted"
    #: The call may proceed at a later time, which is reserved for it.
    PACED = "paced"
    REFUSED = "refused"
    #: The key has no limit, so the call was not counted.
    UNLIMITED = "unlimited"
    #: The replica decided alone, by `on_store_failure`, because Redis was unavailable.
    ADMITTED_ALONE = "admitted_alone"
    REFUSED_ALONE = "refused_alone"


@dataclass(frozen=True, slots=True)
class Call:
    key: str = ""
    cost: int = 1
    #: An id that the client chose, or "". A later call with the same id and cost is not counted.
    id: str = ""


@dataclass(slots=True)
class Decision:
    """The decision on one call. Times are in µs by Redis' clock. Treat a decision as immutable: the
    class is not frozen only because frozen objects take three times as long to create."""

    outcome: Outcome
    now_us: int = 0
    #: When the call may proceed or, if it was refused, when to retry it. 0: never.
    at_us: int = 0
    limit: int = UNLIMITED
    #: The highest cost that another call may have now; 0 if this call was refused or paced.
    remaining: int = 0
    #: When the whole limit is available again if no more calls are made.
    reset_us: int = 0
    #: The permit that the client can release. Empty if there is nothing to release.
    permit: str = ""

    @property
    def is_allowed(self) -> bool:
        outcome = self.outcome
        return outcome is not Outcome.REFUSED and outcome is not Outcome.REFUSED_ALONE

    @property
    def wait_s(self) -> float:
        """Return how many seconds to wait before the call or, if it was refused, before a retry."""
        return max(0, self.at_us - self.now_us) / 1_000_000
