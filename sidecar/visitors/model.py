"""Defines the data types of visitors: states, tokens (tickets, passes), standings in the queue."""

from enum import IntEnum, StrEnum
from typing import TypeAlias

from sidecar.kit.values import value


class Phase(StrEnum):
    """The phase of a room, which depends on its scheduled events."""

    OPEN = "open"
    #: Nobody is admitted or called, and nobody can join the queue.
    CLOSED = "closed"
    #: Visitors join the pre-queue of an event. Nobody is called, and there are no positions yet.
    PREQUEUE = "prequeue"


#: How long a ticket is valid after it was signed. Heartbeats renew the signature.
TICKET_LIFETIME_MS = 24 * 3600 * 1000
#: A ticket of at least this age is signed again at a heartbeat, so that the time of the signature
#: is near the time of the last heartbeat (rooms/lua/parts/rejoin.lua).
TICKET_RENEW_MS = 300_000
#: The size of the range of orders that each priority or sub-queue has (rooms/lua/parts/order.lua).
ORDER_BAND = 2**51
#: The number of bits of a lot, a visitor's number in a lottery draw. Doubles can represent any lot.
LOT_BITS = 50
#: The shortest and the longest interval between heartbeats that a room chooses itself.
HEARTBEAT_MIN_MS = 2_000
HEARTBEAT_MAX_MS = 60_000
#: The time until a waiting visitor's next poll if no script has set it, as Redis is unavailable.
DEFAULT_REFRESH_MS = 5_000
#: A pass is renewed after a sixth of its lifetime or after this time, whichever is longer, but
#: after half of its lifetime at the latest.
RENEW_MIN_MS = 5_000


class QueueOutcome(IntEnum):
    """The result of a Lua script for one visitor, by the number that the scripts return."""

    ADMITTED = 1
    WAITING = 0
    #: The ticket or pass is void because the visitor left or the queue was reset.
    GONE = -1
    #: The queue is full: `max_waiting` or `max_places_per_address` is reached.
    FULL = -2
    #: The room is closed, or `queueing_method` is "reject" and no slot is free.
    REJECTED = -3


class VisitorState(StrEnum):
    """The state that a visitor is told: whether the request may pass, and if not, why."""

    __hash__ = str.__hash__  # faster than the hash of Enum, and each request hashes states

    WAITING = "waiting"
    ADMITTED = "admitted"
    FULL = "full"
    CLOSED = "closed"
    NOT_QUEUED = "not_queued"


@value
class Ticket:
    """Proof of a place in the queue, signed in a cookie."""

    visitor: str
    #: The sort key of the queue: the visitor with the smallest order is called next. Without
    #: classes and draws, the order is the time of joining in µs.
    order: int
    joined_ms: int
    #: The epoch of the queue. A reset of the queue begins a new epoch, which voids older tickets.
    epoch: int
    #: When the ticket was signed. 0: not yet.
    signed_ms: int = 0
    #: The visitor's class. Empty if the visitor has none.
    class_name: str = ""


@value
class Pass:
    """Proof of admission, signed in a cookie."""

    visitor: str
    order: int
    joined_ms: int
    epoch: int
    started_ms: int
    #: When a script last renewed the pass. 0: a replica issued or extended it without Redis.
    renewed_ms: int
    expires_ms: int
    #: A hash of the only client that may use the pass (`bind_pass`). Empty: any client may use it.
    fingerprint: str = ""

    @property
    def is_first(self) -> bool:
        """True if the visitor was admitted at once and the pass was never renewed. Then Redis does
        not know yet whether the client keeps cookies (rooms/lua/parts/unused_session.lua)."""
        return self.started_ms <= self.joined_ms == self.renewed_ms


@value
class Outside:
    """Proof in a signed cookie that the room does not apply to the visitor (`rollout_percent`)."""

    #: The visitor's roll-out number (rooms/exemptions.py), which never changes.
    rollout_number: int
    #: When the proof was signed. 0: not yet.
    signed_ms: int = 0


#: A token in a cookie.
Token: TypeAlias = Ticket | Pass | Outside


@value
class Standing:
    """What a Lua script returned about one visitor: the outcome, the place, and the next poll."""

    outcome: QueueOutcome
    now_ms: int
    order: int = 0
    #: When the session began, and when its pass expires. 0 unless admitted.
    started_ms: int = 0
    expires_ms: int = 0
    #: The number of visitors who wait ahead of this one, and the number who wait in the whole room.
    ahead: int = 0
    waiting: int = 0
    #: The time until the next heartbeat is due. 0 unless the visitor waits or the queue is full.
    refresh_ms: int = 0
    #: The expected wait. None if it is unknown.
    wait_ms: int | None = None
    #: The relative error of the room's measured rate: its standard deviation divided by its mean.
    #: 1: the rate is still being measured.
    spread: float = 1.0
    #: The time until a visitor who exceeded `poll_limit` may poll again.
    limited_ms: int = 0
    #: The stage of the recovery after Redis lost data. 0: none. 1: some waiting visitors may still
    #: be missing, so `ahead` is unreliable. 2: nobody is called either, until places are restored.
    recovery_stage: int = 0
    epoch: int = 0
    phase: Phase = Phase.OPEN
    #: How many visitors will be called before this one. None if it equals `ahead`. It differs if
    #: the room shows positions by arrival or has sub-queues.
    calls: int | None = None
    #: The index of the visitor's sub-queue, or None, and how many visitors wait there.
    line: int | None = None
    line_waiting: int | None = None
    #: True if the newcomer got the class that the request asked for.
    is_classed: bool = False

    @property
    def is_measuring(self) -> bool:
        """True if the wait cannot be shown yet, because too few sessions have ended."""
        return self.wait_ms is not None and self.spread >= 1
