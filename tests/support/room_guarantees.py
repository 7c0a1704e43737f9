"""The promises of docs/design.md, checked against Redis' keys, independent of the model.

A step is one script. `before` and `after` are the keys before and after the script.
"""

import math
from dataclasses import dataclass, field

from redis.asyncio import Redis

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Phase, QueueOutcome, Standing
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support.room_model import BACKOFF_MS, UNUSED
from tests.support.room_policy import is_by_arrival, is_drawn, is_weighted, line_of

#: The fraction of a score in `due` of a visitor who has not polled
#: (rooms/lua/parts/heartbeat_due.lua).
UNPOLLED = 0.5
_LOST_PLACES = {"silent", "swept", "no_show", "unused"}


@dataclass(frozen=True)
class RoomKeys:
    """The contents of a room's keys at one time."""

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
    #: The id of the last event, and the new events: (kind, visitor, why).
    last_event: str = "-"
    events: tuple[tuple[str, str, str], ...] = ()


async def read_keys(redis: Redis, room: str, *, after: str) -> RoomKeys:
    """Read all keys at once, and the events after `after`."""
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
    return RoomKeys(
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
    #: The settings when the script ran.
    settings: RoomSettings
    before: RoomKeys
    after: RoomKeys
    #: Whether nobody is called, because Redis was emptied or no event is open.
    is_held: bool = False
    is_open: bool = True
    #: When the last outage ended. During the outage no heartbeat could arrive.
    outage_end: float = -math.inf

    @property
    def entered(self) -> list[str]:
        """Return visitors who got a slot that counts for the rate, in order."""
        return [v for kind, v, why in self.after.events if kind == "called" or why == "at_once"]


class Guarantees:
    """All promises made so far in one room. Each method asserts one promise."""

    def __init__(self) -> None:
        #: visitor -> when the visitor's pass ends, ms.
        self.valid_until: dict[str, int] = {}
        #: visitor -> until when the slot of a released session is taken, ms.
        self.counted_until: dict[str, int] = {}
        #: Visitors whom a replica admitted without Redis. Their sessions stay above the cap.
        self.failed_open: set[str] = set()
        #: visitor -> when the visitor was advised to poll, ms.
        self.due_polls: dict[str, int] = {}
        #: Visitors who had not polled when the settings changed from which the score of an unused
        #: place is computed (rooms/lua/parts/heartbeat_due.lua).
        self.excused: set[str] = set()
        self.patience: tuple[float, float] | None = None
        #: visitor -> how many visitors ahead were shown, plus those who came back ahead since.
        self.shown_ahead: dict[str, int] = {}
        #: The times at which slots were given since the rate last changed.
        self.slot_times: list[int] = []
        self.rate: int | None = None
        self.last_order = 0
        #: The settings and busy sub-queues, and the calls from them since.
        self.busy_queues: object = None
        self.calls: list[int | None] = []
        self.position_rules: object = None
        #: The sort keys of shown positions, and those that this step changed.
        self.sort_keys: dict[str, tuple[int, int, str]] = {}
        self.changed_keys: list[tuple[int, int, str]] = []

    def check(self, step: Step) -> None:
        self.check_cap(step)
        self.check_order(step)
        self.check_share(step)
        self.check_idle_slots(step)
        self.check_one_place(step)
        self.check_lost_places(step)
        self.check_passes(step)
        self.check_rate(step)
        self.update_shown_ahead(step)

    def check_cap(self, step: Step) -> None:
        """Check that sessions exceed the cap only if replicas admitted visitors without Redis.
        After the cap was lowered, nobody is admitted until there is room."""
        active = step.after.active
        if len(active) > step.settings.total_active_users:
            restored = {v for _, v, why in step.after.events if why == "restored"}
            ordinary = active.keys() - self.failed_open
            # In one batch, an ordinary session may come back within the cap before the session of a
            # visitor whom a replica admitted without Redis comes back above the cap.
            is_mixed = (
                restored & self.failed_open and len(ordinary) <= step.settings.total_active_users
            )
            assert ordinary - (restored if is_mixed else set()) <= step.before.active.keys()
            assert is_mixed or restored <= self.failed_open
            assert not step.entered

    def check_order(self, step: Step) -> None:
        """Check that visitors are called in the order of their places."""
        if step.settings.queueing_method == "random":
            return
        moved = {v for kind, v, _ in step.after.events if kind in ("operator", "graded")}
        called = [v for kind, v, _ in step.after.events if kind == "called" and v not in moved]
        for line in range(len(step.settings.lines)) if is_weighted(step.settings) else (None,):
            # One script may draw a visitor's place or move the visitor, and then call them.
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

    def check_share(self, step: Step) -> None:
        """Check that each sub-queue has its share of any stretch of calls, within two, as long as
        the same sub-queues are not empty."""
        lines = [
            frozenset(line_of(step.settings, order) for order in keys.waiting.values())
            for keys in (step.before, step.after)
        ]
        kind = (step.settings.lines, lines[0])
        if kind != self.busy_queues or lines[0] != lines[1] or None in lines[0]:
            self.busy_queues, self.calls = (step.settings.lines, lines[1]), []
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

    def check_idle_slots(self, step: Step) -> None:
        """Check that no slot is free while somebody waits."""
        settings, after = step.settings, step.after
        has_token = settings.new_users_per_minute is None or (after.tokens or 0) >= 1
        is_free = len(after.active) < settings.total_active_users and has_token
        is_held = settings.queue_all or step.is_held
        assert not (is_free and after.waiting) or is_held
        assert not (is_held and step.entered)

    def check_one_place(self, step: Step) -> None:
        """Check that no visitor has both a place and a session, and that the keys agree."""
        after = step.after
        assert not after.waiting.keys() & after.active.keys()
        reserved = after.reserved.keys() - after.waiting.keys()
        assert after.waiting.keys() == after.due.keys() - reserved
        assert not after.due.keys() & after.active.keys()
        assert after.admitted.keys() <= after.active.keys()
        assert not after.revoked.keys() & after.waiting.keys()

    def check_lost_places(self, step: Step) -> None:
        """Check that only visitors who polled late lose a place or a call, and nobody because of an
        outage. There is no promise for a visitor who was refused with another ticket."""
        patience = step.settings.claim_window, step.settings.heartbeat_timeout
        if patience != self.patience:
            self.patience = patience
            self.excused |= {v for v, score in step.before.due.items() if score % 1 == UNPOLLED}
        for kind, visitor, why in step.after.events:
            told = None if visitor in self.excused else self.due_polls.get(visitor)
            if kind == "expired" and why in _LOST_PLACES and told is not None:
                assert step.now > told
                if told <= step.outage_end:  # the page had to try again
                    assert step.now >= step.outage_end + BACKOFF_MS
                self.excused.add(visitor)  # nothing is promised before the next poll
            if kind != "joined":
                self.shown_ahead.pop(visitor, None)

    def check_passes(self, step: Step) -> None:
        """Check that a visitor has a slot until the pass ends, and a little longer if released."""
        self.valid_until = {v: end for v, end in self.valid_until.items() if step.now < end}
        for visitor, end in self.valid_until.items():
            score = step.after.active.get(visitor, 0)
            assert score >= end + (0 if score % 1 == UNUSED else SESSION_GRACE_MS)
        self.counted_until = {v: end for v, end in self.counted_until.items() if step.now < end}
        assert self.counted_until.keys() <= step.after.active.keys()

    def check_rate(self, step: Step) -> None:
        """Check that in any time t at most burst + rate x t slots are given."""
        per_minute = step.settings.new_users_per_minute
        if per_minute != self.rate:
            self.rate, self.slot_times = per_minute, []
        self.slot_times += [step.now] * len(step.entered)
        if per_minute is None:
            return
        burst = max(1, per_minute / 30)
        for i, since in enumerate(self.slot_times):
            allowed = burst + per_minute * (step.now - since) / 60_000
            assert len(self.slot_times) - i <= allowed + 1e-6

    def update_shown_ahead(self, step: Step) -> None:
        """Let shown positions grow by the visitors who came back or were moved ahead. A visitor
        who lost the place has no promised position."""
        waiting, settings = step.after.waiting, step.settings
        kind = settings.classes, settings.lines, settings.display, settings.queueing_method
        if kind != self.position_rules:
            self.position_rules, self.shown_ahead = kind, {}
        self.shown_ahead = {v: ahead for v, ahead in self.shown_ahead.items() if v in waiting}
        before, after = (make_sort_keys(keys, settings) for keys in (step.before, step.after))
        for visitor, turn in after.items():
            if before.get(visitor) != turn:
                for other in self.shown_ahead.keys() - {visitor}:
                    is_rival = other in after and after[other][0] == turn[0]
                    self.shown_ahead[other] += is_rival and turn < after[other]
        self.changed_keys = [turn for visitor, turn in after.items() if before.get(visitor) != turn]
        self.sort_keys = after
        if is_by_arrival(settings) and step.is_open:
            # A newcomer of any class does not change the shown position of others.
            new = {v for event, v, why in step.after.events if (event, why) == ("joined", "new")}
            for visitor in new & after.keys():
                for other in after.keys() - new:
                    assert after[other] < after[visitor] or after[other][0] != after[visitor][0]

    # What the replies promised ---------------------------------------------------------------

    def check_reply(self, visitor: str, reply: Standing, step: Step, *, is_poll: bool) -> None:
        if reply.outcome is QueueOutcome.ADMITTED:
            assert reply.started_ms <= reply.now_ms
            # Replicas ask Redis about a first pass, which has its slot for claim_window at least.
            is_first = not is_poll and step.after.active[visitor] % 1 == UNUSED
            ends = step.now + round(step.settings.claim_window * 1000)
            expires = min(ends, reply.expires_ms) if is_first else reply.expires_ms
            self.valid_until[visitor] = max(self.valid_until.get(visitor, 0), expires)
            self.due_polls.pop(visitor, None)
            self.shown_ahead.pop(visitor, None)
        elif reply.outcome is QueueOutcome.WAITING:
            assert reply.ahead < reply.waiting
            is_random = step.settings.queueing_method == "random" or reply.phase is Phase.PREQUEUE
            if is_random or not are_arrivals_stored(step.after, step.settings):
                self.shown_ahead.pop(visitor, None)  # newcomers may come ahead
            else:
                assert reply.ahead <= self.shown_ahead.get(visitor, reply.ahead)
                # Some of this batch may have come ahead since the reply was made.
                turn = self.sort_keys.get(visitor)
                later = [
                    new for new in self.changed_keys if turn and new[0] == turn[0] and new < turn
                ]
                self.shown_ahead[visitor] = reply.ahead + len(later)
            if is_poll:
                self.excused.discard(visitor)
            if is_poll or visitor not in self.due_polls:
                self.due_polls[visitor] = reply.now_ms + reply.refresh_ms
        else:
            self.due_polls.pop(visitor, None)
            self.shown_ahead.pop(visitor, None)

    def check_new_orders(self, orders: list[int]) -> None:
        """Check that each newcomer is behind the newcomer before."""
        for order in orders:
            assert order > self.last_order
            self.last_order = order

    def record_left(self, visitor: str, step: Step) -> None:
        """Note that a visitor left: the pass is void, and the slot is taken a little longer."""
        if self.valid_until.pop(visitor, None) is not None and visitor in step.before.admitted:
            ends = min(int(step.before.active[visitor]), step.now + RELEASE_HOLD_MS)
            self.counted_until.setdefault(visitor, ends)

    def forget_all(self) -> None:
        """Drop all promises except those in tokens."""
        alone = self.failed_open
        self.__init__()
        self.failed_open = alone


def are_arrivals_stored(keys: RoomKeys, settings: RoomSettings) -> bool:
    """Return True if the arrivals of all waiting visitors are stored. Otherwise some joined before
    positions were shown by arrival, and positions go by order until these visitors poll."""
    by_order = {visitor for visitor, order in keys.waiting.items() if not is_drawn(order)}
    return not is_by_arrival(settings) or by_order <= keys.arrivals.keys()


def make_sort_keys(keys: RoomKeys, settings: RoomSettings) -> dict[str, tuple[int, int, str]]:
    """Return the sort keys of shown positions: the sub-queue's number (-1 for drawn places, and in
    a room without sub-queues), the arrival or order, and the id."""
    by_arrival = is_by_arrival(settings)
    turns = {}
    for visitor, order in keys.waiting.items():
        line = line_of(settings, order)
        number = order
        if by_arrival and not is_drawn(order):
            if visitor not in keys.arrivals:
                continue
            number = keys.arrivals[visitor]
        turns[visitor] = (-1 if line is None else line, number, visitor)
    return turns
