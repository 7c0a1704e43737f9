"""A target's queue driven at random, held against the model and against what is promised.

After every step Redis' keys must be as the model has them, each reply must say what the model
says, and the promises must hold for what is in Redis.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sidecar.jobs.model import AttemptEnd, QueueEntry, State
from sidecar.jobs.redis_keys import target_key, target_keys
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import TargetStore
from sidecar.jobs.worker.queue_rebuild import make_restored_call
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from tests.jobs.target_model import Active, Target
from tests.support.jobs import job as a_job
from tests.support.limits import BEGIN, WINDOWS, S, check_granted_rate
from tests.support.machines import SELDOM, Bench, StoreMachine, pick_latest, run_machine

RATED = [f"rate.{algorithm}" for algorithm in WINDOWS]
CLASSES = {
    "vip": {"priority": 1},
    "late": {"head_start": 2.5},
    "first": {"priority": 3, "head_start": 60},
}
SETTINGS = st.fixed_dictionaries(
    {"concurrency": st.sampled_from([1, 2, 2, 3, 5])},
    optional={
        "rate": st.sampled_from([1, 2, 3, 5]),
        "algorithm": st.sampled_from([*WINDOWS, "sliding_window"]),
        "paused": st.sampled_from([False, False, False, True]),
        "max_pending": st.sampled_from([4, 20, 50]),
        "break_after": st.sampled_from([1, 2, 3]),
        "claim_window": st.sampled_from([1, 4.5]),
        "timeout": st.sampled_from([0.5, 20]),
    },
)
COUNTS = st.sampled_from([0, 1, 2, 5, 5])
STEPS = st.one_of(
    st.integers(1, 999),
    st.integers(1000, S),
    st.integers(S, 12 * S),
    st.sampled_from([S // 3, S, 61 * S]),
)
#: Of what was ever told, counted back from the latest.
INDICES = st.lists(st.integers(0, 30), min_size=1, max_size=4)
HOW = st.sampled_from(["answered", "rejected", "failed", "failed", "busy", "gone"])
#: Jobs that come at the same time have orders a few µs apart.
SLACK = 2000
AGAIN = st.none() | st.sampled_from([-5, 0, 700, 4000])


class TargetMachine(StoreMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.now = BEGIN + 5
        self.store = TargetStore(
            bench.redis, self.name, clock=StoreClock(), now_us=lambda: self.now, timeout_s=5
        )
        self.model, self.seen = Target(), Target()
        self.made = 0
        #: job -> its order; and (job, fence), all ever told, the latest last.
        self.orders: dict[str, int] = {}
        self.calls: list[tuple[str, int]] = []
        #: What was called since the rate was changed, or what counts against it was lost.
        self.went: list[tuple[int, int]] = []
        #: When the last call was, and until when no call may be since the algorithm was changed.
        self.last_call = self.uncounted_until = 0
        self.is_online: dict[str, bool] = {}
        #: The latest time of a claim; and of jobs with a time, when each may be called, in ms.
        self.latest = 0
        self.due: dict[str, int] = {}
        #: job -> its class, and when it came or is due, since the clock last went back.
        self.came: dict[str, tuple[str, int]] = {}
        #: Jobs that must be somewhere; those that ended by themselves count as long as they are
        #: told.
        self.open: set[str] = set()

    @initialize(given=SETTINGS, is_new=SELDOM)
    def begin(self, given, is_new):
        self.change(given)
        if not is_new:
            self.made_ready(0)

    @rule(really=SELDOM, given=SETTINGS)
    def change_the_settings(self, really, given):
        if really:
            self.change(given)

    def change(self, given):
        values = {"url": "http://target.example/", "window": 1, "classes": CLASSES, **given}
        before = getattr(self, "settings", None)
        self.settings, self.went = TargetSettings(**values), []
        if before and (before.rate is None or before.algorithm != self.settings.algorithm):
            # No algorithm has counted these calls by its own rule.
            self.uncounted_until = self.last_call + S

    # Submitting ------------------------------------------------------------------------------

    @rule(
        classes=st.lists(st.sampled_from(["", "", "vip", "late", "first"]), min_size=2, max_size=6),
        online=st.lists(st.booleans(), min_size=6, max_size=6),
        adds=st.sampled_from(["all", "all", "all", "none", "backwards"]),
        delays=st.lists(
            st.none() | st.none() | st.sampled_from([1, 40, 2500, 90_000]), min_size=6, max_size=6
        ),
    )
    def submit(self, classes, online, adds, delays):
        """Some are not added, whose place is kept for a while. Some have a time."""
        jobs = [f"j{self.made + n}" for n in range(len(classes))]
        self.made += len(jobs)
        dues = [None if delay is None else self.now // 1000 + delay for delay in delays]
        asked = list(zip(jobs, classes, dues, strict=False))
        told = self.gather(
            self.store.reserve(*item, self.settings, due_ms=due) for *item, due in asked
        )
        model = self.model.at(self.now)
        said = [model.reserve(job, name, self.settings, due) for job, name, due in asked]
        model.reserved = {job: at for job, at in model.reserved.items() if at > self.now}
        assert told == said
        self.settle()
        taken = [(job, order) for job, order in zip(jobs, told, strict=True) if order is not None]
        self.orders.update(taken)
        self.due.update((job, due) for job, _, due in asked if due is not None)
        self.came.update((job, (name, due * 1000 if due else self.now)) for job, name, due in asked)
        orders = [order for job, order in self.orders.items() if job not in self.due]
        assert len(set(orders)) == len(orders), "no two are alike, but of jobs with a time"
        self.is_online.update(zip(jobs, online, strict=False))
        if adds != "none":
            taken = taken[::-1] if adds == "backwards" else taken
            self.add([
                QueueEntry(job, order, self.is_online[job], self.due.get(job))
                for job, order in taken
            ])  # fmt: skip

    @precondition(lambda self: self.orders)
    @rule(which=INDICES, again=AGAIN)
    def add_again(self, which, again):
        """Jobs of before, wherever they are now; some are to wait."""
        jobs = list(self.orders)
        chosen = set(pick_latest(jobs, which))
        before = None if again is None else self.now // 1000 + again
        self.add([
            QueueEntry(j, self.orders[j], self.is_online[j], self.due.get(j, before))
            for j in sorted(chosen)
        ])  # fmt: skip

    def add(self, jobs):
        told = self.run(self.store.add(jobs, self.settings))
        assert [place for _, place in told] == self.model.at(self.now).add(jobs)
        # It tells what a look right after would.
        line, _ = self.run(self.store.inspect([], self.settings))
        assert all(one == line for one, _ in told)
        self.open.update(job.id for job in jobs)
        self.settle()

    @precondition(lambda self: self.orders)
    @rule(which=INDICES)
    def remove(self, which):
        job = self.somebody(which)
        told = self.run(self.store.remove(job))
        assert told == self.model.remove(job)
        if told:
            self.open.discard(job)
        self.settle()

    # Calls -------------------------------------------------------------------------------------

    @rule(n=COUNTS, other=st.none() | st.none() | SETTINGS)
    def claim_as_somebody(self, n, other):
        """Now and then by somebody who has other settings."""
        if other is not None:
            self.change(other)
        self.claimed(n)

    @precondition(lambda self: self.seen.line or self.seen.later or self.seen.active)
    @rule(n=COUNTS)
    def claim(self, n):
        self.claimed(n)

    def claimed(self, n):
        before = self.seen
        self.latest = max(self.latest, self.now)
        told = self.run(self.store.claim(n, self.settings))
        assert told == self.model.at(self.now).claim(n, self.settings)
        claims = told.claims
        if claims:
            assert self.model.ready is not None
            assert not self.settings.paused
            assert len(self.model.active) <= max(len(before.active), self.settings.concurrency), (
                "exact cap"
            )
            assert sum(not claim.is_online for claim in claims) <= n
            assert [claim.fence for claim in claims] == sorted(claim.fence for claim in claims)
            assert all(self.due.get(claim.id, 0) * 1000 <= self.latest for claim in claims), (
                "not before its time"
            )
            assert claims[0].fence > max((fence for _, fence in self.calls), default=0)
            assert {claim.id for claim in claims} <= before.line.keys() | self.returned(before)
            self.calls += [(claim.id, claim.fence) for claim in claims]
            self.went += [(self.now, 1) for _ in claims]
            self.last_call = self.now
            if self.settings.rate is not None:
                assert self.now >= self.uncounted_until
                check_granted_rate(self.settings.algorithm, self.went, self.settings.rate)
        self.settle()
        rest = self.seen.line.items()
        assert all(
            (claim.order, claim.id) < (order, job) for claim in claims for job, order in rest
        ), "in their order"
        for name in {"", *CLASSES}:
            came = [self.came[claim.id][1] for claim in claims if self.is_of(claim.id, name)]
            left = [self.came[job][1] for job in self.seen.line if self.is_of(job, name)]
            assert all(
                one <= other + SLACK for n, one in enumerate(came) for other in came[n:] + left
            ), "in the order in which they came or were due, in each class"

    def is_of(self, job, class_name):
        return self.came.get(job, (None, 0))[0] == class_name

    def returned(self, before):
        """Who came back to the queue by now: their lock ended, or they have waited long enough."""
        lost = {job for job, one in before.active.items() if one.ends <= self.now}
        return lost | {job for job, (when, _) in before.later.items() if when <= self.now}

    @precondition(lambda self: self.calls)
    @rule(which=INDICES)
    def renew(self, which):
        self.renewed(which)

    def renewed(self, which):
        """Whoever has a lock, or had one."""
        claims = self.chosen(which)
        told = self.run(self.store.renew(claims))
        model = self.model.at(self.now, changes=False)
        assert told == [model.renew(*claim) for claim in claims]
        self.settle()

    @precondition(lambda self: self.calls)
    @rule(which=INDICES, how=HOW, again=AGAIN, hold=AGAIN, took=st.integers(0, 30 * S))
    def release(self, which, how, again, hold, took):
        self.released(which, how, again, hold, took)

    def released(self, which, how, again, hold, took):
        """Late ones change nothing."""
        again = None if again is None else self.now // 1000 + again
        hold = None if hold is None else self.now // 1000 + hold
        more = {"outcome": how, "took_us": took, "not_before_ms": again, "hold_ms": hold}
        ends = [AttemptEnd(*claim, State.PENDING, 0, **more) for claim in self.chosen(which)]
        is_late = not any(
            job in self.seen.active and self.seen.active[job].fence == fence
            for job, fence in self.chosen(which)
        )
        told = self.run(self.store.release(ends, self.settings))
        model = self.model.at(self.now)
        assert told == [model.release(end, self.settings) for end in ends]
        self.open -= {e.id for e, is_its in zip(ends, told, strict=True) if is_its and not again}
        before = self.seen
        self.settle()
        assert not is_late or self.seen == before

    @precondition(lambda self: self.seen.line and self.seen.ready)
    @rule(hows=st.lists(HOW, min_size=2, max_size=6), again=AGAIN, us=STEPS)
    def work(self, hows, again, us):
        """Calls, one after the other, each for some time."""
        if self.settings.paused:
            self.change({"concurrency": 2})
        for how in hows:
            self.claimed(1)
            self.now += min(us, 9 * S)
            running = [job for job, one in self.seen.active.items() if one.word == "r"]
            if running:
                self.calls.append((running[0], self.seen.active[running[0]].fence))
                self.released([0], how, again, None, us)
            elif self.model.breaker == "open":
                self.now = self.model.open_until

    @precondition(lambda self: self.seen.active)
    @rule(which=INDICES)
    def abort(self, which):
        job = self.somebody(which)
        assert self.run(self.store.abort(job)) == self.model.abort(job)
        self.settle()

    @precondition(lambda self: self.calls)
    @rule(which=INDICES)
    def use(self, which):
        self.used(which)

    def used(self, which):
        """Permits, some of them twice."""
        for claim in self.chosen(which):
            told = self.asked(self.store.use_permit(*claim, self.settings))
            assert told == self.model.at(self.now, changes=False).use(*claim, self.settings)
        self.settle()

    @precondition(lambda self: self.calls)
    @rule(which=INDICES)
    def done(self, which):
        for claim in self.chosen(which):
            told = self.asked(self.store.end_call(*claim))
            assert told == self.model.at(self.now).done(*claim)
            if told:
                self.open.discard(claim[0])
        self.settle()

    @precondition(lambda self: self.seen.ended)
    @rule(limit=st.integers(1, 3))
    def tell_of_the_ended(self, limit):
        ended = self.run(self.store.read_timed_out_calls(limit))
        assert {(job, why): at for job, why, at in ended}.items() <= {
            key: at // 1000 for key, at in self.model.ended.items()
        }.items()
        assert len(ended) == min(limit, len(self.model.ended))
        self.run(self.store.forget_timed_out_calls(ended))
        for job, why, _ in ended:
            del self.model.ended[job, why]
            self.open.discard(job)
        self.settle()

    @rule()
    def look(self):
        jobs = sorted(self.orders)
        line, places = self.run(self.store.inspect(jobs, self.settings))
        model = self.model.at(self.now, changes=False)
        assert places == [model.place(job) for job in jobs]
        assert (line.waiting, line.later, line.active, line.breaker, line.is_ready) == (
            len(model.line), len(model.later), len(model.active), model.breaker,
            model.ready is not None,
        )  # fmt: skip
        assert (line.runner_ms or 0) == model.runner // 1000
        assert line.reserved == sum(until > self.now for until in model.reserved.values())
        assert line.counters == {**dict.fromkeys(line.counters, 0), **model.counters}
        self.settle()

    # The clock and Redis -----------------------------------------------------------------

    @rule(us=STEPS)
    def let_time_pass(self, us):
        self.now += us

    @rule(which=st.integers(0, 99), off=st.integers(-1, 1))
    def go_to_a_moment(self, which, off):
        """To when something happens by itself, or a microsecond before or after."""
        moments = [one.ends for one in self.model.active.values()]
        moments += [when for when, _ in self.model.later.values()]
        moments += [self.model.open_until, self.model.held_until, self.model.ready or 0]
        self.advance_to_one([at + off for at in moments], which)

    @rule(really=SELDOM, us=st.integers(1, S))
    def turn_the_clock_back(self, really, us):
        if really:
            self.now -= us
            self.went, self.last_call, self.uncounted_until = [], 0, 0
            self.came = {}

    @precondition(lambda self: self.model.ready is None)
    @rule(wait=st.sampled_from([0, 0, S]), is_lost_again=SELDOM)
    def make_ready(self, wait, is_lost_again):
        self.made_ready(wait, is_lost_again)

    def made_ready(self, wait, is_lost_again=False):
        born = self.run(self.store.claim(0, self.settings)).detected_us
        self.model.at(self.now).claim(0, self.settings)
        told = self.run(self.store.mark_ready(wait, born - is_lost_again))
        assert told is not is_lost_again
        assert told == self.model.make_ready(wait, born - is_lost_again)
        assert self.run(self.store.is_ready()) is told
        self.settle()

    @rule(really=SELDOM, order=st.randoms(use_true_random=False), adds_first=st.booleans())
    def lose_the_store(self, really, order, adds_first):
        """Redis is emptied, and the queue is built again from what is known of the jobs, in any
        order; some of those who have a lock renew it before."""
        if not really:
            return
        before = self.seen
        names = [*target_keys(self.name), *(target_key(self.name, name) for name in RATED)]
        self.delete(names)
        self.now += 3 * S
        self.model, self.went = Target(), []
        self.last_call = self.uncounted_until = 0
        self.open = set()
        self.settle()
        if self.calls:
            self.renewed([0, 1, 2])
            self.used([0, 1])
        waiting = [QueueEntry(j, o, self.is_online[j]) for j, o in before.line.items()]
        waiting += [
            QueueEntry(job, one_order, self.is_online[job], when // 1000)
            for job, (when, one_order) in before.later.items()
        ]
        states = {"r": State.PROCESSING, "c": State.CALLED, "u": State.PROCESSING}
        held = [
            a_job(
                id=job, fence=one.fence, queue_order=one.order, state=states[one.word],
                kind="offline" if one.word == "r" else "online",
            )
            for job, one in before.active.items()
        ]  # fmt: skip
        order.shuffle(waiting)
        for jobs in [waiting, held] if adds_first else [held, waiting]:
            if jobs is waiting:
                told = self.run(self.store.add(jobs, self.settings))
                assert [place for _, place in told] == self.model.at(self.now).add(jobs)
            else:
                self.run(
                    self.store.restore([make_restored_call(one, self.settings) for one in jobs])
                )
                self.model.at(self.now).hold(jobs, self.settings)
        self.settle()
        kept = {**before.line, **{job: at for job, (_, at) in before.later.items()}}
        assert [job for job in self.model.heads() if job in before.line] == [
            job for job in before.heads() if job in self.seen.line
        ]
        assert kept.keys() == self.seen.line.keys() | self.seen.later.keys()
        assert self.open == kept.keys() | before.active.keys()
        self.made_ready(0)

    def teardown(self):
        names = [*target_keys(self.name), *(target_key(self.name, name) for name in RATED)]
        left = self.run(self.bench.redis.keys(target_key(self.name, "*")))
        assert {key.decode() for key in left} <= set(names)
        self.delete(names)

    # What the rules share --------------------------------------------------------------------

    def chosen(self, which):
        return list(dict.fromkeys(pick_latest(self.calls, which)))

    def somebody(self, which):
        """Rather one who is called."""
        jobs = [*self.orders, *self.seen.active]
        return pick_latest(jobs, which)[0]

    def asked(self, call):
        """None: the queue was lost."""
        try:
            return self.run(call)
        except StoreError:
            assert self.model.ready is None
            return None

    def settle(self):
        """Redis is as the model has it, and no job is lost or in two places."""
        self.seen = self.run(look(self.bench.redis, self.name))
        seen, model = self.seen, self.model
        for part in ("line", "later", "active", "online", "ended", "aborts"):
            assert getattr(seen, part) == getattr(model, part), part
        for part in (
            "ready", "born", "last_order", "last_fence", "failures", "opened", "open_until",
            "held_until", "runner", "counted_by", "last_call", "counters", "minutes",
        ):  # fmt: skip
            assert getattr(seen, part) == getattr(model, part), part
        assert seen.mean == pytest.approx(model.mean)
        assert {job: at for job, at in seen.reserved.items() if at > self.now} == {
            job: at for job, at in model.reserved.items() if at > self.now
        }
        places = [*seen.line, *seen.later, *seen.active]
        assert len(places) == len(set(places)), "in two places"
        assert seen.online <= set(places)
        told = {job for job, _ in seen.ended}
        assert self.open <= {*places, *told}, "lost"
        self.open = set(places) | (self.open & told)


async def look(redis, name) -> Target:
    """What is in Redis."""
    async with redis.pipeline(transaction=False) as asks:
        for part in ("state", "orders", "facts"):
            asks.hgetall(target_key(name, part))
        for part in ("line", "later", "active", "ended", "reserved"):
            asks.zrange(target_key(name, part), 0, -1, withscores=True)
        for part in ("online", "aborts"):
            asks.smembers(target_key(name, part))
        asks.lrange(target_key(name, "minutes"), 0, -1)
        state, orders, facts, *zsets, online, aborts, minutes = await asks.execute()
    line, later, active, ended, reserved = (
        {member.decode(): int(score) for member, score in rows} for rows in zsets
    )
    orders = {job.decode(): int(order) for job, order in orders.items()}
    facts = {job.decode(): fact.decode().split("~") for job, fact in facts.items()}
    assert orders.keys() == later.keys() | active.keys()
    assert facts.keys() == active.keys()
    numbers = {key.decode(): float(value) for key, value in state.items()}
    mean = numbers.pop("mean_us", None)
    minutes = [tuple(map(int, row.split())) for row in minutes]
    assert numbers.pop("minute", None) == (minutes[0][0] if minutes else None)
    known = {
        key: int(numbers.pop(key))
        for key in (
            "ready", "born", "last_order", "last_fence", "failures", "opened", "open_until",
            "held_until", "runner", "counted_by", "last_call",
        )
        if key in numbers
    }  # fmt: skip
    return Target(
        line,
        {job: (when, orders[job]) for job, when in later.items()},
        {
            job: Active(
                ends, int(facts[job][0]), facts[job][1], int(facts[job][2]), facts[job][3] == "1",
                orders[job],
            )
            for job, ends in active.items()
        },
        {job.decode() for job in online},
        {tuple(key.rsplit("~", 1)): at for key, at in ended.items()},
        reserved,
        {job.decode() for job in aborts},
        mean=mean,
        counters={name: int(value) for name, value in numbers.items() if value},
        minutes=minutes,
        **known,
    )  # fmt: skip


@pytest.mark.timeout(900)  # where it fails, hypothesis takes minutes to find a short story
def test_a_queue_is_as_the_model_has_it(store_url):
    """Whatever is done to a target's line: the promises of jobs/lua hold."""
    run_machine(TargetMachine, store_url, examples=30, steps=40)
