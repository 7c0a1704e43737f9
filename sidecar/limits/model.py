"""A call that asks a rate limit, and the decision on it."""

from dataclasses import dataclass
from enum import StrEnum

from sidecar.limits.settings import UNLIMITED


class Outcome(StrEnum):
    """The metrics have the same words."""

    #: It may go now.
    GRANTED = "granted"
    #: It may go at its moment, which it keeps.
    PACED = "paced"
    REFUSED = "refused"
    #: Its key has no limit: nothing is counted.
    UNLIMITED = "unlimited"
    #: Redis was unavailable: `on_store_failure` decided.
    ADMITTED_ALONE = "admitted_alone"
    REFUSED_ALONE = "refused_alone"


@dataclass(frozen=True, slots=True)
class Ask:
    """One call that wants to be let through."""

    key: str = ""
    cost: int = 1
    #: The caller's name for it, so that asking again counts once; empty: it has none.
    id: str = ""


@dataclass(slots=True)
class Decision:
    """What a rule says of one call. All times in µs of the store's clock. Nobody changes one; it is
    not frozen because that would take three times as long to make."""

    outcome: Outcome
    now_us: int = 0
    #: When it may go: now, or its moment. Refused: when it might be worth asking again.
    at_us: int = 0
    #: The key's limit; UNLIMITED where it has none.
    limit: int = UNLIMITED
    #: What a call that came now could still cost at once; 0 when refused or paced.
    remaining: int = 0
    #: When all of the limit is free again, if nobody calls meanwhile.
    reset_us: int = 0
    #: Names the permit, to give it back; empty where there is nothing to give back.
    permit: str = ""

    @property
    def is_allowed(self) -> bool:
        outcome = self.outcome
        return outcome is not Outcome.REFUSED and outcome is not Outcome.REFUSED_ALONE

    @property
    def wait_s(self) -> float:
        """Until it may go, or may ask again, seconds."""
        return max(0, self.at_us - self.now_us) / 1_000_000
