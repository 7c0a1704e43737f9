"""A model of a room in plain Python, with which test_model.py compares the room's scripts.

The model has one queue and one set of sessions, and examines every visitor in each script. It takes
only the advised times of the visitors' next polls from the scripts, because these are estimates.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import TICKET_LIFETIME_MS, Pass, Phase, QueueOutcome, Ticket
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support import room_policy as policy

#: While a visitor polls, the ticket is never older than this.
TICKET_RENEW_MS = 300_000
#: After an outage, pages poll again within this time: 60 s, plus 5 %, plus the request itself.
BACKOFF_MS = 65_000
#: After an outage, no session expires for this time, in which replicas report their admissions.
REPORT_MS = 2000


@dataclass
class Place:
    """A visitor's place in the queue."""

    order: int
    #: When the next poll is expected. Before the first poll, it is when the visitor joined.
    due: int
    polled: bool
    #: The advised time until the next poll in seconds, 63 at most. 0 if it is unknown.
    advised_s: int = 0
    #: Whether the visitor polls much more seldom than advised. Then `advised_s` is the real time.
    polls_seldom: bool = False
    #: The sort key in rooms that show positions in the order of arrival. None until it is stored.
    arrival: int | None = None
    joined: int = 0


#: The fractional part of a session's end until the browser has sent the cookie back
#: (rooms/lua/parts/unused.lua).
UNUSED = 0.5


@dataclass
class Session:
    """A visitor's session, which takes a slot until it ends."""

    ends: float
    #: When the session began. None if the visitor was called and has not arrived yet.
    started: int | None

    @property
    def is_unused(self) -> bool:
        return self.ends % 1 == UNUSED


@dataclass(frozen=True)
class Reply:
    """The reply to a visitor. Times are 0 unless the visitor is admitted, and `ahead` is 0 unless
    the visitor waits."""

    outcome: QueueOutcome
    order: int = 0
    started: int = 0
    expires: int = 0
    ahead: int = 0
    limited: int = 0
    calls: int = 0
    line: int | None = None
    line_waiting: int | None = None
    is_classed: bool = False


@dataclass(frozen=True)
class Newcomer:
    """A visitor who asks to join."""

    visitor: str
    #: A random number from 0 to 1.
    draw: float
    class_name: str = ""
    grant: str = ""
    #: When the pre-queue begins for which `draw` was drawn.
    lot_of: int = 0
    address: str = ""


class Model:
    """A model of one room. `settings` are those of the settings file."""

    def __init__(self, settings: RoomSettings) -> None:
        self.file = settings
        #: Since when the room has existed, and since when the replica has admitted visitors without
        #: Redis, as the replica reports it.
        self.known_since: int | None = None
        self.failed_open_since = 0
        #: The longest poll interval near the head of the queue, as the replica reports it, ms.
        self.known_near_ms: int | None = None
        #: If no script runs for longer than this, it counts as an outage.
        self.outage_ms = 10**12
        #: Returns estimates of how many visitors have held a slot, and for how long in all, ms.
        self.get_hold_times: Callable[[], tuple[float, float]] = lambda: (1.0, 1.0)
        self.empty()

    def empty(self) -> None:
        """Empty Redis. This also deletes changes of the settings."""
        self.configured = self.settings = self.file
        #: If Redis lost keys, since when the room has existed according to the other keys.
        self.existed_since: int | None = None
        self.queue: dict[str, Place] = {}
        #: The orders of visitors who poll seldom and were next. Their next slots are reserved.
        self.reserved: dict[str, int] = {}
        #: The places of those of them who have not got a slot yet.
        self.absent: dict[str, Place] = {}
        #: The places of the polling visitors before this step. None if a place was lost.
        self.places_before: dict[str, Place | None] = {}
        #: Addresses of visitors who took a place while addresses were counted.
        self.addresses: dict[str, str] = {}
        self.drawn: dict[str, int] = {}
        self.drawn_from: int | None = None
        self.grants: set[str] = set()
        self.moved: dict[str, int] = {}
        self.weights = policy.Weights()
        self.sessions: dict[str, Session] = {}
        self.revoked: dict[str, int] = {}
        self.spent: dict[str, int] = {}
        self.last_end = 0
        self.born: int | None = None
        self.recovery = 0
        self.near_ms = -1
        #: If Redis came back with older data, the time of the last script before they were saved.
        self.lost_since: float = math.inf
        #: When the last script ran.
        self.measured_ms: int | None = None
        #: When the last outage ended, and whether that was in this step.
        self.outage_end: float = -math.inf
        self.has_outage_ended = False
        self.early_polls: dict[str, int] = {}
        self.early_minute = -1
        self.epoch = self.last_order = self.tokens_at = 0
        self.tokens: float | None = None
        self.now = 0
        self.events: list[tuple[str, str, str]] = []

    def copy_all(self) -> "Model":
        return copy.deepcopy(self, {id(self.get_hold_times): self.get_hold_times})

    def lose_key(self, name: str) -> None:
        """Delete one key. All places and sessions must then be restored from cookies."""
        self.existed_since = self.born if self.existed_since is None else self.existed_since
        self.born = None
        self.queue, self.sessions, self.early_polls, self.early_minute = {}, {}, {}, -1
        self.reserved, self.absent = {}, {}
        if name == "config":
            self.configured, self.epoch = self.file, 0
        elif name in {"revoked", "spent", "drawn"}:
            setattr(self, name, {})

    # What the scripts do -------------------------------------------------------------------

    def enter(self, now: int, newcomers: list[Newcomer]) -> list[Reply]:
        self._begin(now)
        self._expire()
        self._call_next()
        return [self._enter(newcomer) for newcomer in newcomers]

    def beat(self, now: int, tickets: list[Ticket], addresses: list[str]) -> list[Reply]:
        self._begin(now)
        places = self.queue | self.absent
        self.places_before = {
            t.visitor: replace(places[t.visitor]) if t.visitor in places else None for t in tickets
        }
        self._expire()
        if self.phase is Phase.CLOSED:
            self._call_next()
            return [
                self._reply_to_poll(t.visitor, t.order, 0, t.joined_ms)
                if t.visitor in self.sessions
                else Reply(QueueOutcome.REJECTED)
                for t in tickets
            ]
        limits = [self._record_heartbeat(t, a) for t, a in zip(tickets, addresses, strict=True)]
        self._call_next()
        orders = [
            self.queue[t.visitor].order if t.visitor in self.queue else t.order for t in tickets
        ]
        return [
            Reply(QueueOutcome.GONE)
            if limited is None
            else Reply(QueueOutcome.FULL)
            if limited < 0
            else self._reply_to_poll(t.visitor, order, limited, t.joined_ms)
            for t, order, limited in zip(tickets, orders, limits, strict=True)
        ]

    def extend(self, now: int, visitor: str, ms: int) -> bool:
        """Let a session last for `ms` from now. Return False if the visitor has none."""
        self._begin(now)
        has_session = self._extend(visitor, ms)
        self._expire()
        self._call_next()
        return has_session

    def _extend(self, visitor: str, ms: int) -> bool:
        session = self.sessions.get(visitor)
        if session is None or session.started is None or visitor in self.revoked:
            return False
        most = self._ms("max_extension") if self.settings.max_extension else 0
        begins = session.started if self.settings.disable_session_renewal else self.now
        longest = begins + self._ms("session_duration")
        if self.settings.session_max_duration is not None:
            longest = min(longest, session.started + self._ms("session_max_duration"))
        ends = min(self.now + min(ms, most), longest + most)
        if ends + SESSION_GRACE_MS > session.ends:
            session.ends, self.last_end = ends + SESSION_GRACE_MS, max(self.last_end, ends)
        return True

    def renew(self, now: int, passes: list[Pass], *, are_expired: bool = False) -> list[Reply]:
        self._begin(now)
        self.places_before = {}
        kept = [self._keep_session(pass_, is_expired=are_expired) for pass_ in passes]
        self._expire()
        kept = [reply or self._restore_session(p) for p, reply in zip(passes, kept, strict=True)]
        self._call_next()
        return [
            reply or self._reply_to_poll(p.visitor, p.order, 0, now)
            for p, reply in zip(passes, kept, strict=True)
        ]

    def leave(self, now: int, leaving: list[tuple[str, str]]) -> list[bool]:
        self._begin(now)
        left = [self._leave(visitor, why) for visitor, why in leaving]
        self._expire()
        self._call_next()
        return left

    def sweep(self, now: int) -> tuple[int, int, int]:
        """Remove what is out of date. Return the numbers of places, sessions and stored tokens that
        are removed."""
        self._begin(now)
        places = self.queue | self.absent
        silent = [v for v, place in places.items() if self._is_overdue(place)]
        for visitor in silent:
            for known in (self.queue, self.absent, self.reserved):
                known.pop(visitor, None)
            self._event("expired", visitor, "swept" if places[visitor].polled else "unused")
        # Until a token expires, its visitor may come back with it.
        session = self._ms("session_duration")
        life = max(session, TICKET_LIFETIME_MS) + 3_600_000
        is_longer = self.last_end > now + session
        old = [
            v for v, at in self.revoked.items() if at <= now - session - 60_000 and not is_longer
        ]
        for visitor in old:
            del self.revoked[visitor]
        worn = [v for v, at in self.spent.items() if at <= now - life]
        for visitor in worn:
            del self.spent[visitor]
        sessions = self._expire()
        self._call_next()
        self.addresses = {v: a for v, a in self.addresses.items() if self._counts_for_address(v)}
        return len(silent), sessions, len(old) + len(worn)

    def snapshot(self, now: int, seen: int = 0) -> tuple[int, int, int]:
        """Return how many visitors wait, how many have a session, and how many of these have been
        called but not arrived. `seen` is when the replica's last snapshot was taken."""
        data_of = self.measured_ms
        self._begin(now)
        if data_of is not None and seen > data_of:
            if self.now > self.recovery:
                self.recovery, self.near_ms = self.now, 0
            self.lost_since = data_of
        self._expire()
        self._call_next()
        provisional = [s for s in self.sessions.values() if s.started is None]
        return len(self.queue), len(self.sessions), len(provisional)

    def configure(self, now: int, changes: dict[str, object]) -> None:
        before, lines = self._unpolled_offset, len(self.settings.lines)
        file = self.file.model_dump()
        changes = {name: file[name] if v is None else v for name, v in changes.items()}
        self.configured = self.configured.with_overrides(changes)
        self.settings = policy.apply_event(self.configured, now)
        for place in self.queue.values():
            if not place.polled:  # The score in Redis stays, because there may be too many.
                place.due += before - self._unpolled_offset
            is_kept = policy.is_by_arrival(self.settings) and lines == len(self.settings.lines)
            place.arrival = place.arrival if is_kept else None
        self.snapshot(now)
        self._event("operator", "", "change")

    def reset(self, now: int) -> int:
        self._begin(now, measures=False)
        removed = len(self.queue) + len(self.absent)
        for known in (self.queue, self.absent, self.reserved):
            known.clear()
        self.early_polls.clear()
        self.moved.clear()
        self.epoch = max(self.epoch + 1, now)
        self._event("operator", "", "reset")
        return removed

    def move(self, now: int, visitor: str, position: int) -> int:
        """Move a visitor to `position`, or further ahead if no order is free there. 0 undoes all
        moves. Return the new position, or an error code below 1."""
        self._begin(now)
        self._expire()
        moved = self._move(visitor, position)
        self._call_next()
        return moved

    def _move(self, visitor: str, position: int) -> int:
        if visitor not in self.queue:
            return 0
        if self.phase is Phase.PREQUEUE:
            return -2
        place = self.queue[visitor]
        if position == 0:
            if visitor not in self.moved:
                return -3
            self._put_at(visitor, self.moved[visitor], "back")
            return self._position(visitor)
        line = policy.line_of(self.settings, place.order)
        orders = sorted(
            other.order
            for v, other in self.queue.items()
            if v != visitor and (line is None or self._sub_queue(other) == line)
        )
        position = min(position, len(orders) + 1)
        if position > len(orders):
            order = orders[-1] + 1 if orders else place.order
            low = policy.lowest_order(self.settings, line)
            self.last_order = max(self.last_order, order - low)
        else:
            while position > 1 and orders[position - 2] >= orders[position - 1] - 1:
                position -= 1
            order = orders[position - 1] - 1
        self._put_at(visitor, order, "move")
        return self._position(visitor)

    def reclassify(self, now: int, visitor: str, name: str, grant: str, by: str) -> int:
        """Give a visitor another class. A grant can be used once, and moves nobody back. Return as
        `move` does."""
        self._begin(now)
        self._expire()
        graded = self._reclassify(visitor, name, grant, by)
        self._call_next()
        return graded

    def _reclassify(self, visitor: str, name: str, grant: str, by: str) -> int:
        if visitor not in self.queue:
            return 0
        place = self.queue[visitor]
        if self.phase is Phase.PREQUEUE or policy.is_drawn(place.order):
            return -2
        by_rules = self.moved.get(visitor, place.order)
        arrival = policy.arrival_of(self.settings, by_rules)
        order = arrival + policy.offset_of(self.settings, name)
        if not by:
            if order >= place.order:
                return self._position(visitor)
            if grant in self.grants:
                return -1
            self.grants |= {grant} if grant else set()
        if order == place.order:
            return self._position(visitor)
        taken = {other.order for other in self.queue.values()}
        for _ in range(8):
            order -= order in taken
        self._put_at(visitor, order, "grade" if by else "")
        self._event("graded", visitor, "operator" if by else "grant")
        return self._position(visitor)

    def _put_at(self, visitor: str, order: int, what: str) -> None:
        self.moved = {v: was for v, was in self.moved.items() if v in self.queue}
        if what == "back":
            del self.moved[visitor]
        elif what:
            self.moved.setdefault(visitor, self.queue[visitor].order)
        elif visitor in self.moved:
            self.moved[visitor] = order
        place = self.queue[visitor]
        before, after = (policy.line_of(self.settings, o) for o in (place.order, order))
        place.order = order
        if policy.is_by_arrival(self.settings) and before != after and not policy.is_drawn(order):
            self._store_arrival(place, self._next_arrival())
        if what:
            self._event("operator", visitor, what)

    def _position(self, visitor: str) -> int:
        line, turn = self._sub_queue(self.queue[visitor]), self._sort_key(visitor)
        return 1 + sum(
            self._sort_key(v) < turn
            for v, other in self.queue.items()
            if line is None or self._sub_queue(other) == line
        )

    def _sub_queue(self, place: Place) -> int | None:
        return policy.line_of(self.settings, place.order)

    def store_advised_poll(self, visitor: str, refresh_ms: int) -> None:
        """Store when a visitor was advised to poll next."""
        if visitor in self.queue:
            place, long_pause_ms = (
                self.queue[visitor],
                self._find_long_pause_ms(visitor, refresh_ms),
            )
            place.polls_seldom = long_pause_ms is not None
            expected_ms = refresh_ms if long_pause_ms is None else long_pause_ms
            place.due = self.now + expected_ms
            place.advised_s = min(63, math.ceil(expected_ms / 1000))

    def _find_long_pause_ms(self, visitor: str, refresh_ms: int) -> int | None:
        """Return the time between a visitor's polls if it is much longer than advised, else
        None."""
        if visitor not in self.places_before:
            return None
        before = self.places_before[visitor]
        if before is None:
            is_known = self.recovery_stage == 0 and refresh_ms <= 50_000
            return 60_000 if is_known else None
        late_ms = self.now - before.due
        if not before.polled or self.due_score(before) <= self.outage_end:
            return None
        took_ms = late_ms + 1000 * before.advised_s
        is_seldom = before.polls_seldom or late_ms >= 10_000
        return min(60_000, took_ms) if is_seldom and took_ms >= refresh_ms + 10_000 else None

    def list_ends(self) -> list[int]:
        """Return the times at which places or sessions end."""
        timeout = self._ms("heartbeat_timeout")
        places = [*self.queue.values(), *self.absent.values()]
        ends = [place.due + wait for place in places for wait in (0, timeout)]
        ends += map(self._silent_from, places)
        if self.outage_end > 0:
            ends += [int(self.outage_end) + timeout, int(self._spared_until)]
        return ends + [int(session.ends) for session in self.sessions.values()]

    def due_score(self, place: Place) -> float:
        """Return the score in `due` (rooms/lua/parts/heartbeat_due.lua)."""
        if place.polled:
            return place.due + place.polls_seldom / 2 + place.advised_s / 128
        return place.due + self._unpolled_offset + 0.5

    # The rules -----------------------------------------------------------------------------

    def _begin(self, now: int, *, measures: bool = True) -> None:
        self.now = now
        self.has_outage_ended = (
            self.measured_ms is not None and now - self.measured_ms > self.outage_ms
        )
        if self.has_outage_ended:
            self.outage_end = now
        if measures:
            self.measured_ms = now
        self.settings = policy.apply_event(self.configured, now)
        self.events = []
        self.born = now if self.born is None else self.born
        before = self.recovery
        known = min(
            (at for at in (self.known_since, self.existed_since) if at is not None), default=now
        )
        if known < self.born:
            self.recovery = max(self.recovery, self.born)
        if self.failed_open_since > self.recovery:
            self.recovery = now
        self.failed_open_since = 0
        is_older = known < self.born
        is_emptied = is_older and now - self.born < 2 * BACKOFF_MS
        if self.recovery > before:
            self.near_ms = -1 if is_emptied else 0
            self.lost_since = math.inf
        if is_emptied and self.known_near_ms is not None:
            self.near_ms = max(self.near_ms, self.known_near_ms)

    @property
    def recovery_stage(self) -> int:
        """The stage of the recovery after a loss of data. In stage 2 nobody is called. In stage 1
        some visitors may still be missing from the queue. In stage 0 the recovery is over."""
        if not self.recovery:
            return 0
        since, fixed = self.now - self.recovery, self.settings.heartbeat_interval
        patience = self._ms("heartbeat_timeout") / 2
        longest = min(patience, 60_000 if fixed is None else self._ms("heartbeat_interval"))
        at_the_head = min(60_000, self._ms("session_duration") / 8)
        near = longest if fixed is not None else min(patience, at_the_head)
        event, told = self._opening, self.near_ms
        if event and self.recovery < event.opens_at + 60_000:
            longest = min(60_000, patience)
            near = max(near, 0.525 * longest + 1000)
            told = max(told, near) if told >= 0 else told
        window = self.settings.recovery_window
        chances = 2 * told if told >= 0 else 1.05 * max(60_000, near) + 2000
        enough = max(SESSION_GRACE_MS + 1000, chances)
        if since < (enough if window is None else self._ms("recovery_window")):
            return 2
        return 1 if since < 1.05 * longest + 2000 else 0

    def _expire(self) -> int:
        for session in self.sessions.values():  # Called visitors could not arrive in an outage.
            was_short = self.has_outage_ended and self.now < session.ends <= self._spared_until
            was_over = session.ends <= self.outage_end and self.now < self._spared_until
            if session.started is None and (was_short or was_over):
                session.ends = int(self._spared_until)
        self._extend_unused()
        if self.now < self.outage_end + REPORT_MS:
            return 0
        over = [v for v, session in self.sessions.items() if session.ends <= self.now]
        for visitor in over:
            session = self.sessions.pop(visitor)
            if session.is_unused:
                self._event("expired", visitor, "unused")
            elif session.started is None:
                self._event("expired", visitor, "no_show")
            elif visitor not in self.revoked:
                self._event("expired", visitor, "session")
        return len(over)

    def _extend_unused(self) -> None:
        """Extend the sessions of visitors who were admitted at once and have not sent the pass
        back, as long as slots are not scarce, and for a while after an outage."""
        cap = self.settings.total_active_users
        are_wanted = self.queue or self.absent or 10 * len(self.sessions) >= 9 * cap
        if are_wanted and self.now >= self._spared_until:
            return
        for session in self.sessions.values():
            is_unused = session.is_unused and session.started is not None
            if (
                is_unused
                and session.ends <= self.now < self._latest_end(session) + SESSION_GRACE_MS
            ):
                self._admit_unused(session)

    def _call_next(self) -> None:
        if not self._has_free_slot():
            return
        self._call_reserved()
        while self._has_free_slot() and self._has_token() and self.queue:
            visitor, saved = self._choose_next()
            place = self.queue.pop(visitor)
            if self._is_silent(place):
                self._event("expired", visitor, "silent" if place.polled else "unused")
                continue
            self.weights.credits = saved
            if place.polls_seldom:
                self.reserved[visitor] = place.order
                if not self._count_needed([place]):
                    place.arrival = None  # stored again when the visitor polls
                    self.absent[visitor] = place
                    continue
                self.remaining -= 1
            self._give_slot(visitor, place)

    def _give_slot(self, visitor: str, place: Place) -> None:
        self._spend_token()
        claim = self._ms("claim_window")
        least = self.now + (claim if self._patience(place) == claim else 1000)
        ends = max(int(self._silent_from(place)), least)
        self.sessions[visitor] = Session(ends + (0 if place.polled else UNUSED), started=None)
        self._event("called", visitor, "head")

    def _call_reserved(self) -> None:
        """Call visitors with a reservation shortly before their next polls."""
        self.remaining = max(1, self.settings.total_active_users // 20)
        self._has_token()
        for visitor in sorted(self.reserved, key=lambda v: (self.reserved[v], v)):
            session, place = self.sessions.get(visitor), self.absent.get(visitor)
            if visitor not in self.queue and session and session.started is None:
                self.remaining -= 1
            elif visitor in self.queue or session or place is None:
                del self.reserved[visitor]
                self.absent.pop(visitor, None)
            elif self._is_silent(place):
                del self.absent[visitor], self.reserved[visitor]
                self._event("expired", visitor, "silent")
        soonest = sorted(
            self.absent, key=lambda v: (self.due_score(self.absent[v]), self.reserved[v])
        )
        need = self._count_needed([self.absent[visitor] for visitor in soonest])
        self.remaining -= need
        for visitor in soonest[:need]:
            if self._has_free_slot() and self._has_token():
                self._give_slot(visitor, self.absent.pop(visitor))

    def _count_needed(self, places: list[Place]) -> int:
        """Return how many of these visitors must be called now, so that each has a slot at the next
        poll. At most a twentieth of the slots is kept for them."""
        ends, held_ms = self.get_hold_times()
        cap, per_minute = self.settings.total_active_users, self.settings.new_users_per_minute
        each_ms = max(held_ms / ends / cap, 60_000 / per_minute if per_minute else 0)
        until_ms = (max(0, self.due_score(place) - self.now) for place in places)
        needs = [n + 3 - ms / each_ms for n, ms in enumerate(until_ms)]
        return max(0, min(math.ceil(max(needs, default=0)), len(places), self.remaining))

    def _end_reservation(self, visitor: str, joined: int) -> None:
        """Put a visitor with a reservation, who polls before getting a slot, back in the queue."""
        if visitor in self.absent:
            self.queue[visitor] = self.absent.pop(visitor)
            del self.reserved[visitor]
            if not policy.is_drawn(self.queue[visitor].order):
                self._store_arrival(self.queue[visitor], joined * 1000)

    def _choose_next(self) -> tuple[str, dict[int, Fraction]]:
        """Return the visitor who is next, and the sub-queues' credits after the call."""
        lines = {self._sub_queue(place) for place in self.queue.values()}
        busy = {line for line in lines if line is not None}
        if not policy.is_weighted(self.settings) or busy != lines:  # drawn places go first
            return min(self.queue, key=self._sort_key), self.weights.credits
        line, saved = self.weights.choose(self.settings, busy)
        members = [v for v, place in self.queue.items() if self._sub_queue(place) == line]
        return min(members, key=self._sort_key), saved

    def _enter(self, newcomer: Newcomer) -> Reply:
        visitor = newcomer.visitor
        is_classed = False
        if visitor in self.revoked:
            return Reply(QueueOutcome.GONE)
        if visitor in self.sessions:
            return self._claim(visitor, self.now * 1000)
        self._end_reservation(visitor, self.now)
        if self.phase is Phase.CLOSED:
            return Reply(QueueOutcome.REJECTED)
        if visitor not in self.queue:
            if self.phase is Phase.PREQUEUE and newcomer.lot_of != self._opening.begins_ms:
                return Reply(QueueOutcome.REJECTED)
            if self._has_max_places(newcomer.address):
                return Reply(QueueOutcome.FULL)
            most = self.settings.max_waiting
            if not self.queue and self._has_free_slot() and self._has_token():
                order, _ = self._next_order(newcomer.draw, "")
                self._spend_token()
                self._store_address(newcomer.address, visitor)
                self._event("admitted", visitor, "at_once")
                self.sessions[visitor] = session = Session(0, self.now)
                expires = self._admit_unused(session)
                return Reply(QueueOutcome.ADMITTED, order, self.now, expires)
            if self.settings.queueing_method == "reject":
                return Reply(QueueOutcome.REJECTED)
            if most is not None and len(self.queue) >= most:
                return Reply(QueueOutcome.FULL)
            name = self._grant_class(newcomer)
            order, arrival = self._next_order(newcomer.draw, name)
            self.queue[visitor] = Place(order, due=self.now, polled=False, joined=self.now)
            self._store_place(visitor, arrival, is_new=True)
            self._store_address(newcomer.address, visitor)
            self._event("joined", visitor, "new")
            is_classed = name != ""
        reply = self._reply_to_poll(visitor, self.queue[visitor].order, 0, self.now)
        return replace(reply, is_classed=is_classed)

    def _grant_class(self, newcomer: Newcomer) -> str:
        if newcomer.class_name not in self.settings.classes or self.phase is Phase.PREQUEUE:
            return ""
        if newcomer.grant in self.grants:
            return ""
        self.grants |= {newcomer.grant} if newcomer.grant else set()
        return newcomer.class_name

    def _store_place(self, visitor: str, arrival: int, *, is_new: bool = False) -> None:
        """Store the order of a new place if it was drawn, and otherwise its arrival."""
        place = self.queue[visitor]
        event = self.configured.events and self._opening
        if policy.is_drawn(place.order):
            if event and (is_new or event.begins_ms <= place.joined < event.opens_at):
                if self.drawn_from != event.begins_ms:
                    self.drawn_from, self.drawn = event.begins_ms, {}
                self.drawn.setdefault(visitor, place.order)
        else:
            self._store_arrival(place, arrival)

    def _store_arrival(self, place: Place, arrival: int) -> None:
        if policy.is_by_arrival(self.settings):
            place.arrival = arrival + policy.lowest_order(self.settings, self._sub_queue(place))

    @property
    def _opening(self) -> RoomEvent | None:
        begun = [event for event in self.configured.events if event.begins_ms <= self.now]
        return max(begun, key=lambda event: event.begins_ms, default=None)

    def _record_heartbeat(self, ticket: Ticket, address: str) -> int | None:
        """Record a poll. Return for how long the visitor's polls are refused because there were too
        many, ms. Return None for an invalid ticket, and -1 if the address has too many places."""
        self._end_reservation(ticket.visitor, ticket.joined_ms)
        place = self.queue.get(ticket.visitor)
        if place is not None:
            is_drawn = self.phase is Phase.PREQUEUE and policy.is_drawn(ticket.order)
            if is_drawn and ticket.joined_ms < self._opening.begins_ms:
                place.order = ticket.joined_ms * 1000
                self._store_arrival(place, ticket.joined_ms * 1000)
            is_early = place.polled and not place.polls_seldom and self.now < place.due
            place.due, place.polled, place.advised_s, place.polls_seldom = self.now, True, 0, False
            return self._count_early(ticket.visitor) if is_early else 0
        if ticket.visitor in self.revoked:
            return None
        if ticket.visitor in self.sessions:
            return 0
        if ticket.visitor in self.spent or not self._is_ticket_current(ticket):
            return None
        emptied, longest = (
            max(self.born, self.recovery),
            self._ms("rejoin_window") + TICKET_RENEW_MS,
        )
        was_lost = ticket.joined_ms < emptied
        polled = max(ticket.signed_ms, self.outage_end, emptied if was_lost else 0)
        if self.now - polled > longest:
            return None
        comes_back = was_lost and self.now - emptied <= longest
        if not comes_back and self._has_max_places(address):
            return -1
        self.epoch = ticket.epoch
        self._restore_place(ticket.visitor, ticket.order, "ticket", ticket.joined_ms)
        self._store_address(address, ticket.visitor)
        return 0

    def _is_ticket_current(self, ticket: Ticket) -> bool:
        """Return True unless the ticket is from before a reset, or from before an event that does
        not accept earlier places."""
        event = self._opening
        if event and ticket.joined_ms < event.begins_ms:
            is_between = self.settings.between_events == "open" and self.phase is Phase.OPEN
            if policy.is_drawn(ticket.order) or not is_between:
                return False
        return ticket.epoch >= self.epoch

    def _has_max_places(self, address: str) -> bool:
        most = self.settings.max_places_per_address
        if most is None:
            return False
        theirs = [v for v, noted in self.addresses.items() if noted == address]
        for visitor in theirs:
            if not self._counts_for_address(visitor):
                del self.addresses[visitor]
        return sum(visitor in self.addresses for visitor in theirs) >= most

    def _counts_for_address(self, visitor: str) -> bool:
        """Return True if the visitor has a place, a session, or a number in this pre-queue."""
        event = self.configured.events and self._opening
        is_drawn = (
            self.phase is Phase.PREQUEUE
            and event
            and self.drawn_from == event.begins_ms
            and visitor in self.drawn
            and visitor not in self.spent
        )
        return bool(is_drawn) or any(
            visitor in at for at in (self.queue, self.absent, self.sessions)
        )

    def _store_address(self, address: str, visitor: str) -> None:
        if self.settings.max_places_per_address is not None:
            self._has_max_places(address)  # This deletes visitors who are gone.
            self.addresses[visitor] = address

    def _keep_session(self, pass_: Pass, *, is_expired: bool = False) -> Reply | None:
        """Renew a session. Return None if the visitor has no session."""
        if pass_.visitor in self.revoked:
            return Reply(QueueOutcome.GONE)
        session = self.sessions.get(pass_.visitor)
        if is_expired and (session is None or session.ends - SESSION_GRACE_MS <= self.now):
            return Reply(QueueOutcome.GONE)
        if session is None:
            return None
        if session.started is None:
            return self._claim(pass_.visitor, pass_.order)
        promised = int(session.ends) - SESSION_GRACE_MS
        if session.is_unused:
            promised = max(pass_.expires_ms, self._latest_end(session))
        return self._admit(pass_.visitor, pass_.order, pass_.started_ms, promised)

    def _restore_session(self, pass_: Pass) -> Reply | None:
        """Restore a session from its pass. If no slot is free, return None: the visitor waits."""
        visitor = pass_.visitor
        if visitor in self.sessions:  # The batch has two passes of the visitor.
            return self._keep_session(pass_)
        is_alone = pass_.renewed_ms == 0
        is_over = len(self.sessions) >= self.settings.total_active_users
        self._end_reservation(visitor, self.now)
        is_newer = self.recovery_stage == 2 and pass_.started_ms > self.lost_since
        if is_alone or is_newer or not (is_over or visitor in self.queue):
            self.queue.pop(visitor, None)
            if is_alone and pass_.joined_ms < pass_.started_ms:
                self.spent[visitor] = self.now
            self._event("admitted", visitor, "restored")
            ends = min(pass_.expires_ms, self.now + self._ms("session_duration"))
            return self._admit(visitor, pass_.order, min(pass_.started_ms, self.now), ends)
        if visitor in self.queue:
            place = self.queue[visitor]
            place.due, place.polled, place.advised_s, place.polls_seldom = self.now, True, 0, False
        else:
            self._restore_place(visitor, pass_.order, "pass", self.now)
            self.spent.pop(visitor, None)
        return None

    def _restore_place(self, visitor: str, order: int, why: str, joined: int) -> None:
        self.queue[visitor] = Place(order, due=self.now, polled=True, joined=joined)
        self._store_place(visitor, joined * 1000)
        self._event("joined", visitor, why)

    def _reply_to_poll(self, visitor: str, order: int, limited: int, joined: int) -> Reply:
        if visitor not in self.queue:
            return self._claim(visitor, order)
        turn, place = self._sort_key(visitor), self.queue[visitor]
        rank = sum(self._sort_key(other) < turn for other in self.queue)
        line, by_arrival = self._sub_queue(place), policy.is_by_arrival(self.settings)
        reply = Reply(QueueOutcome.WAITING, order, ahead=rank, limited=limited, calls=rank)
        if policy.is_drawn(order) or not (self.settings.lines or by_arrival):
            return reply
        if by_arrival and place.arrival is None:
            place.arrival = joined * 1000 + policy.lowest_order(self.settings, line)
        others = [other for other in self.queue.values() if self._sub_queue(other) == line]
        drawn = [other for other in self.queue.values() if policy.is_drawn(other.order)]
        in_line = self._position(visitor) - 1
        ahead = in_line
        if by_arrival:
            shown = sorted(
                (other.arrival, v)
                for v, other in self.queue.items()
                if other.arrival is not None and self._sub_queue(other) == line
            )
            ahead = shown.index((place.arrival, visitor)) + (len(drawn) if line is None else 0)
            known = sum(other.arrival is not None for other in self.queue.values())
            if known < len(self.queue) - len(drawn):
                ahead = max(ahead, in_line)
        if line is None:
            return replace(reply, ahead=ahead)
        calls: float = rank
        if policy.is_weighted(self.settings):
            weights = [one.weight for one in self.settings.lines]
            calls = in_line + len(drawn)
            for n, weight in enumerate(weights):
                length = sum(self._sub_queue(other) == n for other in self.queue.values())
                calls += 0 if n == line else min(length, in_line * weight / weights[line])
        return replace(
            reply, ahead=ahead, calls=math.floor(calls), line=line, line_waiting=len(others)
        )

    def _claim(self, visitor: str, order: int) -> Reply:
        session = self.sessions[visitor]
        if session.started is None:
            self._event("admitted", visitor, "claimed")
            self.spent[visitor] = self.now
            return self._admit(visitor, order, self.now)
        expires = int(session.ends) - SESSION_GRACE_MS
        if session.is_unused:
            expires = self._admit_unused(session)
        return Reply(QueueOutcome.ADMITTED, order, session.started, expires)

    def _admit_unused(self, session: Session) -> int:
        """Keep the slot of a first pass for claim_window. Return when the pass expires."""
        expires = self._latest_end(session)
        claim = self._ms("claim_window")
        until = min(self.now + claim, expires + SESSION_GRACE_MS) + UNUSED
        session.ends = max(session.ends, until)
        self.last_end = max(self.last_end, expires)
        return expires

    def _latest_end(self, session: Session) -> int:
        """Return when a session's first pass expires."""
        terms = [self._ms("session_duration")]
        if self.settings.session_max_duration is not None:
            terms.append(self._ms("session_max_duration"))
        return session.started + min(terms)

    def _admit(self, visitor: str, order: int, started: int, promised: int = 0) -> Reply:
        begins = started if self.settings.disable_session_renewal else self.now
        expires = begins + self._ms("session_duration")
        if self.settings.session_max_duration is not None:
            expires = min(expires, started + self._ms("session_max_duration"))
        expires = max(expires, promised)
        self.last_end = max(self.last_end, expires)
        self.sessions[visitor] = Session(expires + SESSION_GRACE_MS, started)
        return Reply(QueueOutcome.ADMITTED, order, started, expires)

    def _leave(self, visitor: str, why: str) -> bool:
        if visitor in self.revoked:
            return False
        self.revoked[visitor] = self.now
        started = self.sessions[visitor].started if visitor in self.sessions else None
        if started is None or started < self.born:
            self.spent.setdefault(visitor, self.now)
        if visitor in self.queue:
            del self.queue[visitor]
            self._event(why, visitor, "waiting")
        elif visitor in self.sessions:
            session = self.sessions[visitor]
            if session.started is None:
                del self.sessions[visitor]
                self._event(why, visitor, "called")
            else:
                session.ends = min(int(session.ends), self.now + RELEASE_HOLD_MS)
                self._event(why, visitor, "session")
        elif visitor in self.absent:
            del self.absent[visitor], self.reserved[visitor]
            self._event(why, visitor, "waiting")
        else:
            return False
        return True

    def _count_early(self, visitor: str) -> int:
        if self.early_minute != self.now // 60_000:
            self.early_minute = self.now // 60_000
            self.early_polls.clear()
        self.early_polls[visitor] = self.early_polls.get(visitor, 0) + 1
        is_over = self.early_polls[visitor] > self.settings.poll_limit
        return 60_000 - self.now % 60_000 if is_over else 0

    @property
    def _unpolled_offset(self) -> int:
        return self._ms("claim_window") - self._ms("heartbeat_timeout")

    def _sort_key(self, visitor: str) -> tuple[int, str]:
        return self.queue[visitor].order, visitor

    def _is_silent(self, place: Place) -> bool:
        return self._silent_from(place) < self.now

    def _silent_from(self, place: Place) -> float:
        """Return when the visitor counts as silent: after three missed polls, and at least 10 s."""
        due = place.due if place.polled else min(self.now, place.due)
        return self._spared_until if due <= self.outage_end else due + self._patience(place)

    def _patience(self, place: Place) -> int:
        claim = self._ms("claim_window")
        if place.polls_seldom:
            return min(claim, 30_000)
        is_known = place.polled and place.advised_s
        return min(claim, max(10_000, 3000 * place.advised_s)) if is_known else claim

    @property
    def _spared_until(self) -> float:
        return self.outage_end + max(self._ms("claim_window"), BACKOFF_MS)

    def _is_overdue(self, place: Place) -> bool:
        timeout, score = self._ms("heartbeat_timeout"), self.due_score(place)
        is_spared = self.now <= max(self.outage_end + timeout, self._spared_until)
        return score < self.now - timeout and not (is_spared and score < self.outage_end + 1)

    def _has_free_slot(self) -> bool:
        is_free = len(self.sessions) < self.settings.total_active_users
        is_open = self.phase is Phase.OPEN and not self.settings.queue_all
        return is_free and is_open and self.recovery_stage < 2

    @property
    def phase(self) -> Phase:
        return policy.phase(self.configured, self.now)

    def _has_token(self) -> bool:
        self.count_tokens()
        return self.settings.new_users_per_minute is None or self.tokens >= 1

    def count_tokens(self) -> None:
        """Add the rate limit's tokens since the last count."""
        per_minute = self.settings.new_users_per_minute
        if per_minute is None:
            return
        most = max(1, per_minute / 30)
        filled = most if self.tokens is None else self.tokens
        filled += max(0, self.now - self.tokens_at) * per_minute / 60_000
        self.tokens, self.tokens_at = min(most, filled), self.now

    def _spend_token(self) -> None:
        if self.tokens is not None and self.settings.new_users_per_minute is not None:
            self.tokens -= 1

    def _next_order(self, draw: float, name: str) -> tuple[int, int]:
        """Return the order of a visitor who joins, and the arrival from which it was computed."""

        drawn = math.floor(draw * policy.DRAWS)
        if self.phase is Phase.PREQUEUE:
            return drawn - policy.FRONT, drawn
        arrival = drawn // 8 * 8 if policy.is_random(self.settings) else self._next_arrival()
        return arrival + policy.offset_of(self.settings, name), arrival

    def _next_arrival(self) -> int:
        self.last_order = policy.next_arrival(self.now, self.last_order)
        return self.last_order

    def _ms(self, setting: str) -> int:
        return round(getattr(self.settings, setting) * 1000)

    def _event(self, kind: str, visitor: str, why: str) -> None:
        self.events.append((kind, visitor, why))
