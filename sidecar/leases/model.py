"""The state of one client at a leased resource: it holds a lease, waits for one, or neither."""

from dataclasses import dataclass
from enum import IntEnum


class LeaseOutcome(IntEnum):
    """The result of a lease script for one holder. The values are those that the scripts return."""

    GRANTED = 1
    WAITING = 0
    #: The holder has no lease and no place: the term ended, or the holder left or was silent.
    GONE = -1
    #: `max_waiting` clients wait already.
    FULL = -2
    #: The fencing number is not that of the holder's current lease: the lease is over.
    STALE = -3
    #: The template is not renewable, or `max_term` is reached. The lease is unchanged.
    NOT_RENEWED = -4


@dataclass(frozen=True, slots=True)
class HolderState:
    """The state of a holder at one resource. Times are in ms by Redis' clock."""

    outcome: LeaseOutcome
    now_ms: int = 0
    #: True if Redis was emptied, so that nothing is granted until the terms of all earlier leases
    #: are over.
    is_recovering: bool = False
    #: How long to wait before the next heartbeat; 0 if none is needed.
    refresh_ms: int = 0
    #: The expected wait. None if unknown.
    wait_ms: int | None = None
    #: The fencing number: the time of the grant in µs by Redis' clock, or a greater number,
    #: so that it exceeds all earlier fencing numbers and orders of the template. 0 unless GRANTED.
    fence: int = 0
    started_ms: int = 0
    expires_ms: int = 0
    #: The sort key of the holder's place, and the number of holders ahead. Only if WAITING.
    order: int = 0
    ahead: int = 0
    #: The number of holders that wait. Only if WAITING or FULL.
    waiting: int = 0
