"""The state of one holder of a lease."""

from dataclasses import dataclass
from enum import IntEnum


class LeaseOutcome(IntEnum):
    """The result of a script for one holder. The numbers are the scripts'."""

    GRANTED = 1
    WAITING = 0
    #: Neither holds it nor waits: the term ended, the holder left, or missed heartbeats.
    GONE = -1
    #: `max_waiting` is reached.
    FULL = -2
    #: The fencing number is of another lease: this one is over.
    STALE = -3
    #: The template is not renewable, or `max_term` is reached. The lease stays as it is.
    NOT_RENEWED = -4


@dataclass(frozen=True, slots=True)
class Hold:
    """A holder's state at one resource. Times are ms of Redis' clock."""

    outcome: LeaseOutcome
    now_ms: int = 0
    #: Grows over all leases of the template: µs of Redis' clock at the grant, or more. 0 unless
    #: granted.
    fence: int = 0
    started_ms: int = 0
    expires_ms: int = 0
    #: Only WAITING: the place's order, how many are ahead, how many wait in all.
    order: int = 0
    ahead: int = 0
    waiting: int = 0
    #: The expected wait; None: unknown.
    wait_ms: int | None = None
    #: When to ask again; 0: no need to.
    refresh_ms: int = 0
    #: Redis was emptied, and nothing is granted until all terms from before are over.
    is_recovering: bool = False
