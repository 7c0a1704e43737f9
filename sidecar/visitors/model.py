"""The words of the engine, as types. No I/O."""

from enum import IntEnum, StrEnum
from typing import TypeAlias

from sidecar.kit.values import value


class Phase(StrEnum):
    """What a room does at a moment."""

    OPEN = "open"
    #: Nobody comes in, nobody takes a place, nobody is called.
    CLOSED = "closed"
    #: Places are taken and kept; nobody is called, and positions are unknown.
    PREQUEUE = "prequeue"


#: A ticket expires when its browser sent no heartbeat for this long.
TICKET_LIFETIME_MS = 24 * 3600 * 1000
#: A ticket that was signed longer ago is signed anew at a heartbeat, so it says about when that was
#: (rooms/lua/parts/heartbeat.lua).
RESIGN_MS = 300_000
#: From the orders of one priority, or line, to those of the next (rooms/lua/parts/order.lua).
ORDER_BAND = 2**51
#: Orders of one class are so far apart; the rest of a division by it is the class's number.
ORDER_STEP = 8
#: A lot is a whole number of so many bits: a double holds them exactly.
LOT_BITS = 50
#: The shortest and the longest time between two heartbeats when the room adapts it.
HEARTBEAT_MIN_MS = 2_000
HEARTBEAT_MAX_MS = 60_000
#: When a waiting visitor polls again while Redis is unavailable and nothing better is known.
DEFAULT_REFRESH_MS = 5_000
#: A pass is renewed when a sixth of its life has gone by, but not before this, unless that is
#: more than half of it.
RENEW_MIN_MS = 5_000


class Outcome(IntEnum):
    """What a script says of one visitor. The numbers are the scripts'."""

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

    __hash__ = str.__hash__  # enum's own is written in Python, and asked for each request

    WAITING = "waiting"
    ADMITTED = "admitted"
    FULL = "full"
    CLOSED = "closed"
    NOT_QUEUED = "not_queued"


@value
class Ticket:
    """Proof of a place in the queue."""

    visitor: str
    #: Decides who is called next; smaller is sooner. Microseconds in a first-come room.
    order: int
    joined_ms: int
    #: The queue's epoch: a reset makes a new one and voids older tickets.
    epoch: int
    #: When it was signed; 0 until then.
    signed_ms: int = 0
    #: The class that was granted to its visitor; empty: none.
    class_name: str = ""


@value
class Pass:
    """Proof of admission."""

    visitor: str
    order: int
    joined_ms: int
    epoch: int
    started_ms: int
    #: When the store gave it; 0: a replica did by itself, or made it longer.
    renewed_ms: int
    expires_ms: int
    #: What its bearer is known by (`bind_pass`); empty: any bearer may use it.
    fingerprint: str = ""

    @property
    def is_first(self) -> bool:
        """Given to a newcomer at once, and never renewed: the store does not know yet that its
        visitor keeps cookies (rooms/lua/parts/admit.lua)."""
        return self.started_ms <= self.joined_ms == self.renewed_ms


@value
class Outside:
    """Proof that the roll-out leaves the visitor out (`rollout_percent`)."""

    #: Millionths, drawn once: the room's own are those below its share.
    draw: int
    #: When it was signed; 0 until then.
    signed_ms: int = 0


#: What a cookie may hold.
Token: TypeAlias = Ticket | Pass | Outside


@value
class Standing:
    """Where one visitor stands, as a script saw it."""

    outcome: Outcome
    now_ms: int
    order: int = 0
    #: When the session began and when its pass ends; 0 unless admitted.
    started_ms: int = 0
    expires_ms: int = 0
    #: How many are before this visitor, and how many wait in all.
    ahead: int = 0
    waiting: int = 0
    #: When the next heartbeat is expected; 0 unless waiting or full.
    refresh_ms: int = 0
    #: Expected wait; None when it cannot be known.
    wait_ms: int | None = None
    #: Relative spread of the room's measured rate (standard deviation over mean).
    spread: float = 1.0
    #: More polls than `poll_limit` in this minute; milliseconds until it starts anew.
    limited_ms: int = 0
    #: 0: as ever. 1: some waiting may still be missing, so that `ahead` says little. 2: nobody is
    #: called either, until those who were inside or waiting are back.
    recovery_stage: int = 0
    epoch: int = 0
    phase: Phase = Phase.OPEN
    #: How many will be called before this visitor, as far as can be said now: not `ahead` where
    #: the room shows places by arrival, or has sub-queues. None: it is `ahead`.
    calls: int | None = None
    #: The visitor's sub-queue, from 0 on, and its length; None: the room has none.
    line: int | None = None
    line_waiting: int | None = None
    #: Whether the requested class was given.
    is_classed: bool = False
