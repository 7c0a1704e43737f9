"""Leases driven at random, held against the model and against what is promised.

After every step the store's keys must be as the model has them, each reply must say what the
model says, and the promises must hold for what is in the store.
"""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sidecar.kit.clock import StoreClock
from sidecar.leases.redis_keys import lease_key, resource_key
from sidecar.leases.settings import LeaseSettings
from sidecar.leases.store import LeaseStore
from tests.leases.lease_model import (
    FULL,
    NO_RESOURCE,
    WAITING,
    Model,
    ModelReply,
    Replica,
    check,
    look,
)
from tests.support.machines import SELDOM, Bench, StoreMachine, pick_latest, run_machine

SETTINGS = {
    "capacity": st.sampled_from([1, 1, 1, 2, 3]),
    # How often a lease may be renewed, nearly; 0: without end.
    "renewals": st.sampled_from([0, 1.5]),
    "max_waiting": st.none() | st.integers(0, 6),
    "claim_window": st.sampled_from([1, 4.5, 10]),
    "heartbeat_timeout": st.sampled_from([12, 60]),
    "heartbeat_interval": st.none() | st.none() | st.sampled_from([0.5, 3, 20]),
}
RESOURCES = ["A", "B", "C:1"]
HOLDERS = [f"h{number}" for number in range(9)]
RESOURCE, HOLDER = st.sampled_from(["A", "A", *RESOURCES]), st.sampled_from(HOLDERS)
STEPS_MS = st.one_of(
    st.integers(1, 999), st.integers(1000, 12_000), st.sampled_from([25_000, 61_000, 600_000])
)
#: Of what was ever told, counted back from the latest.
INDICES = st.lists(st.integers(0, 99), min_size=1, max_size=4)
#: Which of those who know something from before the store was emptied come back.
SOME = st.lists(st.booleans(), min_size=12, max_size=12)
#: A number as it was told, or one beside it.
OFF = st.sampled_from([0, 0, 0, -1, 1])
ONE = st.integers(0, 1)


class LeaseMachine(StoreMachine):
    """A template from its first resource on; a batch of somebody's calls is a step."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.lost_at = self.now
        #: (resource, holder, fencing number) and (resource, holder, order), all ever told.
        self.leases: list[tuple[str, str, int]] = []
        self.places: list[tuple[str, str, int]] = []
        #: (resource, holder) who waits -> when they were told to ask again.
        self.due: dict[tuple[str, str], int] = {}
        self.silent: set[tuple[str, str]] = set()
        self.seen = {}
        #: By how much the clock went back. A recovery ends so much earlier.
        self.back_ms = 0
        #: Something was asked and not yet found right: then a failure is that, not what follows.
        self.is_broken = False

    @initialize(
        seed=st.integers(0, 2**32),
        term=st.sampled_from([1, 5, 20, 20, 60, 600]),
        given=st.fixed_dictionaries({}, optional=SETTINGS),
    )
    def open(self, seed, term, given):
        random.seed(seed)  # spreads the heartbeats
        renewals = given.pop("renewals", None)
        given |= {"term": term, "renewable": renewals is not None}
        given["max_term"] = term * (1 + renewals) if renewals else None
        self.settings = LeaseSettings(**given)
        self.model = Model(self.settings)
        self.replicas = [Replica(), Replica()]
        self.stores = [self.new_store() for _ in self.replicas]
        self.channel = self.bench.redis.pubsub()
        self.run(self.channel.subscribe(lease_key(self.name, "calls")))

    def read_published(self):
        """Return the calls that were published since the last time."""

        async def read():
            await self.bench.redis.publish(lease_key(self.name, "calls"), "end")
            published = []
            while published[-1:] != ["end"]:
                message = await self.channel.get_message(ignore_subscribe_messages=True, timeout=5)
                published += [message["data"].decode()] if message else []
            return published[:-1]

        return self.run(read())

    def new_store(self):
        return LeaseStore(
            self.bench.redis,
            self.name,
            settings=self.settings,
            clock=StoreClock(),
            now_ms=lambda: self.now,
            timeout_s=5,
        )

    # Calls ---------------------------------------------------------------------------------

    @rule(who=st.lists(st.tuples(RESOURCE, HOLDER, st.booleans()), min_size=1, max_size=6), one=ONE)
    def ask(self, who, one):
        """Newcomers, holders, those who wait, at any time; two tabs of one."""
        self.asked([(*item, None) for item in who], one)

    @rule(resource=RESOURCE, holders=st.lists(HOLDER, min_size=3, max_size=9, unique=True))
    def queue(self, resource, holders):
        self.asked([(resource, holder, True, None) for holder in holders], 0)

    @precondition(lambda self: self.places)
    @rule(chosen=INDICES, one=ONE, may_join=st.booleans(), off=OFF)
    def ask_with_order(self, chosen, one, may_join, off):
        places = pick_latest(self.places, chosen)
        self.asked([(r, holder, may_join, order + off) for r, holder, order in places], one)

    @precondition(lambda self: self.due)
    @rule(seconds=st.integers(1, 40), may_join=st.booleans(), late_ms=st.sampled_from([0, 0, 500]))
    def wait_in_line(self, seconds, may_join, late_ms):
        """Time goes by, and who is not silent asks when told to."""
        end = self.now + seconds * 1000
        for _ in range(6):
            told = {w: at for w, at in self.due.items() if w not in self.silent and at <= end}
            if not told:
                break
            self.now = max(self.now, min(told.values()) + late_ms)
            ready = [who for who, at in told.items() if at <= self.now]
            self.asked([(*who, may_join, None) for who in ready], 0)
        self.now = max(self.now, end)

    @precondition(lambda self: self.due)
    @rule(which=st.integers(0, 99))
    def fall_silent(self, which):
        self.silent.add(sorted(self.due)[which % len(self.due)])

    @precondition(lambda self: self.leases)
    @rule(chosen=INDICES, one=ONE, off=OFF, holder=st.none() | st.none() | HOLDER)
    def renew(self, chosen, one, off, holder):
        """Also by somebody else."""
        self.renewed(
            [(r, holder or own, fence + off) for r, own, fence in pick_latest(self.leases, chosen)],
            one,
        )

    @precondition(lambda self: any(spot.fences for spot in self.seen.values()))
    @rule(one=ONE, clock_ms=st.sampled_from([0, 0, 0, 400]))
    def renew_what_is_held(self, one, clock_ms):
        """The clock may have gone back by a little."""
        self.turn_the_clock_back(True, clock_ms)
        resources = self.seen.items()
        self.renewed(
            [(r, who, fence) for r, s in resources for who, fence in s.fences.items()], one
        )

    @precondition(lambda self: self.leases)
    @rule(chosen=INDICES, one=ONE, off=OFF)
    def release_lease(self, chosen, one, off):
        items = [(r, owner, fence + off) for r, owner, fence in pick_latest(self.leases, chosen)]
        before = self.seen
        self.check_stale(before, items, self.released(items, one))

    @rule(who=st.lists(st.tuples(RESOURCE, HOLDER), min_size=1, max_size=2))
    def release_whatever(self, who):
        self.released([(*item, None) for item in who], 0)

    @rule()
    def sweep(self):
        looked, more = self.run(self.stores[0].sweep())
        due = self.model.sweep(self.now, self.replicas[0], looked)
        assert looked >= len(due)
        assert not more
        self.settle([(name,) for name in due])

    @rule(limit=st.integers(1, 4))
    def list(self, limit):
        """Page by page, it is what is so; it changes nothing."""
        names, after = [], ""
        while page := self.run(self.stores[0].list(after=after, limit=limit)):
            after = page[-1].name
            for one in page:
                names.append(one.name)
                spot = self.model.resources[one.name]
                assert one.waiting == len(spot.line)
                assert {(h.holder, h.fence, h.started_ms, h.expires_ms) for h in one.holders} == {
                    (who, held.fence or 0, held.started, held.ends)
                    for who, held in spot.holders.items()
                    if held.ends > self.now
                }
        assert names == sorted(
            name
            for name, spot in self.model.resources.items()
            if spot.line or any(held.ends > self.now for held in spot.holders.values())
        )
        assert self.run(self.stores[0].count()) == len(self.model.resources)

    # The clock and the store -----------------------------------------------------------------

    @rule(ms=STEPS_MS)
    def let_time_pass(self, ms):
        self.now += ms

    @rule(which=st.integers(0, 99), off_ms=st.integers(-1, 1), sweeps=st.booleans())
    def go_to_the_moment(self, which, off_ms, sweeps):
        """To when something happens by itself, or a millisecond before or after."""
        moments = [self.model.find_next_time(name) for name in self.model.resources]
        moments += [at + self.model.claim for at in self.due.values()]
        moments += [self.model.recovers or 0, self.model.back + self.model.timeout]
        if self.advance_to_one([at + off_ms for at in moments], which) and sweeps:
            self.sweep()

    @rule(really=SELDOM, ms=st.integers(1, 3000))
    def turn_the_clock_back(self, really, ms):
        if really:
            self.back_ms += ms
            self.now = max(self.lost_at, self.now - ms)

    @rule(really=SELDOM, asks=SOME, renews=SOME, returns=SOME, forgets=st.booleans())
    def lose_the_store(self, really, asks, renews, returns, forgets):
        """Redis is emptied; what is left is what replicas and holders know. Some of those who had
        a lease ask for a place first, some come back with its number, some with their order."""
        if not really:
            return
        names = [lease_key(self.name, part) for part in ("state", "resources", "ends")]
        for name in RESOURCES:
            parts = ("holders", "facts", "line", "due")
            names += [resource_key(self.name, name, part) for part in parts]
        self.delete(names)
        self.lost_at = self.now = self.now + 3001
        self.model.lose()
        self.due, self.seen = {}, {}
        self.silent.clear()
        if forgets:
            self.replicas[1] = Replica()
            self.stores[1] = self.new_store()
        leases, places = self.leases[:-13:-1], self.places[:-13:-1]
        self.asked(
            [(*lease[:2], True, None) for lease, does in zip(leases, asks, strict=False) if does], 0
        )
        self.renewed([lease for lease, does in zip(leases, renews, strict=False) if does], 0)
        back = [place for place, does in zip(places, returns, strict=False) if does]
        self.asked([(r, who, False, order) for r, who, order in back], 0)

    def teardown(self):
        """Everybody goes away silently; sweeps alone leave nothing but the state."""
        if self.is_broken:
            return
        for _ in range(100):
            if not self.model.resources:
                break
            self.now = max(self.now, *map(self.model.find_next_time, self.model.resources))
            self.sweep()
        keys = self.run(self.bench.redis.keys(lease_key(self.name, "*")))
        state = lease_key(self.name, "state")
        assert {key.decode() for key in keys} <= {state}
        self.delete([state])
        self.run(self.channel.aclose())

    # What the rules share --------------------------------------------------------------------

    def asked(self, items, one):
        if not items:
            return
        store = self.stores[one]
        replies = self.answered(
            store.ask(r, who, may_join=may, order=order) for r, who, may, order in items
        )
        self.same(replies, self.model.ask(self.now, self.replicas[one], items))
        earlier = max((fence for *_, fence in self.leases), default=0)
        for (resource, holder, *_), reply in zip(items, replies, strict=True):
            who = resource, holder
            if reply.outcome is WAITING:
                self.model.record_heartbeat(*who, reply.refresh_ms)
                self.due[who] = self.now + reply.refresh_ms
                self.silent.discard(who)
                self.places.append((*who, reply.order))
            elif reply.started_ms >= self.lost_at and (*who, reply.fence) not in self.leases:
                assert reply.fence not in {fence for *_, fence in self.leases}
                assert reply.fence >= max(earlier, self.now * 1000), "it grows"
                self.leases.append((*who, reply.fence))
            self.check_told(resource, reply)
        self.settle(items)

    def check_told(self, resource, reply):
        """Nobody is asked back too soon, nor so late that they miss their slot."""
        is_waiting = reply.outcome is WAITING
        assert (reply.wait_ms is not None) == (is_waiting and not self.model.is_recovering)
        assert reply.is_recovering == self.model.is_recovering
        if is_waiting or reply.outcome is FULL:
            ahead = reply.ahead if is_waiting else reply.waiting
            least, most = self.model.bound_refresh(resource, ahead)
            assert least <= reply.refresh_ms <= most, (least, reply.refresh_ms, most)
        else:
            assert reply.refresh_ms == 0

    def check_stale(self, before, items, replies):
        """Whoever had no such lease before is refused."""
        for (resource, holder, fence), reply in zip(items, replies, strict=True):
            spot = before.get(resource)
            has = spot and spot.fences.get(holder) == fence and spot.holders[holder] > self.now
            assert has or reply.outcome < 0

    def renewed(self, items, one):
        if not items:
            return
        replies = self.answered(self.stores[one].renew(*item) for item in items)
        self.same(replies, self.model.renew(self.now, self.replicas[one], items))
        if self.model.is_recovering:
            # Who shows a lease has it back, and may lose it to a later one of the same batch.
            self.settle(items, released={item[:2] for item in items})
            return
        self.check_stale(self.seen, items, replies)
        self.settle(items)

    def released(self, items, one):
        replies = self.answered(self.stores[one].release(*item) for item in items)
        self.same(replies, self.model.release(self.now, self.replicas[one], items))
        self.settle(items, released={item[:2] for item in items})
        return replies

    def answered(self, calls):
        """One batch."""
        self.is_broken = True
        replies = self.gather(calls)
        assert {reply.now_ms for reply in replies} == {self.now}
        return replies

    def same(self, replies, expected):
        said = [
            ModelReply(r.outcome, r.fence, r.started_ms, r.expires_ms, r.order, r.ahead, r.waiting)
            for r in replies
        ]
        assert said == expected

    def settle(self, items, *, released=frozenset()):
        """After a script: the store is as the model has it, and the promises hold."""
        before, self.seen = self.seen, self.run(look(self.bench.redis, self.name, RESOURCES))
        assert self.seen.keys() == self.model.resources.keys()
        for name, spot in self.model.resources.items():
            seen, named = self.seen[name], any(item[0] == name for item in items)
            assert seen.holders == {who: held.ends for who, held in spot.holders.items()}
            assert seen.started == {
                who: held.started for who, held in spot.holders.items() if held.fence
            }
            assert seen.fences == {
                who: held.fence for who, held in spot.holders.items() if held.fence
            }
            assert seen.line == {who: place.order for who, place in spot.line.items()}
            assert seen.due == {who: place.due for who, place in spot.line.items()}
            latest = self.model.find_next_time(name) + self.back_ms
            assert seen.ends <= latest, "the sweep comes in time"
            assert seen.ends > self.now or not named, "and then there is nothing left to do"
        for name in RESOURCES:
            gone = {holder for resource, holder in released if resource == name}
            named = any(item[0] == name for item in items)
            was, is_now = before.get(name, NO_RESOURCE), self.seen.get(name, NO_RESOURCE)
            check(self.model, was, is_now, named=named, released=gone)
        assert sorted(self.read_published()) == sorted(self.model.published), "all are woken"
        self.model.published.clear()
        self.due = {who: at for who, at in self.due.items() if self.is_waiting(*who)}
        self.is_broken = False

    def is_waiting(self, resource, holder):
        """Or called: whoever does not know it asks when told to."""
        spot = self.seen.get(resource)
        return spot is not None and (
            holder in spot.line or (holder in spot.holders and holder not in spot.fences)
        )


@pytest.mark.slow
@pytest.mark.timeout(900)  # where it fails, hypothesis takes minutes to find a short story
def test_leases_are_what_the_model_says_and_every_promise_is_kept(store_url):
    """Whatever holders, replicas, the clock and the store do, step by step."""
    run_machine(LeaseMachine, store_url, examples=100, steps=40)
