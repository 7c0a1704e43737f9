"""A call of a rate limit, and the decision on it."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.limits.settings import UNLIMITED


class Outcome(StrEnum):
    """The outcome of a call, as the API and the metrics write it."""

    #: The call may go now.
    GRANTED = "granted"
    #: The call may go at its moment, which is reserved.
    PACED = "paced"
    REFUSED = "refused"
    #: The key has no limit: nothing is counted.
    UNLIMITED = "unlimited"
    #: Redis was unavailable: `on_store_failure` decided.
    ADMITTED_ALONE = "admitted_alone"
    REFUSED_ALONE = "refused_alone"


@dataclass(frozen=True, slots=True)
class Ask:
    """One call that asks for permission."""

    key: str = ""
    cost: int = 1
    #: The caller's own id: a second request with the same id counts once. Empty: none.
    id: str = ""


@dataclass(slots=True)
class Decision:
    """The decision on one call. Times are µs of Redis' clock. Never changed; not frozen, because
    making a frozen one takes three times as long."""

    outcome: Outcome
    now_us: int = 0
    #: When the call may go. Of a refused call: when to ask again; 0: never.
    at_us: int = 0
    limit: int = UNLIMITED
    #: The highest cost that a call may have now; 0 when refused or paced.
    remaining: int = 0
    #: When the whole limit is free again, if nobody calls meanwhile.
    reset_us: int = 0
    #: The permit to give back; empty: there is nothing to give back.
    permit: str = ""

    @property
    def is_allowed(self) -> bool:
        outcome = self.outcome
        return outcome is not Outcome.REFUSED and outcome is not Outcome.REFUSED_ALONE

    @property
    def wait_s(self) -> float:
        """Seconds until the call may go, or may ask again."""
        return max(0, self.at_us - self.now_us) / 1_000_000
