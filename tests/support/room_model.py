"""A model of a room in plain Python, against which test_model.py checks the scripts.

It has one queue and one set of sessions, and looks at every visitor each time. It is told only one
thing: when each visitor was asked to poll, since that is an estimate.
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

#: A polling visitor's ticket is younger than this.
RESIGN_MS = 300_000
#: Pages poll again within this time after an outage: 60 s, 5 % late, and the request itself.
BACKOFF_MS = 65_000
TELLING_MS = 2000


@dataclass
class Place:
    order: int
    #: When the next poll is expected; before the first one, when the visitor joined.
    due: int
    polled: bool
    #: The pause that the visitor was told, seconds, 63 at most; 0: unknown.
    told_s: int = 0
    #: `told_s` is the visitor's real pause, which is much longer than the one that they were told.
    seldom: bool = False
    #: The sort key of positions that are shown by arrival; None: not stored yet.
    arrival: int | None = None
    joined: int = 0


#: The fraction of a session's end until its cookie is shown (rooms/lua/parts/admit.lua).
UNUSED = 0.5


@dataclass
class Session:
    ends: float
    #: None: called, not yet arrived.
    started: int | None

    @property
    def is_unused(self) -> bool:
        return self.ends % 1 == UNUSED


@dataclass(frozen=True)
class Reply:
    """The reply to a visitor; times are 0 unless admitted, `ahead` unless waiting."""

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
    visitor: str
    draw: float
    class_name: str = ""
    grant: str = ""
    #: When the pre-queue of the lot `draw` begins.
    lot_of: int = 0
    address: str = ""


class Model:
    def __init__(self, settings: RoomSettings) -> None:
        self.file = settings
        #: What the replica tells Redis: since when it has known the room, and since when it has
        #: admitted visitors without Redis.
        self.known: int | None = None
        self.promised = 0
        #: The longest refresh near the head that the replica told, ms.
        self.near_known: int | None = None
        #: A longer time without a script is an outage.
        self.outage_ms = 10**12
        #: Returns how many visitors have held a slot, and for how long in all, ms; an estimate.
        self.held: Callable[[], tuple[float, float]] = lambda: (1.0, 1.0)
        self.lose()

    def lose(self) -> None:
        """Empty Redis, changed settings included."""
        self.configured = self.settings = self.file
        #: Since when Redis has known the room, if it lost keys.
        self.known_here: int | None = None
        self.line: dict[str, Place] = {}
        #: Orders of visitors who poll seldom and were next; and their places until they have slots.
        self.reserved: dict[str, int] = {}
        self.away: dict[str, Place] = {}
        #: Places of the polling visitors before this step; None: lost.
        self.before: dict[str, Place | None] = {}
        #: Addresses of visitors who took a place while addresses were counted.
        self.addresses: dict[str, str] = {}
        self.drawn: dict[str, int] = {}
        self.drawn_from: int | None = None
        self.grants: set[str] = set()
        self.moved: dict[str, int] = {}
        self.weights = policy.Weights()
        self.inside: dict[str, Session] = {}
        self.revoked: dict[str, int] = {}
        self.spent: dict[str, int] = {}
        self.last_end = 0
        self.born: int | None = None
        self.recovery = 0
        self.near = -1
        #: When the data of an older Redis, which came back, ends.
        self.lost_since: float = math.inf
        #: When the last script ran; when the last outage ended, and whether in this step.
        self.measured: int | None = None
        self.back: float = -math.inf
        self.has_returned = False
        self.early: dict[str, int] = {}
        self.early_minute = -1
        self.epoch = self.last_order = self.tokens_at = 0
        self.tokens: float | None = None
        self.now = 0
        self.events: list[tuple[str, str, str]] = []

    def copied(self) -> "Model":
        return copy.deepcopy(self, {id(self.held): self.held})

    def lose_key(self, name: str) -> None:
        """Lose one key: places and sessions have to be restored."""
        self.known_here = self.born if self.known_here is None else self.known_here
        self.born = None
        self.line, self.inside, self.early, self.early_minute = {}, {}, {}, -1
        self.reserved, self.away = {}, {}
        if name == "config":
            self.configured, self.epoch = self.file, 0
        elif name in {"revoked", "spent", "drawn"}:
            setattr(self, name, {})

    # What the scripts do -------------------------------------------------------------------

    def enter(self, now: int, newcomers: list[Newcomer]) -> list[Reply]:
        self._begin(now)
        self._expire()
        self._call()
        return [self._enter(newcomer) for newcomer in newcomers]

    def beat(self, now: int, tickets: list[Ticket], addresses: list[str]) -> list[Reply]:
        self._begin(now)
        places = self.line | self.away
        self.before = {
            t.visitor: replace(places[t.visitor]) if t.visitor in places else None for t in tickets
        }
        self._expire()
        if self.phase is Phase.CLOSED:
            self._call()
            return [
                self._stand(t.visitor, t.order, 0, t.joined_ms)
                if t.visitor in self.inside
                else Reply(QueueOutcome.REJECTED)
                for t in tickets
            ]
        limits = [self._arrive(t, a) for t, a in zip(tickets, addresses, strict=True)]
        self._call()
        orders = [
            self.line[t.visitor].order if t.visitor in self.line else t.order for t in tickets
        ]
        return [
            Reply(QueueOutcome.GONE)
            if limited is None
            else Reply(QueueOutcome.FULL)
            if limited < 0
            else self._stand(t.visitor, order, limited, t.joined_ms)
            for t, order, limited in zip(tickets, orders, limits, strict=True)
        ]

    def renew(self, now: int, passes: list[Pass]) -> list[Reply]:
        self._begin(now)
        self.before = {}
        kept = [self._keep(pass_) for pass_ in passes]
        self._expire()
        kept = [reply or self._restore(p) for p, reply in zip(passes, kept, strict=True)]
        self._call()
        return [
            reply or self._stand(p.visitor, p.order, 0, now)
            for p, reply in zip(passes, kept, strict=True)
        ]

    def leave(self, now: int, leaving: list[tuple[str, str]]) -> list[bool]:
        self._begin(now)
        left = [self._leave(visitor, why) for visitor, why in leaving]
        self._expire()
        self._call()
        return left

    def sweep(self, now: int) -> tuple[int, int, int]:
        """Return how many places, sessions, and revoked and spent tokens it removes."""
        self._begin(now)
        places = self.line | self.away
        silent = [v for v, place in places.items() if self._is_overdue(place)]
        for visitor in silent:
            for known in (self.line, self.away, self.reserved):
                known.pop(visitor, None)
            self._event("expired", visitor, "swept" if places[visitor].polled else "unused")
        # A token may be shown for its whole life after its visitor left.
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
        self._call()
        self.addresses = {v: a for v, a in self.addresses.items() if self._is_here(v)}
        return len(silent), sessions, len(old) + len(worn)

    def snapshot(self, now: int, seen: int = 0) -> tuple[int, int, int]:
        """Return how many wait, are active, and have not arrived since their call. `seen` is the
        time of a script that the replica's last snapshot named."""
        data_of = self.measured
        self._begin(now)
        if data_of is not None and seen > data_of:
            if self.now > self.recovery:
                self.recovery, self.near = self.now, 0
            self.lost_since = data_of
        self._expire()
        self._call()
        provisional = [s for s in self.inside.values() if s.started is None]
        return len(self.line), len(self.inside), len(provisional)

    def configure(self, now: int, changes: dict[str, object]) -> None:
        before, lines = self._unpolled_offset, len(self.settings.lines)
        file = self.file.model_dump()
        changes = {name: file[name] if v is None else v for name, v in changes.items()}
        self.configured = self.configured.changed(changes)
        self.settings = policy.during(self.configured, now)
        for place in self.line.values():
            if not place.polled:  # so it is stored; their number is not bounded
                place.due += before - self._unpolled_offset
            is_kept = policy.is_by_arrival(self.settings) and lines == len(self.settings.lines)
            place.arrival = place.arrival if is_kept else None
        self.snapshot(now)
        self._event("operator", "", "change")

    def reset(self, now: int) -> int:
        self._begin(now, measures=False)
        removed = len(self.line) + len(self.away)
        for known in (self.line, self.away, self.reserved):
            known.clear()
        self.early.clear()
        self.moved.clear()
        self.epoch = max(self.epoch + 1, now)
        self._event("operator", "", "reset")
        return removed

    def move(self, now: int, visitor: str, position: int) -> int:
        """Move a visitor to `position`, or further ahead if no order is free there; 0 moves back.
        Return the new position."""
        self._begin(now)
        self._expire()
        moved = self._move(visitor, position)
        self._call()
        return moved

    def _move(self, visitor: str, position: int) -> int:
        if visitor not in self.line:
            return 0
        if self.phase is Phase.PREQUEUE:
            return -2
        place = self.line[visitor]
        if position == 0:
            if visitor not in self.moved:
                return -3
            self._put_at(visitor, self.moved[visitor], "back")
            return self._position(visitor)
        line = policy.line_of(self.settings, place.order)
        orders = sorted(
            other.order
            for v, other in self.line.items()
            if v != visitor and (line is None or self._line(other) == line)
        )
        position = min(position, len(orders) + 1)
        if position > len(orders):
            order = orders[-1] + 1 if orders else place.order
            low = policy.low_of(self.settings, line)
            self.last_order = max(self.last_order, order - low)
        else:
            while position > 1 and orders[position - 2] >= orders[position - 1] - 1:
                position -= 1
            order = orders[position - 1] - 1
        self._put_at(visitor, order, "move")
        return self._position(visitor)

    def reclassify(self, now: int, visitor: str, name: str, grant: str, by: str) -> int:
        """Give a visitor another class. A grant works once, and moves nobody back."""
        self._begin(now)
        self._expire()
        graded = self._grade(visitor, name, grant, by)
        self._call()
        return graded

    def _grade(self, visitor: str, name: str, grant: str, by: str) -> int:
        if visitor not in self.line:
            return 0
        place = self.line[visitor]
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
        taken = {other.order for other in self.line.values()}
        for _ in range(8):
            order -= order in taken
        self._put_at(visitor, order, "grade" if by else "")
        self._event("graded", visitor, "operator" if by else "grant")
        return self._position(visitor)

    def _put_at(self, visitor: str, order: int, what: str) -> None:
        self.moved = {v: was for v, was in self.moved.items() if v in self.line}
        if what == "back":
            del self.moved[visitor]
        elif what:
            self.moved.setdefault(visitor, self.line[visitor].order)
        elif visitor in self.moved:
            self.moved[visitor] = order
        place = self.line[visitor]
        before, after = (policy.line_of(self.settings, o) for o in (place.order, order))
        place.order = order
        if policy.is_by_arrival(self.settings) and before != after and not policy.is_drawn(order):
            self._show(place, self._next_arrival())
        if what:
            self._event("operator", visitor, what)

    def _position(self, visitor: str) -> int:
        line, turn = self._line(self.line[visitor]), self._turn(visitor)
        return 1 + sum(
            self._turn(v) < turn
            for v, other in self.line.items()
            if line is None or self._line(other) == line
        )

    def _line(self, place: Place) -> int | None:
        return policy.line_of(self.settings, place.order)

    def told(self, visitor: str, refresh_ms: int) -> None:
        """Note when a visitor was told to poll."""
        if visitor in self.line:
            place, seldom_ms = self.line[visitor], self._seldom_ms(visitor, refresh_ms)
            place.seldom = seldom_ms is not None
            expected_ms = refresh_ms if seldom_ms is None else seldom_ms
            place.due = self.now + expected_ms
            place.told_s = min(63, math.ceil(expected_ms / 1000))

    def _seldom_ms(self, visitor: str, refresh_ms: int) -> int | None:
        """Return a visitor's real pause if it is much longer than the one that they were told."""
        if visitor not in self.before:
            return None
        before = self.before[visitor]
        if before is None:
            is_known = self.recovery_stage == 0 and refresh_ms <= 50_000
            return 60_000 if is_known else None
        late_ms = self.now - before.due
        if not before.polled or self.due_score(before) <= self.back:
            return None
        took_ms = late_ms + 1000 * before.told_s
        is_seldom = before.seldom or late_ms >= 10_000
        return min(60_000, took_ms) if is_seldom and took_ms >= refresh_ms + 10_000 else None

    def moments(self) -> list[int]:
        """Return the moments at which places or sessions end."""
        timeout = self._ms("heartbeat_timeout")
        places = [*self.line.values(), *self.away.values()]
        ends = [place.due + wait for place in places for wait in (0, timeout)]
        ends += map(self._silent_from, places)
        if self.back > 0:
            ends += [int(self.back) + timeout, int(self._back_until)]
        return ends + [int(session.ends) for session in self.inside.values()]

    def due_score(self, place: Place) -> float:
        """Return the score in `due` (rooms/lua/parts/heartbeat_due.lua)."""
        if place.polled:
            return place.due + place.seldom / 2 + place.told_s / 128
        return place.due + self._unpolled_offset + 0.5

    # The rules -----------------------------------------------------------------------------

    def _begin(self, now: int, *, measures: bool = True) -> None:
        self.now = now
        self.has_returned = self.measured is not None and now - self.measured > self.outage_ms
        if self.has_returned:
            self.back = now
        if measures:
            self.measured = now
        self.settings = policy.during(self.configured, now)
        self.events = []
        self.born = now if self.born is None else self.born
        before = self.recovery
        known = min((at for at in (self.known, self.known_here) if at is not None), default=now)
        if known < self.born:
            self.recovery = max(self.recovery, self.born)
        if self.promised > self.recovery:
            self.recovery = now
        self.promised = 0
        is_older = known < self.born
        is_emptied = is_older and now - self.born < 2 * BACKOFF_MS
        if self.recovery > before:
            self.near = -1 if is_emptied else 0
            self.lost_since = math.inf
        if is_emptied and self.near_known is not None:
            self.near = max(self.near, self.near_known)

    @property
    def recovery_stage(self) -> int:
        """2: nobody is called; 1: some visitors may not be back in the queue."""
        if not self.recovery:
            return 0
        since, fixed = self.now - self.recovery, self.settings.heartbeat_interval
        patience = self._ms("heartbeat_timeout") / 2
        longest = min(patience, 60_000 if fixed is None else self._ms("heartbeat_interval"))
        at_the_head = min(60_000, self._ms("session_duration") / 8)
        near = longest if fixed is not None else min(patience, at_the_head)
        event, told = self._opening, self.near
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
        for session in self.inside.values():  # called visitors could not arrive in the outage
            was_short = self.has_returned and self.now < session.ends <= self._back_until
            was_over = session.ends <= self.back and self.now < self._back_until
            if session.started is None and (was_short or was_over):
                session.ends = int(self._back_until)
        self._spare_unused()
        if self.now < self.back + TELLING_MS:
            return 0
        over = [v for v, session in self.inside.items() if session.ends <= self.now]
        for visitor in over:
            session = self.inside.pop(visitor)
            if session.is_unused:
                self._event("expired", visitor, "unused")
            elif session.started is None:
                self._event("expired", visitor, "no_show")
            elif visitor not in self.revoked:
                self._event("expired", visitor, "session")
        return len(over)

    def _spare_unused(self) -> None:
        """Keep newcomers who were admitted at once and have not come back, as long as there is
        room, and after an outage until they had time."""
        cap = self.settings.total_active_users
        are_wanted = self.line or self.away or 10 * len(self.inside) >= 9 * cap
        if are_wanted and self.now >= self._back_until:
            return
        for session in self.inside.values():
            is_unused = session.is_unused and session.started is not None
            if is_unused and session.ends <= self.now < self._latest(session) + SESSION_GRACE_MS:
                self._admit_unused(session)

    def _call(self) -> None:
        if not self._has_slot():
            return
        self._call_reserved()
        while self._has_slot() and self._has_token() and self.line:
            visitor, saved = self._next()
            place = self.line.pop(visitor)
            if self._is_silent(place):
                self._event("expired", visitor, "silent" if place.polled else "unused")
                continue
            self.weights.saved = saved
            if place.seldom:
                self.reserved[visitor] = place.order
                if not self._needed([place]):
                    place.arrival = None  # noted anew when they are back
                    self.away[visitor] = place
                    continue
                self.left -= 1
            self._give_slot(visitor, place)

    def _give_slot(self, visitor: str, place: Place) -> None:
        self._spend_token()
        claim = self._ms("claim_window")
        least = self.now + (claim if self._patience(place) == claim else 1000)
        ends = max(int(self._silent_from(place)), least)
        self.inside[visitor] = Session(ends + (0 if place.polled else UNUSED), started=None)
        self._event("called", visitor, "head")

    def _call_reserved(self) -> None:
        """Call visitors who poll seldom and were next shortly before they poll."""
        self.left = max(1, self.settings.total_active_users // 20)
        self._has_token()
        for visitor in sorted(self.reserved, key=lambda v: (self.reserved[v], v)):
            session, place = self.inside.get(visitor), self.away.get(visitor)
            if visitor not in self.line and session and session.started is None:
                self.left -= 1
            elif visitor in self.line or session or place is None:
                del self.reserved[visitor]
                self.away.pop(visitor, None)
            elif self._is_silent(place):
                del self.away[visitor], self.reserved[visitor]
                self._event("expired", visitor, "silent")
        soonest = sorted(self.away, key=lambda v: (self.due_score(self.away[v]), self.reserved[v]))
        need = self._needed([self.away[visitor] for visitor in soonest])
        self.left -= need
        for visitor in soonest[:need]:
            if self._has_slot() and self._has_token():
                self._give_slot(visitor, self.away.pop(visitor))

    def _needed(self, places: list[Place]) -> int:
        """Return for how many of these a slot must be kept until they poll, so that none is too
        late: a twentieth of the slots at most."""
        ends, held_ms = self.held()
        cap, per_minute = self.settings.total_active_users, self.settings.new_users_per_minute
        each_ms = max(held_ms / ends / cap, 60_000 / per_minute if per_minute else 0)
        until_ms = (max(0, self.due_score(place) - self.now) for place in places)
        needs = [n + 3 - ms / each_ms for n, ms in enumerate(until_ms)]
        return max(0, min(math.ceil(max(needs, default=0)), len(places), self.left))

    def _take_back(self, visitor: str, joined: int) -> None:
        """Return a visitor who polls before there is a slot to the head of the queue."""
        if visitor in self.away:
            self.line[visitor] = self.away.pop(visitor)
            del self.reserved[visitor]
            if not policy.is_drawn(self.line[visitor].order):
                self._show(self.line[visitor], joined * 1000)

    def _next(self) -> tuple[str, dict[int, Fraction]]:
        """Return the next visitor, and the sub-queues' credits after the call."""
        lines = {self._line(place) for place in self.line.values()}
        busy = {line for line in lines if line is not None}
        if not policy.is_weighted(self.settings) or busy != lines:  # the drawn go first
            return min(self.line, key=self._turn), self.weights.saved
        line, saved = self.weights.choose(self.settings, busy)
        members = [v for v, place in self.line.items() if self._line(place) == line]
        return min(members, key=self._turn), saved

    def _enter(self, newcomer: Newcomer) -> Reply:
        visitor = newcomer.visitor
        is_classed = False
        if visitor in self.revoked:
            return Reply(QueueOutcome.GONE)
        if visitor in self.inside:
            return self._claim(visitor, self.now * 1000)
        self._take_back(visitor, self.now)
        if self.phase is Phase.CLOSED:
            return Reply(QueueOutcome.REJECTED)
        if visitor not in self.line:
            if self.phase is Phase.PREQUEUE and newcomer.lot_of != self._opening.begins_ms:
                return Reply(QueueOutcome.REJECTED)
            if self._is_hoarding(newcomer.address):
                return Reply(QueueOutcome.FULL)
            most = self.settings.max_waiting
            if not self.line and self._has_slot() and self._has_token():
                order, _ = self._next_order(newcomer.draw, "")
                self._spend_token()
                self._note_address(newcomer.address, visitor)
                self._event("admitted", visitor, "at_once")
                self.inside[visitor] = session = Session(0, self.now)
                expires = self._admit_unused(session)
                return Reply(QueueOutcome.ADMITTED, order, self.now, expires)
            if self.settings.queueing_method == "reject":
                return Reply(QueueOutcome.REJECTED)
            if most is not None and len(self.line) >= most:
                return Reply(QueueOutcome.FULL)
            name = self._granted(newcomer)
            order, arrival = self._next_order(newcomer.draw, name)
            self.line[visitor] = Place(order, due=self.now, polled=False, joined=self.now)
            self._note(visitor, arrival, is_new=True)
            self._note_address(newcomer.address, visitor)
            self._event("joined", visitor, "new")
            is_classed = name != ""
        reply = self._stand(visitor, self.line[visitor].order, 0, self.now)
        return replace(reply, is_classed=is_classed)

    def _granted(self, newcomer: Newcomer) -> str:
        if newcomer.class_name not in self.settings.classes or self.phase is Phase.PREQUEUE:
            return ""
        if newcomer.grant in self.grants:
            return ""
        self.grants |= {newcomer.grant} if newcomer.grant else set()
        return newcomer.class_name

    def _note(self, visitor: str, arrival: int, *, is_new: bool = False) -> None:
        """Store a new place's shown number, and that it was drawn."""
        place = self.line[visitor]
        event = self.configured.events and self._opening
        if policy.is_drawn(place.order):
            if event and (is_new or event.begins_ms <= place.joined < event.opens_at):
                if self.drawn_from != event.begins_ms:
                    self.drawn_from, self.drawn = event.begins_ms, {}
                self.drawn.setdefault(visitor, place.order)
        else:
            self._show(place, arrival)

    def _show(self, place: Place, arrival: int) -> None:
        if policy.is_by_arrival(self.settings):
            place.arrival = arrival + policy.low_of(self.settings, self._line(place))

    @property
    def _opening(self) -> RoomEvent | None:
        begun = [event for event in self.configured.events if event.begins_ms <= self.now]
        return max(begun, key=lambda event: event.begins_ms, default=None)

    def _arrive(self, ticket: Ticket, address: str) -> int | None:
        """Return the pause for polling too often, ms; None for an invalid ticket; -1 if the
        address has too many places."""
        self._take_back(ticket.visitor, ticket.joined_ms)
        place = self.line.get(ticket.visitor)
        if place is not None:
            is_drawn = self.phase is Phase.PREQUEUE and policy.is_drawn(ticket.order)
            if is_drawn and ticket.joined_ms < self._opening.begins_ms:
                place.order = ticket.joined_ms * 1000
                self._show(place, ticket.joined_ms * 1000)
            is_early = place.polled and not place.seldom and self.now < place.due
            place.due, place.polled, place.told_s, place.seldom = self.now, True, 0, False
            return self._count_early(ticket.visitor) if is_early else 0
        if ticket.visitor in self.revoked:
            return None
        if ticket.visitor in self.inside:
            return 0
        if ticket.visitor in self.spent or not self._is_of_now(ticket):
            return None
        emptied, longest = max(self.born, self.recovery), self._ms("rejoin_window") + RESIGN_MS
        was_lost = ticket.joined_ms < emptied
        polled = max(ticket.signed_ms, self.back, emptied if was_lost else 0)
        if self.now - polled > longest:
            return None
        comes_back = was_lost and self.now - emptied <= longest
        if not comes_back and self._is_hoarding(address):
            return -1
        self.epoch = ticket.epoch
        self._rejoin(ticket.visitor, ticket.order, "ticket", ticket.joined_ms)
        self._note_address(address, ticket.visitor)
        return 0

    def _is_of_now(self, ticket: Ticket) -> bool:
        """Return True for a ticket of this queue and of an event whose places still count."""
        event = self._opening
        if event and ticket.joined_ms < event.begins_ms:
            is_between = self.settings.between_events == "open" and self.phase is Phase.OPEN
            if policy.is_drawn(ticket.order) or not is_between:
                return False
        return ticket.epoch >= self.epoch

    def _is_hoarding(self, address: str) -> bool:
        most = self.settings.max_places_per_address
        if most is None:
            return False
        theirs = [v for v, noted in self.addresses.items() if noted == address]
        for visitor in theirs:
            if not self._is_here(visitor):
                del self.addresses[visitor]
        return sum(visitor in self.addresses for visitor in theirs) >= most

    def _is_here(self, visitor: str) -> bool:
        """Return True for a visitor in the queue or inside, or with a lot of this pre-queue."""
        event = self.configured.events and self._opening
        is_drawn = (
            self.phase is Phase.PREQUEUE
            and event
            and self.drawn_from == event.begins_ms
            and visitor in self.drawn
            and visitor not in self.spent
        )
        return bool(is_drawn) or any(visitor in at for at in (self.line, self.away, self.inside))

    def _note_address(self, address: str, visitor: str) -> None:
        if self.settings.max_places_per_address is not None:
            self._is_hoarding(address)  # deletes visitors who are gone
            self.addresses[visitor] = address

    def _keep(self, pass_: Pass) -> Reply | None:
        """Renew a session; None if there is none."""
        if pass_.visitor in self.revoked:
            return Reply(QueueOutcome.GONE)
        session = self.inside.get(pass_.visitor)
        if session is None:
            return None
        if session.started is None:
            return self._claim(pass_.visitor, pass_.order)
        promised = int(session.ends) - SESSION_GRACE_MS
        if session.is_unused:
            promised = max(pass_.expires_ms, self._latest(session))
        return self._admit(pass_.visitor, pass_.order, pass_.started_ms, promised)

    def _restore(self, pass_: Pass) -> Reply | None:
        """Restore a session; None if the slot is taken and the visitor waits."""
        visitor = pass_.visitor
        if visitor in self.inside:  # twice in one batch, perhaps with another pass
            return self._keep(pass_)
        is_alone = pass_.renewed_ms == 0
        is_over = len(self.inside) >= self.settings.total_active_users
        self._take_back(visitor, self.now)
        is_newer = self.recovery_stage == 2 and pass_.started_ms > self.lost_since
        if is_alone or is_newer or not (is_over or visitor in self.line):
            self.line.pop(visitor, None)
            if is_alone and pass_.joined_ms < pass_.started_ms:
                self.spent[visitor] = self.now
            self._event("admitted", visitor, "restored")
            ends = min(pass_.expires_ms, self.now + self._ms("session_duration"))
            return self._admit(visitor, pass_.order, min(pass_.started_ms, self.now), ends)
        if visitor in self.line:
            place = self.line[visitor]
            place.due, place.polled, place.told_s, place.seldom = self.now, True, 0, False
        else:
            self._rejoin(visitor, pass_.order, "pass", self.now)
            self.spent.pop(visitor, None)
        return None

    def _rejoin(self, visitor: str, order: int, why: str, joined: int) -> None:
        self.line[visitor] = Place(order, due=self.now, polled=True, joined=joined)
        self._note(visitor, joined * 1000)
        self._event("joined", visitor, why)

    def _stand(self, visitor: str, order: int, limited: int, joined: int) -> Reply:
        if visitor not in self.line:
            return self._claim(visitor, order)
        turn, place = self._turn(visitor), self.line[visitor]
        rank = sum(self._turn(other) < turn for other in self.line)
        line, by_arrival = self._line(place), policy.is_by_arrival(self.settings)
        reply = Reply(QueueOutcome.WAITING, order, ahead=rank, limited=limited, calls=rank)
        if policy.is_drawn(order) or not (self.settings.lines or by_arrival):
            return reply
        if by_arrival and place.arrival is None:
            place.arrival = joined * 1000 + policy.low_of(self.settings, line)
        others = [other for other in self.line.values() if self._line(other) == line]
        drawn = [other for other in self.line.values() if policy.is_drawn(other.order)]
        in_line = self._position(visitor) - 1
        ahead = in_line
        if by_arrival:
            shown = sorted(
                (other.arrival, v)
                for v, other in self.line.items()
                if other.arrival is not None and self._line(other) == line
            )
            ahead = shown.index((place.arrival, visitor)) + (len(drawn) if line is None else 0)
            known = sum(other.arrival is not None for other in self.line.values())
            if known < len(self.line) - len(drawn):
                ahead = max(ahead, in_line)
        if line is None:
            return replace(reply, ahead=ahead)
        calls: float = rank
        if policy.is_weighted(self.settings):
            weights = [one.weight for one in self.settings.lines]
            calls = in_line + len(drawn)
            for n, weight in enumerate(weights):
                length = sum(self._line(other) == n for other in self.line.values())
                calls += 0 if n == line else min(length, in_line * weight / weights[line])
        return replace(
            reply, ahead=ahead, calls=math.floor(calls), line=line, line_waiting=len(others)
        )

    def _claim(self, visitor: str, order: int) -> Reply:
        session = self.inside[visitor]
        if session.started is None:
            self._event("admitted", visitor, "claimed")
            self.spent[visitor] = self.now
            return self._admit(visitor, order, self.now)
        expires = int(session.ends) - SESSION_GRACE_MS
        if session.is_unused:
            expires = self._admit_unused(session)
        return Reply(QueueOutcome.ADMITTED, order, session.started, expires)

    def _admit_unused(self, session: Session) -> int:
        """Admit for claim_window, or until the slot is needed. Return when the pass ends."""
        expires = self._latest(session)
        claim = self._ms("claim_window")
        until = min(self.now + claim, expires + SESSION_GRACE_MS) + UNUSED
        session.ends = max(session.ends, until)
        self.last_end = max(self.last_end, expires)
        return expires

    def _latest(self, session: Session) -> int:
        """Return when a session's first pass ends."""
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
        self.inside[visitor] = Session(expires + SESSION_GRACE_MS, started)
        return Reply(QueueOutcome.ADMITTED, order, started, expires)

    def _leave(self, visitor: str, why: str) -> bool:
        if visitor in self.revoked:
            return False
        self.revoked[visitor] = self.now
        started = self.inside[visitor].started if visitor in self.inside else None
        if started is None or started < self.born:
            self.spent.setdefault(visitor, self.now)
        if visitor in self.line:
            del self.line[visitor]
            self._event(why, visitor, "waiting")
        elif visitor in self.inside:
            session = self.inside[visitor]
            if session.started is None:
                del self.inside[visitor]
                self._event(why, visitor, "called")
            else:
                session.ends = min(int(session.ends), self.now + RELEASE_HOLD_MS)
                self._event(why, visitor, "session")
        elif visitor in self.away:
            del self.away[visitor], self.reserved[visitor]
            self._event(why, visitor, "waiting")
        else:
            return False
        return True

    def _count_early(self, visitor: str) -> int:
        if self.early_minute != self.now // 60_000:
            self.early_minute = self.now // 60_000
            self.early.clear()
        self.early[visitor] = self.early.get(visitor, 0) + 1
        is_over = self.early[visitor] > self.settings.poll_limit
        return 60_000 - self.now % 60_000 if is_over else 0

    @property
    def _unpolled_offset(self) -> int:
        return self._ms("claim_window") - self._ms("heartbeat_timeout")

    def _turn(self, visitor: str) -> tuple[int, str]:
        return self.line[visitor].order, visitor

    def _is_silent(self, place: Place) -> bool:
        return self._silent_from(place) < self.now

    def _silent_from(self, place: Place) -> float:
        """Return when a place is lost: after three missed polls (10 s at least)."""
        due = place.due if place.polled else min(self.now, place.due)
        return self._back_until if due <= self.back else due + self._patience(place)

    def _patience(self, place: Place) -> int:
        claim = self._ms("claim_window")
        if place.seldom:
            return min(claim, 30_000)
        is_known = place.polled and place.told_s
        return min(claim, max(10_000, 3000 * place.told_s)) if is_known else claim

    @property
    def _back_until(self) -> float:
        return self.back + max(self._ms("claim_window"), BACKOFF_MS)

    def _is_overdue(self, place: Place) -> bool:
        timeout, score = self._ms("heartbeat_timeout"), self.due_score(place)
        is_spared = self.now <= max(self.back + timeout, self._back_until)
        return score < self.now - timeout and not (is_spared and score < self.back + 1)

    def _has_slot(self) -> bool:
        is_free = len(self.inside) < self.settings.total_active_users
        is_open = self.phase is Phase.OPEN and not self.settings.queue_all
        return is_free and is_open and self.recovery_stage < 2

    @property
    def phase(self) -> Phase:
        return policy.phase(self.configured, self.now)

    def _has_token(self) -> bool:
        self.count_tokens()
        return self.settings.new_users_per_minute is None or self.tokens >= 1

    def count_tokens(self) -> None:
        """Add the tokens since the last count, at the current rate."""
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
        """Return a newcomer's order, and the arrival from which it is made."""
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
