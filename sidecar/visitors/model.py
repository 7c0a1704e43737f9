"""The states of visitors, their tokens, and their standing in the queue. No I/O."""

from enum import IntEnum, StrEnum
from typing import TypeAlias

from sidecar.kit.values import value


class Phase(StrEnum):
    """The phase of a room."""

    OPEN = "open"
    #: Nobody is admitted, joins the queue or is called.
    CLOSED = "closed"
    #: Visitors join and keep their places, but nobody is called, and positions are not known yet.
    PREQUEUE = "prequeue"


#: The lifetime of a ticket after its signature, which heartbeats renew.
TICKET_LIFETIME_MS = 24 * 3600 * 1000
#: The age from which a ticket is signed anew at a heartbeat, so that the time of its signature is
#: near the time of the last heartbeat (rooms/lua/parts/rejoin.lua).
RESIGN_MS = 300_000
#: The distance between the orders of two priorities or sub-queues (rooms/lua/parts/order.lua).
ORDER_BAND = 2**51
#: The distance between two orders of one class. An order modulo this is the number of the class.
ORDER_STEP = 8
#: The number of bits of a lot, the random number of a visitor. A double holds that many exactly.
LOT_BITS = 50
#: The shortest and the longest time between two heartbeats of a visitor, as the room adapts it.
HEARTBEAT_MIN_MS = 2_000
HEARTBEAT_MAX_MS = 60_000
#: The time until a waiting visitor's next poll if no script set one, as without Redis.
DEFAULT_REFRESH_MS = 5_000
#: The smallest age at which a pass is renewed. A pass is renewed after a sixth of its lifetime, or
#: after this time if that is longer, but after half of its lifetime at the latest.
RENEW_MIN_MS = 5_000


class QueueOutcome(IntEnum):
    """The result of a Lua script for one visitor. The numbers are those that the scripts return."""

    ADMITTED = 1
    WAITING = 0
    #: The ticket or pass is void because the visitor left or the queue was reset.
    GONE = -1
    #: `max_waiting` is reached.
    FULL = -2
    #: `queueing_method = "reject"`, and no slot is free.
    REJECTED = -3


class VisitorState(StrEnum):
    """The state of a visitor."""

    __hash__ = str.__hash__  # each request hashes states, and the hash of Enum is slow Python code

    WAITING = "waiting"
    ADMITTED = "admitted"
    FULL = "full"
    CLOSED = "closed"
    NOT_QUEUED = "not_queued"


@value
class Ticket:
    """Proof of a place in the queue."""

    visitor: str
    #: The visitor with the smallest order is called next. Microseconds in a first-come room.
    order: int
    joined_ms: int
    #: The number of the queue's epoch. A reset begins a new epoch, which voids older tickets.
    epoch: int
    #: When the ticket was signed. 0: not yet.
    signed_ms: int = 0
    #: The visitor's class. Empty: none.
    class_name: str = ""


@value
class Pass:
    """Proof of admission."""

    visitor: str
    order: int
    joined_ms: int
    epoch: int
    started_ms: int
    #: When Redis last renewed the pass. 0: a replica issued or extended it without Redis.
    renewed_ms: int
    expires_ms: int
    #: Identifies the only client that may use the pass (`bind_pass`). Empty: any client may.
    fingerprint: str = ""

    @property
    def is_first(self) -> bool:
        """True if a newcomer was admitted at once and the pass was never renewed. Then Redis does
        not know yet whether the visitor keeps cookies (rooms/lua/parts/admit.lua)."""
        return self.started_ms <= self.joined_ms == self.renewed_ms


@value
class Outside:
    """Proof that the visitor is outside the roll-out (`rollout_percent`)."""

    #: The visitor's lot in millionths, drawn once. Lots below the room's share are in the roll-out.
    draw: int
    #: When the proof was signed. 0: not yet.
    signed_ms: int = 0


#: Any token that a cookie may hold.
Token: TypeAlias = Ticket | Pass | Outside


@value
class Standing:
    """The standing of one visitor in a room, as a Lua script returned it."""

    outcome: QueueOutcome
    now_ms: int
    order: int = 0
    #: When the session began and when its pass expires. 0 unless admitted.
    started_ms: int = 0
    expires_ms: int = 0
    #: The number of visitors waiting before this one, and in the whole room.
    ahead: int = 0
    waiting: int = 0
    #: The time until the next heartbeat is due. 0 unless waiting or full.
    refresh_ms: int = 0
    #: The expected wait. None if it is unknown.
    wait_ms: int | None = None
    #: The relative spread of the room's measured rate (standard deviation over mean).
    spread: float = 1.0
    #: The time until the visitor may poll again, after more than `poll_limit` polls in a minute.
    limited_ms: int = 0
    #: The stage of the recovery from a data loss in Redis; 0: none. 1: some waiting visitors may be
    #: missing, so `ahead` is unreliable. 2: until places are restored, nobody is called either.
    recovery_stage: int = 0
    epoch: int = 0
    phase: Phase = Phase.OPEN
    #: The number of calls expected before this visitor's. None if it equals `ahead`. It differs in
    #: a room that shows places by arrival or has sub-queues.
    calls: int | None = None
    #: The index of the visitor's sub-queue, and the number of visitors waiting there. None: the
    #: room has no sub-queues.
    line: int | None = None
    line_waiting: int | None = None
    #: True if the visitor got the requested class.
    is_classed: bool = False
