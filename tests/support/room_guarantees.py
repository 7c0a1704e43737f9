"""Checks the guarantees of docs/design.md directly against a room's keys in Redis, without using
the model of a room (room_model.py).

A step is one run of a script. `before` and `after` are the keys before and after it.
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

#: The fractional part of a visitor's score in `due` until the first poll
#: (rooms/lua/parts/heartbeat_due.lua).
UNPOLLED = 0.5
_LOST_PLACES = {"silent", "swept", "no_show", "unused"}


@dataclass(frozen=True)
class RoomKeys:
    """The contents of a room's Redis keys at one time."""

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
    """Read all keys of a room at once, and those events whose id is higher than `after`."""
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
    """One run of a script at the time `now`."""

    now: int
    #: The settings when the script ran.
    settings: RoomSettings
    before: RoomKeys
    after: RoomKeys
    #: Whether nobody may be called, because Redis was emptied or no event is open.
    is_held: bool = False
    is_open: bool = True
    #: When the last outage ended. During the outage no heartbeat could arrive.
    outage_end: float = -math.inf
    #: Visitors who asked to join once more, and are handled after the calls.
    again: tuple[str, ...] = ()

    @property
    def entered(self) -> list[str]:
        """Return, in order, the visitors who got a slot that counts against the rate limit."""
        return [v for kind, v, why in self.after.events if kind == "called" or why == "at_once"]


class Guarantees:
    """What a room has guaranteed to its visitors so far. Each `check_` method asserts a guarantee
    of one kind."""

    def __init__(self) -> None:
        #: When each visitor's pass expires, ms.
        self.valid_until: dict[str, int] = {}
        #: Until when the slot of each released session stays taken, ms.
        self.counted_until: dict[str, int] = {}
        #: Visitors whom a replica admitted without Redis. Their sessions stay above the cap.
        self.failed_open: set[str] = set()
        #: When each visitor was advised to poll, ms.
        self.due_polls: dict[str, int] = {}
        #: Visitors who may lose their places although they are not late. They had not polled yet
        #: when a setting in `patience` changed.
        self.excused: set[str] = set()
        self.patience: tuple[float, float] | None = None
        #: For each visitor, the number of visitors ahead that was shown last, plus those who have
        #: come back or been moved ahead since then.
        self.shown_ahead: dict[str, int] = {}
        #: The times at which slots were given since the rate limit last changed.
        self.slot_times: list[int] = []
        self.rate: int | None = None
        self.last_order = 0
        #: The sub-queues and which of them are not empty, and all calls since these last changed.
        self.busy_queues: object = None
        self.calls: list[int | None] = []
        self.position_rules: object = None
        #: The sort keys by which positions are shown, and those that this step changed.
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
        """Check that sessions exceed the cap only if replicas admitted visitors without Redis, and
        that nobody is admitted while more sessions than the cap exist."""
        active = step.after.active
        if len(active) > step.settings.total_active_users:
            restored = {v for _, v, why in step.after.events if why == "restored"}
            ordinary = active.keys() - self.failed_open
            # A batch may first restore an ordinary session within the cap, and then, above the cap,
            # the session of a visitor whom a replica admitted without Redis.
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
            # Visitors who got their places in this step are not in `before`.
            orders = [
                order
                for v in called
                if (order := step.before.waiting.get(v)) is not None
                and (line is None or line_of(step.settings, order) == line)
            ]
            assert orders == sorted(orders)
            # A visitor who polls rarely and joins again has been skipped, with a reservation.
            skipped = {v for v in step.again if step.before.due.get(v, 0) % 1 > UNPOLLED}
            behind = [
                order
                for v, order in step.after.waiting.items()
                if step.before.waiting.get(v) == order  # not those who joined after the calls
                and v not in skipped
                and (line is None or line_of(step.settings, order) == line)
            ]
            if step.entered and behind:
                assert all(order <= min(behind) for order in orders)

    def check_share(self, step: Step) -> None:
        """Check that in any sequence of calls each sub-queue gets its share by weight, give or take
        two, as long as the same sub-queues are not empty."""
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
            latest = self.calls[since:]
            for line, weight in weights.items():
                exact = len(latest) * weight / sum(weights.values())
                assert abs(latest.count(line) - exact) < 2

    def check_idle_slots(self, step: Step) -> None:
        """Check that no slot is free while somebody waits."""
        settings, after = step.settings, step.after
        has_token = settings.new_users_per_minute is None or (after.tokens or 0) >= 1
        is_free = len(after.active) < settings.total_active_users and has_token
        is_held = settings.queue_all or step.is_held
        assert not (is_free and after.waiting) or is_held
        assert not (is_held and step.entered)

    def check_one_place(self, step: Step) -> None:
        """Check that no visitor has both a place and a session, and that the keys are consistent
        with each other."""
        after = step.after
        assert not after.waiting.keys() & after.active.keys()
        reserved = after.reserved.keys() - after.waiting.keys()
        assert after.waiting.keys() == after.due.keys() - reserved
        assert not after.due.keys() & after.active.keys()
        assert after.admitted.keys() <= after.active.keys()
        assert not after.revoked.keys() & after.waiting.keys()

    def check_lost_places(self, step: Step) -> None:
        """Check that visitors lose a place or a call only if they poll late, and never because of
        an outage. Nothing is guaranteed to visitors after a reply that refused them."""
        patience = step.settings.claim_window, step.settings.heartbeat_timeout
        if patience != self.patience:
            self.patience = patience
            self.excused |= {v for v, score in step.before.due.items() if score % 1 == UNPOLLED}
        for kind, visitor, why in step.after.events:
            told = None if visitor in self.excused else self.due_polls.get(visitor)
            if kind == "expired" and why in _LOST_PLACES and told is not None:
                assert step.now > told
                if told <= step.outage_end:  # the page had to retry
                    assert step.now >= step.outage_end + BACKOFF_MS
                self.excused.add(visitor)  # nothing is guaranteed before the next poll
            if kind != "joined":
                self.shown_ahead.pop(visitor, None)

    def check_passes(self, step: Step) -> None:
        """Check that visitors have their slots until their passes expire, and a little longer if
        they were released."""
        self.valid_until = {v: end for v, end in self.valid_until.items() if step.now < end}
        for visitor, end in self.valid_until.items():
            score = step.after.active.get(visitor, 0)
            assert score >= end + (0 if score % 1 == UNUSED else SESSION_GRACE_MS)
        self.counted_until = {v: end for v, end in self.counted_until.items() if step.now < end}
        assert self.counted_until.keys() <= step.after.active.keys()

    def check_rate(self, step: Step) -> None:
        """Check that within any time t at most burst + rate x t visitors get a slot."""
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
        """Update `shown_ahead`: add the visitors who came back or were moved ahead of others, and
        delete visitors who no longer wait."""
        waiting, settings = step.after.waiting, step.settings
        kind = settings.classes, settings.lines, settings.display, settings.queueing_method
        if kind != self.position_rules:
            self.position_rules, self.shown_ahead = kind, {}
        self.shown_ahead = {v: ahead for v, ahead in self.shown_ahead.items() if v in waiting}
        before, after = (make_sort_keys(keys, settings) for keys in (step.before, step.after))
        for visitor, sort_key in after.items():
            if before.get(visitor) != sort_key:
                for other in self.shown_ahead.keys() - {visitor}:
                    is_rival = other in after and after[other][0] == sort_key[0]
                    self.shown_ahead[other] += is_rival and sort_key < after[other]
        self.changed_keys = [key for visitor, key in after.items() if before.get(visitor) != key]
        self.sort_keys = after
        if is_by_arrival(settings) and step.is_open:
            # A newcomer of any class does not change the shown position of others.
            new = {v for event, v, why in step.after.events if (event, why) == ("joined", "new")}
            for visitor in new & after.keys():
                for other in after.keys() - new:
                    assert after[other] < after[visitor] or after[other][0] != after[visitor][0]

    # What the replies guarantee --------------------------------------------------------------

    def check_reply(self, visitor: str, reply: Standing, step: Step, *, is_poll: bool) -> None:
        """Check a visitor's reply, and store what it guarantees."""
        if reply.outcome is QueueOutcome.ADMITTED:
            assert reply.started_ms <= reply.now_ms
            # Replicas do not trust a first pass, but ask Redis. Its slot is kept for claim_window.
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
                # Later requests of the same batch may have put visitors ahead.
                own = self.sort_keys.get(visitor)
                later = [key for key in self.changed_keys if own and key[0] == own[0] and key < own]
                self.shown_ahead[visitor] = reply.ahead + len(later)
            if is_poll:
                self.excused.discard(visitor)
            if is_poll or visitor not in self.due_polls:
                self.due_polls[visitor] = reply.now_ms + reply.refresh_ms
        else:
            self.due_polls.pop(visitor, None)
            self.shown_ahead.pop(visitor, None)

    def check_new_orders(self, orders: list[int]) -> None:
        """Check that each new visitor is behind all who joined before."""
        for order in orders:
            assert order > self.last_order
            self.last_order = order

    def record_left(self, visitor: str, step: Step) -> None:
        """Record that a visitor left. The pass is now invalid, and the slot stays taken a little
        longer."""
        if self.valid_until.pop(visitor, None) is not None and visitor in step.before.admitted:
            ends = min(int(step.before.active[visitor]), step.now + RELEASE_HOLD_MS)
            self.counted_until.setdefault(visitor, ends)

    def forget_all(self) -> None:
        """Forget all guarantees, because Redis lost data. `failed_open` stays."""
        failed_open = self.failed_open
        self.__init__()
        self.failed_open = failed_open


def are_arrivals_stored(keys: RoomKeys, settings: RoomSettings) -> bool:
    """Return True if the arrivals of all waiting visitors are stored. Otherwise some of them joined
    before a change to positions by arrival. Until these poll, positions are shown by order."""
    by_order = {visitor for visitor, order in keys.waiting.items() if not is_drawn(order)}
    return not is_by_arrival(settings) or by_order <= keys.arrivals.keys()


def make_sort_keys(keys: RoomKeys, settings: RoomSettings) -> dict[str, tuple[int, int, str]]:
    """Return the sort key by which each visitor's position is shown: the sub-queue's number (-1 for
    a drawn place, or without sub-queues), the arrival or order, and the visitor id."""
    by_arrival = is_by_arrival(settings)
    sort_keys = {}
    for visitor, order in keys.waiting.items():
        line = line_of(settings, order)
        number = order
        if by_arrival and not is_drawn(order):
            if visitor not in keys.arrivals:
                continue
            number = keys.arrivals[visitor]
        sort_keys[visitor] = (-1 if line is None else line, number, visitor)
    return sort_keys
