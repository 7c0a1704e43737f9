"""The promises of docs/design.md as checks on what is in the store, whatever the model says.

A step is one script. `before` and `after` are the sets as they were read around it.
"""

import math
from dataclasses import dataclass, field

from redis.asyncio import Redis

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Outcome, Phase, Standing
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support.room_model import BACKOFF_MS, UNUSED
from tests.support.room_policy import is_by_arrival, is_drawn, is_weighted, line_of

#: In the fraction of a score in `due`: nobody polled for this place
#: (rooms/lua/parts/heartbeat_due.lua).
UNPOLLED = 0.5
_LOST_TURNS = {"silent", "swept", "no_show", "unused"}


@dataclass(frozen=True)
class Seen:
    """A room's keys as they are at one moment."""

    waiting: dict[str, int] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    active: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, int] = field(default_factory=dict)
    grants: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    epoch: int = 0
    tokens: float | None = None
    tokens_at: int | None = None
    #: The end of the stream when it was read, and what was new: (kind, visitor, why).
    last_event: str = "-"
    events: tuple[tuple[str, str, str], ...] = ()


async def look(redis: Redis, room: str, *, after: str) -> Seen:
    """Everything at once; the events after that one."""
    start = after if after == "-" else f"({after}"
    pipe = redis.pipeline(transaction=False)
    for name in (
        "waiting", "due", "active", "admitted", "revoked", "spent",
        "arrivals", "drawn", "grants", "moved", "reserved", "addresses",
    ):  # fmt: skip
        pipe.zrange(room_key(room, name), 0, -1, withscores=True)
    pipe.hget(room_key(room, "config"), "epoch")
    pipe.hmget(room_key(room, "stats"), "tokens", "tokens_at")
    pipe.xrange(room_key(room, "events"), start, "+")
    *zsets, epoch, (tokens, tokens_at), events = await pipe.execute()
    return Seen(
        *({member.decode(): score for member, score in rows} for rows in zsets),
        epoch=int(epoch or 0),
        tokens=None if tokens is None else float(tokens),
        tokens_at=None if tokens_at is None else int(tokens_at),
        last_event=events[-1][0].decode() if events else after,
        events=tuple(
            (e[b"kind"].decode(), e[b"visitor"].decode(), e[b"why"].decode()) for _, e in events
        ),
    )


@dataclass(frozen=True)
class Step:
    now: int
    #: In force when the script ran.
    settings: RoomSettings
    before: Seen
    after: Seen
    #: The store was emptied a moment ago, or no event is on: nobody is called.
    is_held: bool = False
    is_open: bool = True
    #: When the last outage ended, in which nobody could be heard.
    back: float = -math.inf

    @property
    def entered(self) -> list[str]:
        """Who was given a slot that the rate counts, in the order in which it happened."""
        return [v for kind, v, why in self.after.events if kind == "called" or why == "at_once"]


class Promises:
    """What was promised so far in one room; each method asserts one promise."""

    def __init__(self) -> None:
        #: visitor -> until when a pass that was handed out is honoured.
        self.honoured: dict[str, int] = {}
        #: visitor -> until when a released session is still counted.
        self.held: dict[str, int] = {}
        #: Whom a replica let in by itself: they stay.
        self.alone: set[str] = set()
        #: visitor -> when it was told to come back.
        self.told: dict[str, int] = {}
        #: Not polled yet when settings changed that its place is stored by
        #: (rooms/lua/parts/heartbeat_due.lua).
        self.excused: set[str] = set()
        self.patience: tuple[float, float] | None = None
        #: visitor -> the position it was shown, and who came back ahead of it since.
        self.shown: dict[str, int] = {}
        #: When slots were given, since the rate was last changed.
        self.given: list[int] = []
        self.rate: int | None = None
        self.last_order = 0
        #: Which lines had people, of which settings, and which were called since.
        self.busy: object = None
        self.calls: list[int | None] = []
        self.kind: object = None
        #: What shown positions go by, and whose was changed by this step.
        self.turns: dict[str, tuple[int, int, str]] = {}
        self.placed: list[tuple[int, int, str]] = []

    def check(self, step: Step) -> None:
        self.exact_cap(step)
        self.order(step)
        self.share(step)
        self.no_idle_slot(step)
        self.one_place(step)
        self.no_turn_lost(step)
        self.pass_within_session(step)
        self.within_rate(step)
        self.note_joined(step)

    def exact_cap(self, step: Step) -> None:
        """Never above the cap, but by those whom replicas let in alone; where it was lowered,
        nobody else comes in until it fits."""
        active = step.after.active
        if len(active) > step.settings.total_active_users:
            restored = {v for _, v, why in step.after.events if why == "restored"}
            ordinary = active.keys() - self.alone
            # Of one batch, an ordinary session may come back within the cap before one that a
            # replica let in alone comes back above it.
            is_mixed = restored & self.alone and len(ordinary) <= step.settings.total_active_users
            assert ordinary - (restored if is_mixed else set()) <= step.before.active.keys()
            assert is_mixed or restored <= self.alone
            assert not step.entered

    def order(self, step: Step) -> None:
        """First come, first called, and nobody in front of a live waiter."""
        if step.settings.queueing_method == "random":
            return
        moved = {v for kind, v, _ in step.after.events if kind in ("operator", "graded")}
        called = [v for kind, v, _ in step.after.events if kind == "called" and v not in moved]
        for line in range(len(step.settings.lines)) if is_weighted(step.settings) else (None,):
            # In one script somebody may be drawn into the line and called, or moved and called.
            orders = [
                order
                for v in called
                if (order := step.before.waiting.get(v)) is not None
                and (line is None or line_of(step.settings, order) == line)
            ]
            assert orders == sorted(orders)
            behind = [
                order
                for v, order in step.after.waiting.items()
                if step.before.waiting.get(v) == order  # some of a class may have come since
                and (line is None or line_of(step.settings, order) == line)
            ]
            if step.entered and behind:
                assert all(order <= min(behind) for order in orders)

    def share(self, step: Step) -> None:
        """While the same lines have people, each has its share of the calls, within two in any
        stretch: within one from when all began (test_lines.py)."""
        lines = [
            frozenset(line_of(step.settings, order) for order in seen.waiting.values())
            for seen in (step.before, step.after)
        ]
        kind = (step.settings.lines, lines[0])
        if kind != self.busy or lines[0] != lines[1] or None in lines[0]:
            self.busy, self.calls = (step.settings.lines, lines[1]), []
            return
        if not is_weighted(step.settings):
            return
        for event, visitor, _ in step.after.events:
            if event == "called" and visitor in step.before.waiting:
                self.calls.append(line_of(step.settings, step.before.waiting[visitor]))
        weights = {line: step.settings.lines[line].weight for line in lines[0]}
        for since in range(len(self.calls)):
            stretch = self.calls[since:]
            for line, weight in weights.items():
                exact = len(stretch) * weight / sum(weights.values())
                assert abs(stretch.count(line) - exact) < 2

    def no_idle_slot(self, step: Step) -> None:
        """A free slot and somebody waiting: not after any script."""
        settings, after = step.settings, step.after
        has_token = settings.new_users_per_minute is None or (after.tokens or 0) >= 1
        is_free = len(after.active) < settings.total_active_users and has_token
        is_held = settings.queue_all or step.is_held
        assert not (is_free and after.waiting) or is_held
        assert not (is_held and step.entered)

    def one_place(self, step: Step) -> None:
        """In line or inside, never both; and the sets tell the same story."""
        after = step.after
        assert not after.waiting.keys() & after.active.keys()
        reserved = after.reserved.keys() - after.waiting.keys()
        assert after.waiting.keys() == after.due.keys() - reserved
        assert not after.due.keys() & after.active.keys()
        assert after.admitted.keys() <= after.active.keys()
        assert not after.revoked.keys() & after.waiting.keys()

    def no_turn_lost(self, step: Step) -> None:
        """Only who was late lost a place or a call, and nobody because of an outage. Nothing is
        promised to who was turned away meanwhile, with another ticket of theirs."""
        patience = step.settings.claim_window, step.settings.heartbeat_timeout
        if patience != self.patience:
            self.patience = patience
            self.excused |= {v for v, score in step.before.due.items() if score % 1 == UNPOLLED}
        for kind, visitor, why in step.after.events:
            told = None if visitor in self.excused else self.told.get(visitor)
            if kind == "expired" and why in _LOST_TURNS and told is not None:
                assert step.now > told
                if told <= step.back:  # their pages had to try again
                    assert step.now >= step.back + BACKOFF_MS
                self.excused.add(visitor)  # nothing is promised before they poll again
            if kind != "joined":
                self.shown.pop(visitor, None)

    def pass_within_session(self, step: Step) -> None:
        """While a pass is honoured its visitor has a slot, a released one a little longer."""
        self.honoured = {v: end for v, end in self.honoured.items() if step.now < end}
        for visitor, end in self.honoured.items():
            score = step.after.active.get(visitor, 0)
            assert score >= end + (0 if score % 1 == UNUSED else SESSION_GRACE_MS)
        self.held = {v: end for v, end in self.held.items() if step.now < end}
        assert self.held.keys() <= step.after.active.keys()

    def within_rate(self, step: Step) -> None:
        """In any time t at most the burst and rate x t slots are given."""
        per_minute = step.settings.new_users_per_minute
        if per_minute != self.rate:
            self.rate, self.given = per_minute, []
        self.given += [step.now] * len(step.entered)
        if per_minute is None:
            return
        burst = max(1, per_minute / 30)
        for i, since in enumerate(self.given):
            allowed = burst + per_minute * (step.now - since) / 60_000
            assert len(self.given) - i <= allowed + 1e-6

    def note_joined(self, step: Step) -> None:
        """Whoever comes back or is moved ahead of somebody makes room for their position to
        grow; and to whoever lost the place, for whom nobody counts who comes back meanwhile,
        no position is promised."""
        waiting, settings = step.after.waiting, step.settings
        kind = settings.classes, settings.lines, settings.display, settings.queueing_method
        if kind != self.kind:
            self.kind, self.shown = kind, {}
        self.shown = {v: ahead for v, ahead in self.shown.items() if v in waiting}
        before, after = (shown_turns(seen, settings) for seen in (step.before, step.after))
        for visitor, turn in after.items():
            if before.get(visitor) != turn:
                for other in self.shown.keys() - {visitor}:
                    is_rival = other in after and after[other][0] == turn[0]
                    self.shown[other] += is_rival and turn < after[other]
        self.placed = [turn for visitor, turn in after.items() if before.get(visitor) != turn]
        self.turns = after
        if is_by_arrival(settings) and step.is_open:
            # Of a newcomer, whatever class it has, nobody's shown place takes notice.
            new = {v for event, v, why in step.after.events if (event, why) == ("joined", "new")}
            for visitor in new & after.keys():
                for other in after.keys() - new:
                    assert after[other] < after[visitor] or after[other][0] != after[visitor][0]

    # What the replies promised ---------------------------------------------------------------

    def replied(self, visitor: str, reply: Standing, step: Step, *, is_poll: bool) -> None:
        if reply.outcome is Outcome.ADMITTED:
            assert reply.started_ms <= reply.now_ms
            # Of a first pass replicas ask the store, for claim_window it has the slot in any case.
            is_first = not is_poll and step.after.active[visitor] % 1 == UNUSED
            ends = step.now + round(step.settings.claim_window * 1000)
            expires = min(ends, reply.expires_ms) if is_first else reply.expires_ms
            self.honoured[visitor] = max(self.honoured.get(visitor, 0), expires)
            self.told.pop(visitor, None)
            self.shown.pop(visitor, None)
        elif reply.outcome is Outcome.WAITING:
            assert reply.ahead < reply.waiting
            is_random = step.settings.queueing_method == "random" or reply.phase is Phase.PREQUEUE
            if is_random or not are_noted(step.after, step.settings):
                self.shown.pop(visitor, None)  # newcomers may come ahead
            else:
                assert reply.ahead <= self.shown.get(visitor, reply.ahead)
                # Some of this batch may have come ahead since the reply was made.
                turn = self.turns.get(visitor)
                later = [new for new in self.placed if turn and new[0] == turn[0] and new < turn]
                self.shown[visitor] = reply.ahead + len(later)
            if is_poll:
                self.excused.discard(visitor)
            if is_poll or visitor not in self.told:
                self.told[visitor] = reply.now_ms + reply.refresh_ms
        else:
            self.told.pop(visitor, None)
            self.shown.pop(visitor, None)

    def new_orders(self, orders: list[int]) -> None:
        """Each newcomer is behind the one before."""
        for order in orders:
            assert order > self.last_order
            self.last_order = order

    def left(self, visitor: str, step: Step) -> None:
        """Its passes are worth nothing from now on; a session is counted a little longer."""
        if self.honoured.pop(visitor, None) is not None and visitor in step.before.admitted:
            ends = min(int(step.before.active[visitor]), step.now + RELEASE_HOLD_MS)
            self.held.setdefault(visitor, ends)

    def store_lost(self) -> None:
        """All bets are off but those in the tokens."""
        alone = self.alone
        self.__init__()
        self.alone = alone


def are_noted(seen: Seen, settings: RoomSettings) -> bool:
    """Of all who wait is known what is shown. Else some came before places were shown by arrival,
    and until they ask again nobody is told less than by order."""
    by_order = {visitor for visitor, order in seen.waiting.items() if not is_drawn(order)}
    return not is_by_arrival(settings) or by_order <= seen.arrivals.keys()


def shown_turns(seen: Seen, settings: RoomSettings) -> dict[str, tuple[int, int, str]]:
    """What everybody's shown position goes by: the line, a number in it, and the id. Places that
    were drawn are shown ahead of all, those of a room without lines as one line."""
    by_arrival = is_by_arrival(settings)
    turns = {}
    for visitor, order in seen.waiting.items():
        line = line_of(settings, order)
        number = order
        if by_arrival and not is_drawn(order):
            if visitor not in seen.arrivals:
                continue
            number = seen.arrivals[visitor]
        turns[visitor] = (-1 if line is None else line, number, visitor)
    return turns
