"""Visitors: their states, their tokens, and where they stand. No I/O."""

from enum import IntEnum, StrEnum
from typing import TypeAlias

from sidecar.kit.values import value


class Phase(StrEnum):
    """A room is open, closed or in its pre-queue."""

    OPEN = "open"
    #: Nobody enters, takes a place or is called.
    CLOSED = "closed"
    #: Places are taken and kept; nobody is called, and positions are unknown.
    PREQUEUE = "prequeue"


#: A ticket expires when its browser sent no heartbeat for this long.
TICKET_LIFETIME_MS = 24 * 3600 * 1000
#: A ticket signed longer ago is signed anew at a heartbeat, so its time is that of a recent one
#: (rooms/lua/parts/heartbeat.lua).
RESIGN_MS = 300_000
#: The distance between the orders of two priorities, or sub-queues (rooms/lua/parts/order.lua).
ORDER_BAND = 2**51
#: The distance between two orders of one class; an order modulo this is the class's number.
ORDER_STEP = 8
#: The bits of a lot: a double holds them exactly.
LOT_BITS = 50
#: The shortest and the longest time between two heartbeats when the room adapts it.
HEARTBEAT_MIN_MS = 2_000
HEARTBEAT_MAX_MS = 60_000
#: When a waiting visitor polls again while Redis is unavailable and nothing better is known.
DEFAULT_REFRESH_MS = 5_000
#: A pass is renewed after a sixth of its life, but not before this time, unless that is more than
#: half of it.
RENEW_MIN_MS = 5_000


class Outcome(IntEnum):
    """A script's result for one visitor, by the scripts' numbers."""

    ADMITTED = 1
    WAITING = 0
    #: The ticket or pass is void: its visitor left, or the queue was reset.
    GONE = -1
    #: `max_waiting` is reached.
    FULL = -2
    #: `queueing_method = "reject"`, and no slot is free.
    REJECTED = -3


class State(StrEnum):
    """A visitor's state."""

    __hash__ = str.__hash__  # enum's own is Python code, and needed for each request

    WAITING = "waiting"
    ADMITTED = "admitted"
    FULL = "full"
    CLOSED = "closed"
    NOT_QUEUED = "not_queued"


@value
class Ticket:
    """Proof of a place in the queue."""

    visitor: str
    #: The smallest is called next. Microseconds in a first-come room.
    order: int
    joined_ms: int
    #: A reset of the queue begins a new epoch and voids older tickets.
    epoch: int
    #: When the ticket was signed; 0 until then.
    signed_ms: int = 0
    #: The class that was granted to the visitor; empty: none.
    class_name: str = ""


@value
class Pass:
    """Proof of admission."""

    visitor: str
    order: int
    joined_ms: int
    epoch: int
    started_ms: int
    #: When Redis renewed it; 0: a replica gave or prolonged it while Redis was unavailable.
    renewed_ms: int
    expires_ms: int
    #: Identifies the client that may use the pass (`bind_pass`); empty: any may.
    fingerprint: str = ""

    @property
    def is_first(self) -> bool:
        """Whether a newcomer got the pass at once, and it was never renewed. Redis does not know
        then that the visitor keeps cookies (rooms/lua/parts/admit.lua)."""
        return self.started_ms <= self.joined_ms == self.renewed_ms


@value
class Outside:
    """Proof that the roll-out leaves the visitor out (`rollout_percent`)."""

    #: The visitor's lot in millionths, drawn once: the room is for lots below its share.
    draw: int
    #: When the proof was signed; 0 until then.
    signed_ms: int = 0


#: What a cookie may hold.
Token: TypeAlias = Ticket | Pass | Outside


@value
class Standing:
    """Where one visitor stands, by a script's reply."""

    outcome: Outcome
    now_ms: int
    order: int = 0
    #: When the session began and when its pass ends; 0 unless admitted.
    started_ms: int = 0
    expires_ms: int = 0
    #: How many wait before this visitor, and how many in all.
    ahead: int = 0
    waiting: int = 0
    #: When the next heartbeat is expected; 0 unless waiting or full.
    refresh_ms: int = 0
    #: Expected wait; None when it cannot be known.
    wait_ms: int | None = None
    #: Relative spread of the room's measured rate (standard deviation over mean).
    spread: float = 1.0
    #: After more polls than `poll_limit` in a minute: how long until the next minute.
    limited_ms: int = 0
    #: After Redis lost data. 1: some waiting visitors may be missing, so `ahead` says little. 2:
    #: nobody is called either, until sessions and places are back. 0: not in recovery.
    recovery_stage: int = 0
    epoch: int = 0
    phase: Phase = Phase.OPEN
    #: How many are expected to be called before this visitor, where that differs from `ahead`: the
    #: room shows places by arrival, or has sub-queues.
    calls: int | None = None
    #: The visitor's sub-queue, from 0 on, and its length; None: the room has none.
    line: int | None = None
    line_waiting: int | None = None
    #: Whether the requested class was given.
    is_classed: bool = False
