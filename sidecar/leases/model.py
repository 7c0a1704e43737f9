"""Where one holder of a lease stands."""

from dataclasses import dataclass
from enum import IntEnum


class LeaseOutcome(IntEnum):
    """What a script says of one holder. The numbers are the scripts'."""

    GRANTED = 1
    WAITING = 0
    #: Neither holds it nor waits: the term is over, they left, or were silent.
    GONE = -1
    #: `max_waiting` is reached.
    FULL = -2
    #: Another fencing number: this holder's lease is over, and they have or had a newer one.
    STALE = -3
    #: The template is not renewable, or `max_term` is reached: it stays as it is.
    NOT_RENEWED = -4


@dataclass(frozen=True, slots=True)
class Hold:
    """Where a holder stands at one resource. Times in ms of the store's clock."""

    outcome: LeaseOutcome
    now_ms: int = 0
    #: Only grows, over all leases of the template: µs of the store's clock when it was granted, or
    #: more. 0 unless granted.
    fence: int = 0
    started_ms: int = 0
    expires_ms: int = 0
    #: WAITING: the place's order, how many are ahead, how many wait in all.
    order: int = 0
    ahead: int = 0
    waiting: int = 0
    #: Expected wait; None: not known.
    wait_ms: int | None = None
    #: When to ask again; 0 where there is no need to.
    refresh_ms: int = 0
    #: Whether the store was emptied, and nothing is granted until all terms of before are over.
    is_recovering: bool = False
