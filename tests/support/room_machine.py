"""A Hypothesis state machine that runs random sequences of a room's scripts.

After every step, Redis' keys and the replies must equal those of the model (room_model.py), and the
guarantees of room_guarantees.py must hold.
"""

import json
from dataclasses import replace
from itertools import zip_longest

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import LINES_BATCH_LIMIT, ClassClaim, Lot, RoomStore
from sidecar.visitors.model import TICKET_RENEW_MS, Pass, Phase, QueueOutcome, Ticket
from sidecar.visitors.verdict_lifetime import OUTAGE_MS, SESSION_GRACE_MS
from tests.support.machines import SELDOM, Bench, StoreMachine, pick_latest
from tests.support.room_guarantees import Guarantees, RoomKeys, Step, read_keys
from tests.support.room_model import Model, Newcomer, Reply
from tests.support.rooms import without_outages

#: Strategies for the settings at the beginning, and for changes at run time.
SETTINGS = {
    "total_active_users": st.integers(0, 5),
    "new_users_per_minute": st.none() | st.sampled_from([1, 7, 30, 60, 120]),
    "session_duration": st.sampled_from([5, 7.25, 7.25, 30]),
    "session_max_duration": st.none() | st.integers(5, 90),
    "disable_session_renewal": st.booleans(),
    "max_extension": st.none() | st.integers(1, 40),
    "queueing_method": st.sampled_from(["fifo", "fifo", "fifo", "random", "reject"]),
    "queue_all": SELDOM,
    "hold": st.none() | st.integers(-60, 20),
    "max_waiting": st.none() | st.integers(0, 8),
    "heartbeat_interval": st.none() | st.integers(1, 12),
    "heartbeat_timeout": st.integers(24, 60),
    "claim_window": st.integers(5, 20),
    "poll_limit": st.integers(1, 4),
    "rejoin_window": st.sampled_from([0, 40, 600]),
    "max_places_per_address": st.none() | st.integers(1, 3),
    "recovery_window": st.none() | st.sampled_from([0, 3, 20]),
    "display": st.sampled_from(["arrival", "order"]),
    "between_events": st.sampled_from(["open", "open", "closed"]),
    # `build_settings` replaces `hold` and these two. They stand for settings that depend on each
    # other or on the time.
    "policy": st.integers(0, 4),
    "opening": st.none() | st.tuples(st.integers(-5, 10), st.integers(1, 30), st.integers(1, 90)),
}
CLASSES = {
    "member": {"head_start": 4.5},
    "vip": {"head_start": 60, "priority": 1},
    "staff": {"priority": 3},
}
LINES = [("priority", 1), ("channel", 2), ("ordinary", 7)]
POLICIES = [
    {"classes": {}, "lines": ()},
    {"classes": CLASSES, "lines": ()},
    {"classes": CLASSES, "lines": ()},
    *(
        {
            "classes": {
                "member": {"head_start": 4.5},
                "vip": {"head_start": 60, "line": "channel"},
                "staff": {"line": "priority"},
            },
            "lines": tuple({"name": name, "weight": weight and n} for name, n in LINES),
        }
        for weight in (True, None)
    ),
]


def build_settings(values: dict, now: int) -> dict:
    """Convert values of the strategies in SETTINGS to settings of a room."""
    values = dict(values)
    if "policy" in values:
        values |= POLICIES[values.pop("policy")]
    if values.get("hold") is not None:
        values["hold"] = {"until": now + values["hold"] * 1000}
    if "opening" in values:
        times, values["events"] = values.pop("opening"), ()
        if times is not None:
            begins = now + times[0] * 1000
            opens = begins + times[1] * 1000
            event = {"name": "sale", "prequeue_from": begins, "opens_at": opens}
            event["closes_at"] = opens + times[2] * 1000
            event["total_active_users"] = times[2] % 4 or None
            values["events"] = (event,)
    return values


#: Settings of every machine in the beginning, unless SETTINGS replace them.
FILE = {"session_duration": 6, "heartbeat_timeout": 24, "claim_window": 8}
#: How far a step advances the clock: from a millisecond to minutes.
STEPS_MS = st.one_of(
    st.integers(1, 999),
    st.integers(1000, 12_000),
    st.integers(1000, 12_000),
    st.sampled_from([25_000, 61_000, 600_000]),
)
#: Indices of tickets, passes or visitors, which count back from the newest.
INDICES = st.lists(st.integers(0, 99), max_size=6)
SOME = st.lists(st.integers(0, 99), min_size=1, max_size=6)
#: The first script that runs after a fault.
FIRST = st.sampled_from(["snapshot", "sweep", "enter", "poll", "renew"])
#: Keys whose loss is detected (rooms/lua/parts/lost_keys.lua).
COUNTED = (
    "waiting", "due", "active", "admitted", "revoked", "spent", "config", "arrivals", "drawn",
)  # fmt: skip
#: The sorted sets and hashes in a copy of Redis' data.
SETS = (*COUNTED[:6], *COUNTED[7:], "reserved", "addresses", "grants", "moved")
HASHES = ("config", "stats", "polls")
#: A replica's clock may be late by this much, so that the replica accepts an expired pass.
LATE_MS = SESSION_GRACE_MS + 1000

#: The most visitors whose wait estimates a minute's sample logs.
PROMISES = 4


class RoomMachine(StoreMachine):
    """A room and its model, which begin without visitors. A step runs one batch of requests."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.keys = RoomKeys()
        self.guarantees = Guarantees()
        self.visitors: list[str] = []
        #: All tickets and passes, newest last.
        self.tickets: list[Ticket] = []
        self.passes: list[Pass] = []
        #: Visitors who stopped polling.
        self.silent: set[str] = set()
        #: The shortest poll interval of visitors with hidden tabs, ms. All other visitors poll when
        #: they are advised to.
        self.hidden: dict[str, int] = {}
        self.polled_at: dict[str, int] = {}
        #: The time of the last snapshot.
        self.measured_ms = 0
        #: A copy of the keys and of the model.
        self.saved_copy: tuple[dict[str, dict], Model] | None = None

    @initialize(
        seed=st.integers(0, 2**32),
        minute_ms=st.integers(0, 59_999),
        cap=st.integers(0, 4),
        values=st.fixed_dictionaries({}, optional=SETTINGS),
    )
    def open(self, seed, minute_ms, cap, values):
        self.bench.random.seed(seed)
        self.now += minute_ms
        settings = {**FILE, "total_active_users": cap, **build_settings(values, self.now)}
        file = RoomSettings(**settings)
        self.model = Model(file)
        self.model.get_hold_times = self.get_hold_times
        self.store = RoomStore(
            self.bench.redis,
            self.name,
            settings=without_outages(file),
            clock=StoreClock(),
            now_ms=lambda: self.now,
            timeout_s=5,
        )

    # Visitors ------------------------------------------------------------------------------

    @rule(
        newcomers=st.integers(1, 5),
        again=INDICES,
        names=st.lists(st.sampled_from(["", "member", "vip", "staff", "nobody"]), max_size=5),
        grants=st.lists(st.sampled_from(["", "", "a", "b"]), max_size=5),
        knows=st.sampled_from([True, True, True, False]),
    )
    def enter(self, newcomers, again, names=(), grants=(), knows=True):
        """Let new visitors join, and known visitors (`again`) ask to join once more. Some visitors
        have a class, and some of these a grant that can be used once."""
        fresh = [f"v{len(self.visitors) + i:03}" for i in range(newcomers)]
        self.visitors += fresh
        batch = fresh + pick_latest(self.visitors, again)
        claims = [
            ClassClaim(name, grant, self.now + 86_400_000)
            for _, name, grant in zip_longest(batch, names, grants, fillvalue="")
        ][: len(batch)]
        # A replica that already knows the event draws numbers for its pre-queue.
        begun = [event.begins_ms for event in self.model.configured.events]
        lot_of = max(begun, default=0) if knows else 0
        lots = [Lot(self.bench.draw(), lot_of) for _ in batch]
        asking = list(zip(batch, claims, lots, strict=True))
        replies = self.collect_replies(
            self.store.enter(v, claim=claim, lot=lot, address=address_of(v))
            for v, claim, lot in asking
        )
        joining = [
            Newcomer(v, lot.number, claim.class_name, claim.grant, lot_of, address_of(v))
            for v, claim, lot in asking
        ]
        expected = self.model.enter(self.now, joining)
        step = self.check_step(again=batch[newcomers:])
        for visitor, reply, wanted in zip(batch, replies, expected, strict=True):
            assert to_model_reply(reply) == wanted, (to_model_reply(reply), wanted)
            self.guarantees.check_reply(visitor, reply, step, is_poll=False)
            self.store_token(Ticket(visitor, reply.order, self.now, reply.epoch), reply)
        if self.model.settings.queueing_method != "random" and step.is_open:
            given = zip(replies[: len(fresh)], claims, strict=False)
            orders = [reply.order for reply, _ in given if reply.order and not reply.is_classed]
            self.guarantees.check_new_orders(orders)

    @precondition(lambda self: self.tickets)
    @rule(chosen=SOME)
    def poll(self, chosen):
        """Poll with any tickets. The polls may be early, late, repeated, or after a reset."""
        self.beat(pick_latest(self.tickets, chosen))

    @precondition(lambda self: self.tickets)
    @rule(seconds=st.integers(1, 40))
    def wait_and_poll(self, seconds):
        """Let time pass, while visitors poll when they are advised to."""
        self.keep_polling(seconds)

    @precondition(lambda self: self.tickets)
    @rule(newcomers=st.integers(1, 5), seconds=st.integers(1, 8))
    def join_and_wait(self, newcomers, seconds):
        self.enter(newcomers, [])
        self.keep_polling(seconds)

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 99), times=st.integers(2, 6), ms=st.integers(0, 900))
    def poll_impatiently(self, which, times, ms):
        """Poll far more often than the visitor is advised to."""
        for _ in range(times):
            self.now += ms
            self.beat(pick_latest(self.tickets, [which]))

    @precondition(lambda self: self.guarantees.due_polls)
    @rule(which=st.integers(0, 99))
    def fall_silent(self, which):
        self.silent.add(sorted(self.guarantees.due_polls)[which % len(self.guarantees.due_polls)])

    @precondition(lambda self: self.guarantees.due_polls)
    @rule(
        every=st.integers(1, 3),
        seconds=st.sampled_from([15, 30, 60, 60]),
        times=st.integers(1, 4),
        shows=st.booleans(),
    )
    def wait_with_hidden_tabs(self, every, seconds, times, shows):
        """Let some visitors hide their tabs, which then poll seldom. If `shows`, they show them in
        the end."""
        told = sorted(self.guarantees.due_polls)
        self.hidden |= dict.fromkeys(told[::every], seconds * 1000)
        for _ in range(times):
            self.keep_polling(seconds)
            self.snapshot()
        if shows:
            self.hidden.clear()

    @precondition(lambda self: self.valid_passes)
    @rule(chosen=SOME)
    def renew(self, chosen):
        """Renew passes that a replica accepts as valid. Redis may have revoked some."""
        batch = pick_latest(self.valid_passes, chosen)
        replies = self.collect_replies(self.store.renew(pass_) for pass_ in batch)
        expected = self.model.renew(self.now, batch)
        for pass_, reply in zip(batch, replies, strict=True):
            self.model.store_advised_poll(pass_.visitor, reply.refresh_ms)
        self.check_replies(batch, replies, expected, self.check_step())

    @precondition(lambda self: self.visitors)
    @rule(which=st.integers(0, 99), seconds=st.integers(1, 60))
    def extend(self, which, seconds):
        """Let the site extend a visit."""
        visitor = self.visitors[-1 - which % len(self.visitors)]
        found = self.run(self.store.extend(visitor, seconds * 1000))
        assert found == self.model.extend(self.now, visitor, seconds * 1000)
        self.check_step()

    @precondition(lambda self: self.expired_passes)
    @rule(chosen=SOME)
    def renew_expired(self, chosen):
        """Come back with passes that have expired. Only extended sessions go on."""
        batch = pick_latest(self.expired_passes, chosen)
        replies = self.collect_replies(self.store.renew(p, is_expired=True) for p in batch)
        expected = self.model.renew(self.now, batch, are_expired=True)
        self.check_step()
        self.check_replies(batch, replies, expected)

    @precondition(lambda self: self.visitors)
    @rule(chosen=st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=2))
    def leave(self, chosen):
        """Let visitors leave, or let the site release them."""
        batch = [
            (self.visitors[-1 - i % len(self.visitors)], "left" if own else "released")
            for i, own in chosen
        ]
        replies = self.gather(self.store.leave(visitor, why=why) for visitor, why in batch)
        assert replies == self.model.leave(self.now, batch)
        self.check_step(left=[visitor for visitor, _ in batch])

    # The operator, the clock and the store ---------------------------------------------------

    @rule(changes=st.fixed_dictionaries({}, optional=SETTINGS), cap=st.none() | st.integers(0, 5))
    def configure(self, changes, cap):
        """Change settings, or only the cap. None restores a setting's value in the file."""
        changes = build_settings(changes, self.now)
        if cap is not None:
            changes = {"total_active_users": cap}
        changed = self.model.configured.with_overrides(
            {n: v for n, v in changes.items() if v is not None}
        )
        plain = changed.model_dump()
        changes = {name: v if v is None else plain[name] for name, v in changes.items()}
        self.run(self.store.configure(changes, by="desk"))
        self.model.configure(self.now, changes)
        self.check_step()

    @precondition(lambda self: len(self.visitors) > 5)
    @rule(really=SELDOM)
    def reset(self, really):
        """Empty the queue, and invalidate its tickets. Sessions stay."""
        if not really:
            return
        assert self.run(self.store.reset(by="desk")) == self.model.reset(self.now)
        told = self.guarantees.due_polls
        self.guarantees.due_polls = {v: at for v, at in told.items() if v in self.keys.active}
        self.guarantees.shown_ahead.clear()
        self.check_step()

    @precondition(lambda self: self.visitors)
    @rule(which=st.integers(0, 99), position=st.integers(0, 8))
    def move(self, which, position):
        """Move a visitor to another position. The visitor may not be in the queue."""
        visitor = self.visitors[-1 - which % len(self.visitors)]
        moved = self.run(self.store.move(visitor, position, by="desk", why="asked to"))
        assert moved == self.model.move(self.now, visitor, position)
        self.check_step()

    @precondition(lambda self: self.visitors)
    @rule(
        which=st.integers(0, 99),
        name=st.sampled_from(["", "member", "vip", "staff"]),
        grant=st.sampled_from(["", "a", "b", "c"]),
        by=st.sampled_from(["", "", "desk"]),
    )
    def grade(self, which, name, grant, by):
        """Give a visitor a class, by a grant or by an operator."""
        if not by and name not in self.model.settings.classes:
            return
        visitor = self.visitors[-1 - which % len(self.visitors)]
        claim = ClassClaim(name, grant, self.now + 86_400_000)
        graded = self.run(self.store.reclassify(visitor, claim, by=by))
        assert graded == self.model.reclassify(self.now, visitor, name, grant, by)
        self.check_step()

    @rule()
    def sweep(self):
        swept = self.run(self.store.sweep())
        expected = self.model.sweep(self.now)
        assert (swept.waiting, swept.sessions, swept.revocations) == expected
        assert not swept.has_more
        self.check_step()

    @rule()
    def snapshot(self):
        shot = self.run(self.store.snapshot())
        expected = self.model.snapshot(self.now, self.measured_ms)
        self.measured_ms = self.now
        assert (shot.waiting, shot.active, shot.provisional) == expected
        assert shot.revoked == self.model.revoked
        assert shot.recovery_stage == self.model.recovery_stage
        self.model.known_since = min(self.model.known_since or shot.born_ms, shot.born_ms)
        self.check_step()

    @rule(really=SELDOM, ms=STEPS_MS)
    def report_earlier_time(self, really, ms):
        """Report that a cookie shows that the room existed before the data in Redis."""
        if really:
            self.store.record_room_existed_since(self.now - ms)
            self.model.known_since = min(self.model.known_since or self.now, self.now - ms)

    @rule(really=SELDOM, which=st.none() | st.integers(0, 99))
    def admit_without_redis(self, really, which):
        """Admit a visitor without Redis, as a replica does, and report the pass later."""
        if not really:
            return
        self.store.mark_unreported_admissions(self.now)
        self.model.failed_open_since = self.model.failed_open_since or self.now
        if which is None or not self.tickets:
            self.visitors.append(f"v{len(self.visitors):03}")
            ticket = Ticket(self.visitors[-1], self.now * 1000, self.now, 0)
        else:
            ticket = self.tickets[-1 - which % len(self.tickets)]
        ends = self.now + round(self.model.settings.session_duration * 1000)
        given = Pass(ticket.visitor, ticket.order, ticket.joined_ms, 0, self.now, 0, ends)
        self.guarantees.failed_open.add(ticket.visitor)
        self.passes.append(given)
        self.renew([0])

    @rule(refresh_ms=st.sampled_from([None, 0, 2000, 2000, 8000, 33_000]))
    def report_longest_refresh(self, refresh_ms):
        """Report the longest poll interval near the head of the queue, or None if the replica does
        not know it."""
        self.store.set_longest_refresh_near_head(refresh_ms)
        self.model.known_near_ms = refresh_ms

    @rule(ms=STEPS_MS)
    def let_time_pass(self, ms):
        """Let time pass without an outage."""
        self.now += ms

    @precondition(lambda self: self.keys.waiting or self.keys.active)
    @rule(
        really=SELDOM,
        ms=st.integers(5001, 30_000) | st.sampled_from([45_000, 61_000, 150_000]),
        first=FIRST,
        chosen=SOME,
    )
    def outage(self, really, ms, first, chosen):
        """Advance the clock by `ms` without a script, as if Redis or all replicas were down."""
        if not really:
            return
        self.now += ms
        self.set_outage_limit(has_clients=False)
        self.run_first(first, chosen)
        self.set_outage_limit(has_clients=True)

    def run_first(self, script, chosen) -> None:
        if script == "enter":
            self.enter(2, [])
        elif script == "poll" and self.tickets:
            self.poll(chosen)
        elif script == "renew" and self.valid_passes:
            self.renew(chosen)
        elif script == "sweep":
            self.sweep()
        else:
            self.snapshot()

    def set_outage_limit(self, *, has_clients: bool) -> None:
        outage_ms = 10**12 if has_clients else OUTAGE_MS
        self.model.outage_ms = outage_ms
        settings = json.loads(self.store._settings) | {"outage_ms": outage_ms}
        self.store._settings = json.dumps(settings)

    @rule(which=st.integers(0, 99), off_ms=st.integers(-1, 1), sweeps=st.booleans())
    def go_to_an_end(self, which, off_ms, sweeps):
        """Advance the clock to the time at which a place or session ends, give or take 1 ms."""
        moments = [at + off_ms for at in self.model.list_ends()]
        if self.advance_to_one(moments, which) and sweeps:
            self.sweep()

    @precondition(lambda self: len(self.visitors) > 5)
    @rule(really=SELDOM, passes=INDICES, tickets=INDICES)
    def empty_redis(self, really, passes, tickets):
        """Empty Redis, so that only visitors' cookies are left."""
        if not really:
            return
        self.now += 1  # the new data must begin later than the last snapshot of the old data
        self.delete(room_keys(self.name))
        self.model.empty()
        self.guarantees.forget_all()
        self.keys = RoomKeys()
        if passes and self.valid_passes:
            self.renew(passes)
        if tickets and self.tickets:
            self.poll(tickets)

    @precondition(lambda self: self.keys.waiting or self.keys.active)
    @rule(really=SELDOM, which=st.integers(0, 99), first=FIRST, chosen=SOME)
    def evict_key(self, really, which, first, chosen):
        """Delete a key, as Redis does if it evicts keys. The next script must detect the loss."""
        if not really:
            return
        redis = self.bench.redis
        there = [n for n in COUNTED if self.run(redis.exists(room_key(self.name, n)))]
        name = there[which % len(there)]
        self.delete([room_key(self.name, name)])
        self.model.lose_key(name)
        self.guarantees.forget_all()
        self.keys = RoomKeys(last_event=self.keys.last_event)
        self.run_first(first, chosen)

    @precondition(lambda self: self.keys.waiting or self.keys.active)
    @rule(really=SELDOM)
    def save_copy(self, really):
        """Copy Redis' data, as Redis does when it saves them to the disk."""
        if really:
            data = {name: self.run(self.read_key(name)) for name in (*SETS, *HASHES)}
            self.saved_copy = data, self.model.copy_all()
            self.now += 1

    @precondition(lambda self: self.saved_copy)
    @rule(really=SELDOM, passes=INDICES)
    def restore_copy(self, really, passes):
        """Restore the copy, as if Redis restarted with older data. Later changes are only in
        visitors' cookies."""
        if not really:
            return
        data, model = self.saved_copy
        self.run(self.write_keys(data))
        known = {
            name: getattr(self.model, name)
            for name in ("known_since", "failed_open_since", "known_near_ms")
        }
        self.model = model.copy_all()
        for name, value in known.items():
            setattr(self.model, name, value)
        self.guarantees.forget_all()
        since = self.model.measured_ms or 0
        self.guarantees.failed_open |= {p.visitor for p in self.passes if p.started_ms > since}
        self.keys = self.run(read_keys(self.bench.redis, self.name, after=self.keys.last_event))
        self.snapshot()
        if passes and self.valid_passes:
            self.renew(passes)

    async def read_key(self, name: str) -> dict:
        key, redis = room_key(self.name, name), self.bench.redis
        if name in HASHES:
            return await redis.hgetall(key)
        return dict(await redis.zrange(key, 0, -1, withscores=True))

    async def write_keys(self, data: dict[str, dict]) -> None:
        for name, members in data.items():
            key, redis = room_key(self.name, name), self.bench.redis
            await redis.delete(key)
            if members and name in HASHES:
                await redis.hset(key, mapping=members)
            elif members:
                await redis.zadd(key, members)

    def teardown(self):
        self.delete(room_keys(self.name))

    # What the rules share --------------------------------------------------------------------

    def keep_polling(self, seconds: int) -> None:
        """Let visitors poll when they are advised to, at most half a second late."""
        end = self.now + seconds * 1000
        for _ in range(5):
            latest = {ticket.visitor: ticket for ticket in self.tickets}
            told = {
                v: max(at, self.polled_at.get(v, 0) + self.hidden.get(v, 0))
                for v, at in self.guarantees.due_polls.items()
                if v in latest and v not in self.silent
            }
            told = {v: at for v, at in told.items() if at <= end}
            if not told:
                break
            self.now = max(self.now, min(told.values()) + 500)
            due = [latest[v] for v, at in told.items() if at <= self.now]
            for first in range(0, len(due), LINES_BATCH_LIMIT):  # the most that one script accepts
                self.beat(due[first : first + LINES_BATCH_LIMIT])
        self.now = max(self.now, end)

    def get_hold_times(self) -> tuple[float, float]:
        """Return how many visitors have held a slot, and for how long in all, ms, as the room has
        measured it or assumes by default (rooms/lua/parts/measure.lua)."""
        stats = room_key(self.name, "stats")
        ends, held_ms = self.run(self.bench.redis.hmget(stats, "ends", "held_ms"))
        if ends is None:
            settings = self.model.settings
            ends = max(1, settings.total_active_users / 3)
            return ends, ends * round(settings.session_duration * 1000)
        return float(ends), float(held_ms)

    def beat(self, batch: list[Ticket]) -> None:
        self.polled_at |= {ticket.visitor: self.now for ticket in batch}
        addresses = [address_of(ticket.visitor) for ticket in batch]
        replies = self.collect_replies(
            self.store.beat(t, address=a) for t, a in zip(batch, addresses, strict=True)
        )
        expected = self.model.beat(self.now, batch, addresses)
        for ticket, reply in zip(batch, replies, strict=True):
            if reply.outcome is not QueueOutcome.REJECTED:
                self.model.store_advised_poll(ticket.visitor, reply.refresh_ms)
        self.check_replies(batch, replies, expected, self.check_step())

    def check_replies(self, shown, replies, expected, step=None) -> None:
        """Check that the replies to polls and renewals with these tickets or passes equal the
        model's, and store the tickets or passes that they give. With the `step` in which the
        scripts ran, check also what the replies guarantee."""
        for token, reply, wanted in zip(shown, replies, expected, strict=True):
            assert to_model_reply(reply) == wanted, (to_model_reply(reply), wanted)
            if step is not None:
                self.guarantees.check_reply(token.visitor, reply, step, is_poll=True)
            self.store_token(token, reply)

    def collect_replies(self, calls):
        replies = self.gather(calls)
        assert {reply.now_ms for reply in replies} == {self.now}
        for reply in replies:
            self.check_refresh(reply)
        return replies

    def check_refresh(self, reply):
        """Check that the advised time of the next poll is not too soon, and not so late that the
        visitor would lose the place."""
        if reply.outcome is QueueOutcome.WAITING:
            patience_ms = self.model.settings.heartbeat_timeout * 500
            assert reply.limited_ms <= reply.refresh_ms
            assert 1000 <= reply.refresh_ms <= max(reply.limited_ms, min(60_000, patience_ms))

    def check_step(self, left=(), again=()):
        """Check that Redis' keys equal the model's, and that the guarantees hold. Return the step.
        `left` are visitors who left in this step, `again` those who joined once more."""
        before = self.keys
        self.keys = self.run(read_keys(self.bench.redis, self.name, after=before.last_event))
        model, keys = self.model, self.keys
        if keys.tokens_at == self.now:  # the wait estimate has updated the rate limit's tokens
            model.count_tokens()
        assert keys.waiting == {v: place.order for v, place in model.queue.items()}
        places = model.queue | model.absent
        assert keys.due == {v: model.due_score(place) for v, place in places.items()}
        assert keys.reserved == model.reserved
        assert keys.addresses.keys() == {f"{a}~{v}" for v, a in model.addresses.items()}
        assert keys.active == {v: session.ends for v, session in model.sessions.items()}
        assert keys.admitted == {
            v: s.started for v, s in model.sessions.items() if s.started is not None
        }
        assert keys.revoked == model.revoked
        assert keys.spent == model.spent
        assert keys.epoch == model.epoch
        assert keys.arrivals == {
            v: place.arrival for v, place in model.queue.items() if place.arrival is not None
        }
        assert keys.drawn == model.drawn
        assert keys.grants.keys() == model.grants
        assert {v: was for v, was in keys.moved.items() if v in model.queue} == {
            v: was for v, was in model.moved.items() if v in model.queue
        }
        told = [visitor for kind, visitor, _ in keys.events if kind == "promised"]
        assert len(told) == len(set(told) & model.queue.keys()) <= PROMISES
        assert not told or model.recovery_stage == 0
        events = [event for event in keys.events if event[0] != "promised"]
        assert sorted(events) == sorted(model.events)
        is_open = model.phase is Phase.OPEN
        is_held = model.recovery_stage == 2 or not is_open
        step = Step(
            self.now, model.settings, before, keys, is_held, is_open, model.outage_end, tuple(again)
        )
        for visitor in left:
            self.guarantees.record_left(visitor, step)
        self.guarantees.check(step)
        return step

    def store_token(self, shown: Ticket | Pass, reply) -> None:
        """Store the ticket or pass that rooms/service.py would sign with this reply."""
        fields = shown.visitor, reply.order, shown.joined_ms, reply.epoch
        if reply.outcome is QueueOutcome.WAITING:
            young = [t for t in self.tickets if t.signed_ms > self.now - TICKET_RENEW_MS]
            if Ticket(*fields) not in (replace(ticket, signed_ms=0) for ticket in young):
                self.tickets.append(Ticket(*fields, signed_ms=self.now))
        elif reply.outcome is QueueOutcome.ADMITTED:
            times = reply.started_ms, reply.now_ms, reply.expires_ms
            self.passes.append(Pass(*fields, *times))

    @property
    def expired_passes(self) -> list[Pass]:
        return [pass_ for pass_ in self.passes if pass_.expires_ms <= self.now]

    @property
    def valid_passes(self) -> list[Pass]:
        return [pass_ for pass_ in self.passes if self.now - LATE_MS < pass_.expires_ms]


def address_of(visitor: str) -> str:
    """Return the IP address of a visitor, which is one of three."""
    return f"address{sum(visitor.encode()) % 3}"


def to_model_reply(reply):
    """Convert the store's reply to a visitor, a Standing, to the model's."""
    times = reply.started_ms, reply.expires_ms
    place = reply.calls, reply.line, reply.line_waiting, reply.is_classed
    return Reply(reply.outcome, reply.order, *times, reply.ahead, reply.limited_ms, *place)
