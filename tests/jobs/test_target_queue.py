"""A target's queue in Redis, case by case: what the model of test_target_model.py meets seldom, or
does not say."""

import asyncio
import contextlib

import pytest
from pydantic import ValidationError

from sidecar.jobs.model import AttemptEnd, QueueEntry, State
from sidecar.jobs.redis_keys import JOBS_CHANNEL, TARGET_KEYS, target_key
from sidecar.jobs.settings import STRICT_SPREAD_S, TargetSettings, read_target
from sidecar.jobs.store.target_queue import QueuePlace, TargetStore
from sidecar.jobs.worker.queue_rebuild import make_restored_call
from sidecar.jobs.worker.target_worker import STRICT_TOLERANCE_S
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import InputError, StoreError, StoreUnavailableError
from sidecar.storage.redis.breaker import TRIES
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.pub_sub import subscribe
from sidecar.storage.redis.scripts import Observer
from tests.support.jobs import job
from tests.support.limits import WINDOWS, RedisTimeUs, S, check_granted_rate
from tests.support.processes import free_port
from tests.support.rooms import new_room_name

LOCK = 10 * S


@pytest.fixture
def clock():
    return RedisTimeUs()


@pytest.fixture
async def make(redis, clock):
    """Makes the queue of one target, ready to be called, or new."""
    name = new_room_name()

    async def make_target(*, is_ready=True, **options) -> TargetStore:
        store = TargetStore(
            redis, name, clock=StoreClock(), now_us=clock, **{"timeout_s": 5, **options}
        )
        if is_ready:
            await store.mark_ready(0)
        return store

    return make_target


def settings(**values) -> TargetSettings:
    return TargetSettings(**{"url": "http://target.example/", **values})


async def add(store, *jobs, online=(), first=8, due_ms=None):
    """In this order."""
    waiting = [QueueEntry(job, first + 8 * n, job in online, due_ms) for n, job in enumerate(jobs)]
    return [place.position for _, place in await store.add(waiting, settings())]


async def call(store, n=100, **values):
    """Whom a claim calls."""
    return [claim.id for claim in (await store.claim(n, settings(**values))).claims]


async def release(
    store, claim, how="answered", *, took_us=S, again_ms=None, hold_ms=None, **values
):
    ending = AttemptEnd(
        claim.id, claim.fence, State.PENDING, 0, outcome=how, took_us=took_us,
        not_before_ms=again_ms, hold_ms=hold_ms,
    )  # fmt: skip
    [is_its] = await store.release([ending], settings(**values))
    return is_its


async def line_of(store, **values):
    """The state of the queue."""
    return (await store.inspect([], settings(**values)))[0]


async def where(store, *jobs):
    return [place.where for place in (await store.inspect(jobs, settings()))[1]]


async def lose(redis, store):
    await redis.delete(*(target_key(store._name, name) for name in TARGET_KEYS))


# Orders -------------------------------------------------------------------------------------------


async def test_who_comes_first_is_first(make):
    """Also at one moment, and whoever was told first may be put in the queue last."""
    store = await make()
    orders = await asyncio.gather(*(store.reserve(job, "", settings()) for job in "abc"))
    assert orders == sorted(orders)
    assert all(order % 8 == 0 for order in orders)
    for id_, order in zip("cba", orders[::-1], strict=True):
        await add(store, id_, first=order)
    assert await call(store) == ["a", "b", "c"]


async def test_adding_again_changes_nothing(make):
    """Wherever the job is; its place in the queue is told."""
    store = await make()
    assert await add(store, "a", "b", "c") == [1, 2, 3]
    [claim, _] = (await store.claim(2, settings())).claims
    await release(store, claim, "busy", again_ms=2**42)
    assert await add(store, "a", "b", "c", first=1000) == [None, None, 1]
    assert await where(store, "a", "b", "c") == ["later", "running", "line"]


async def test_a_batch_of_submits_is_one_call_of_a_script(make):
    sizes = []
    observer = Observer(batch=lambda _name, verb, size, _s: sizes.append((verb, size)))
    store = await make(observer=observer)
    await asyncio.gather(*(store.reserve(f"j{n}", "", settings()) for n in range(200)))
    await add(store, *(f"j{n}" for n in range(50)))
    assert sizes == [("reserve", 128), ("reserve", 72), ("add", 50)]


# Calls --------------------------------------------------------------------------------------------


async def test_the_cap_is_exact_for_claims_at_once(redis_socket):
    """By several workers, each with a connection of its own."""
    clients = [connect(f"unix://{redis_socket}", timeout_s=5) for _ in range(4)]
    name, values = new_room_name(), settings(concurrency=7)
    stores = [TargetStore(client, name, clock=StoreClock(), timeout_s=5) for client in clients]
    await stores[0].mark_ready(0)
    await add(stores[0], *(f"j{n:03}" for n in range(100)))
    called = []
    for _ in range(10):
        told = await asyncio.gather(*(store.claim(3, values) for store in stores))
        claims = [claim for one in told for claim in one.claims]
        assert len(claims) == 7
        called += sorted(claim.id for claim in claims)
        await asyncio.gather(*(release(stores[0], claim, concurrency=7) for claim in claims))
    assert called == sorted(called)
    assert len({claim.fence for claim in claims}) == 7
    for client in clients:
        await close(client)


@pytest.mark.parametrize("algorithm", WINDOWS)
async def test_a_rate_is_that_of_the_limits_and_no_less(make, clock, algorithm):
    """What each promises of any window holds; and the next call goes at the very moment that was
    told, but not a microsecond before."""
    values = {"rate": 3, "window": 1, "algorithm": algorithm, "concurrency": 100}
    store, went = await make(), []
    await add(store, *(f"j{n:02}" for n in range(20)))
    for _ in range(20):
        told = await store.claim(100, settings(**values))
        went += [(clock.now, 1) for _ in told.claims]
        if len(went) < 20:
            clock.now += round(told.next_s * S) - 1
            assert await call(store, **values) == []
            clock.now += 1
    assert len(went) == 20
    check_granted_rate(algorithm, went, 3)
    assert went[-1][0] - went[0][0] <= 20 * S / 3


async def test_strict_claims_leave_room_for_late_sends(make, clock):
    """Claims that far apart are sent a window apart, even if the earlier ones are sent as late as
    may be and the later ones as early."""
    store = await make()
    await add(store, *(f"j{n}" for n in range(20)))
    strict = {"rate": 5, "strict": True, "kinds": ["offline"]}
    assert len(await call(store, **strict)) == 5
    clock.now += round((1 + STRICT_SPREAD_S) * S) - 1
    assert len(await call(store, **strict)) == 0
    clock.now += 1
    assert len(await call(store, **strict)) == 5
    assert STRICT_TOLERANCE_S < STRICT_SPREAD_S


@pytest.mark.parametrize(
    ("values", "need"),
    [({}, "a rate"), ({"rate": 1, "window": 0.5}, "a window of 1 s"),
     ({"rate": 1, "kinds": ["online", "offline"]}, "offline"),
     ({"rate": 1, "algorithm": "token_bucket"}, "the algorithm sliding_window")],
)  # fmt: skip
def test_what_strict_needs(values, need):
    """A target that Waitroom cannot pace exactly is not accepted."""
    with pytest.raises(ValidationError, match=f"needs.*{need}"):
        settings(**{"kinds": ["offline"], "strict": True, **values})


@pytest.mark.parametrize(
    "invalid", [{"rate": 0}, {"window": "x"}, {"kinds": []}, {"algorithm": "none"}]
)
def test_what_strict_needs_may_be_invalid(invalid):
    """The error names only the invalid setting."""
    values = {"url": "http://target.example/", "kinds": ["offline"], "rate": 1, **invalid}
    with pytest.raises(InputError) as error:
        read_target({**values, "strict": True})
    [problem] = error.value.problems
    assert problem.startswith(f"{next(iter(invalid))}:")


async def test_a_rate_counts_calls_whatever_becomes_of_them(make, clock):
    """Also those that are made again."""
    values = {"rate": 2, "window": 1}
    store = await make()
    await add(store, "a")
    for _ in range(2):
        [claim] = (await store.claim(1, settings(**values))).claims
        await release(store, claim, "busy", again_ms=clock.now // 1000, **values)
    told = await store.claim(1, settings(**values))
    assert (told.claims, told.next_s) == ([], 1)
    assert (await line_of(store, **values)).calls_in_window == 2


async def test_a_lower_rate_holds_for_what_went_before(redis, make, clock):
    """A bucket that empties more slowly from now on is not forgotten with the faster one."""
    store = await make()
    await add(store, *"ab")
    assert await call(store, rate=1000, algorithm="leaky_bucket") == ["a"]
    assert await redis.pttl(target_key(store._name, "rate.leaky_bucket")) > 3_000_000
    clock.now += 60 * S
    told = await store.claim(1, settings(rate=1, window=3600, algorithm="leaky_bucket"))
    assert (told.claims, told.next_s) == ([], 3540)


async def test_more_than_a_script_does_is_asked_for_again_at_once(make):
    """200 heads, or 20 more than the caller can take, of whom some may be online."""
    store = await make()
    jobs = [f"j{n:03}" for n in range(250)]
    await add(store, *jobs, online=jobs[:100])
    told = await store.claim(3, settings(concurrency=1000))
    assert [claim.id for claim in told.claims] == jobs[:23]
    assert told.next_s == 0
    told = await store.claim(500, settings(concurrency=1000))
    assert [claim.id for claim in told.claims] == jobs[23:223]
    assert told.next_s == 0
    assert await call(store, 500, concurrency=1000) == jobs[223:]


async def test_what_ends_at_once_is_seen_to_in_parts(make, clock):
    """200 locks in one script, 200 waits; the caller is to ask again at once."""
    store, values = await make(), settings(concurrency=1000)
    jobs = [f"j{n:03}" for n in range(450)]
    await add(store, *jobs)
    for _ in range(3):
        await store.claim(200, values)
    clock.now += LOCK
    told, lines = [], []
    for _ in range(3):
        told.append((await store.claim(0, values)).next_s)
        lines.append((await line_of(store)).waiting)
    assert (told, lines) == ([0, 0, None], [200, 400, 450])
    assert await call(store, 200, concurrency=1000) == jobs[:200]


async def test_a_target_is_held_until_the_latest_that_was_said(make, clock):
    store, now_ms = await make(), clock.now // 1000
    await add(store, *"abcd")
    claims = (await store.claim(3, settings())).claims
    for claim, seconds in zip(claims, (2, 9, 4), strict=True):
        await release(store, claim, "busy", hold_ms=now_ms + seconds * 1000)
    assert (await line_of(store)).held_until_ms == now_ms + 9000
    assert (await store.claim(1, settings())).next_s == 9


async def test_how_calls_ended_is_known_by_the_minute(make, clock, redis):
    """Of each minute how many ended in it, whenever the next one ends; of minutes before the first
    one nothing is known, and no more than a day of minutes is kept."""
    store, began, ends = await make(), clock.now // 60_000_000 + 1, []
    await add(store, *(f"j{n}" for n in range(40)))
    for minute, how, again in [
        (0, "answered", None), (0, "failed", 1), (1, "rejected", None), (1, "busy", 1),
        (5, "failed", 1), (5, "answered", None), (5, "answered", None),
    ]:  # fmt: skip
        clock.now = (began + minute) * 60_000_000 + 7
        [claim] = (await store.claim(1, settings(break_after=99))).claims
        assert await release(store, claim, how, again_ms=again and clock.now)
        ends.append((minute, how, again))
    counts = [
        tuple(
            sum(minute == at and is_one(how, again) for minute, how, again in ends)
            for is_one in (
                lambda how, _: how == "answered",
                lambda how, _: how in {"failed", "rejected"},
                lambda _, again: bool(again),
            )
        )
        for at in range(7)
    ]
    assert counts[0] == (1, 1, 1)
    times = [(began + at) * 60_000 for at in range(-1, 8)]
    assert await store.count_ended_calls(times, settings()) == [None, *counts]
    assert await store.count_ended_calls([times[0] - 9, times[-1]], settings()) == [(3, 3, 3)]
    key = target_key(store._name, "minutes")
    assert await redis.llen(key) == 3
    await redis.rpush(key, *["1 0 0 0"] * 1500)
    clock.now += 60_000_000
    [claim] = (await store.claim(1, settings())).claims
    assert await release(store, claim)
    assert await redis.llen(key) == 1440


# Locks --------------------------------------------------------------------------------------------


async def test_a_lock_that_ends_puts_the_job_back_to_its_place(make, clock):
    """It is called again before who came later; the first worker is late with all that it says."""
    store = await make()
    await add(store, *"ab")
    [first] = (await store.claim(1, settings())).claims
    clock.now += LOCK - 1
    assert await store.renew([("a", first.fence)]) == ["held"]
    clock.now += LOCK
    [second, _] = (await store.claim(2, settings())).claims
    assert (second.id, second.order) == ("a", first.order)
    assert second.fence > first.fence
    assert await store.renew([("a", first.fence), ("a", second.fence)]) == ["lost", "held"]
    for how in ("answered", "failed", "busy", "gone"):
        assert not await release(store, first, how, again_ms=1, hold_ms=2**42)
    line, [place] = await store.inspect(["a"], settings())
    assert (place.where, place.fence, line.held_until_ms) == ("running", second.fence, None)
    assert line.counters["lost"] == 1
    assert line.counters["completed"] == line.counters["failed"] == 0


async def test_a_worker_hears_that_it_is_to_cut_a_call_off(make, clock):
    """As often as it asks; so does the next, if it has died meanwhile."""
    store = await make()
    await add(store, "a", "b", "C", online="C")
    [claim, *_] = (await store.claim(1, settings())).claims
    assert [await store.abort(job) for job in ("a", "b", "C", "x")] == [True, False, False, False]
    assert await store.renew([("a", claim.fence)] * 2) == ["abort", "abort"]
    clock.now += LOCK
    [claim, *_] = (await store.claim(1, settings())).claims
    assert await store.renew([("a", claim.fence)]) == ["abort"]
    assert await release(store, claim, "gone")
    await add(store, "a")
    [claim] = (await store.claim(1, settings(concurrency=1))).claims
    assert await store.renew([("a", claim.fence)]) == ["held"]


async def test_what_runs_cannot_be_removed(make, clock):
    """All else can, once: from the queue, from a moment to come, while it is submitted, and called
    but not there yet."""
    store = await make()
    await add(store, "later", due_ms=clock.now // 1000 + 1000)
    await add(store, "r", "C", "U", "line", online="CU", first=16)
    [_, _, used] = (await store.claim(1, settings())).claims
    assert await store.use_permit("U", used.fence, settings()) == "ok"
    await store.reserve("kept", "", settings())
    jobs = ("r", "U", "later", "line", "C", "kept", "never")
    assert [await store.remove(job) for job in jobs] == [False] * 2 + [True] * 4 + [False]
    assert [await store.remove(job) for job in jobs] == [False] * 7
    assert (await line_of(store)).active == 2


# The breaker --------------------------------------------------------------------------------------


async def fail(store, *, times=1, how="failed"):
    for _ in range(times):
        [claim] = (await store.claim(1, settings(break_after=3))).claims
        await release(store, claim, how, again_ms=1, break_after=3)


async def test_a_target_that_fails_is_left_alone_for_longer_each_time(make, clock):
    """5 s after three failures in a row, then twice as long after each trial that failed, a minute
    at most; meanwhile nothing is called."""
    store = await make()
    await add(store, *"abc")
    await fail(store, times=2)
    await fail(store, how="answered")
    await fail(store, times=2)
    assert (await line_of(store)).breaker == "closed"
    await fail(store)
    for seconds in (5, 10, 20, 40, 60, 60):
        line = await line_of(store)
        assert (line.breaker, line.open_until_ms) == ("open", clock.now // 1000 + seconds * 1000)
        told = await store.claim(1, settings())
        assert told.claims == []
        assert 0 < told.next_s <= seconds  # one that failed is in the line again before
        clock.now += seconds * S - 1
        assert await call(store) == []
        clock.now += 1
        assert (await line_of(store)).breaker == "trial"
        await fail(store)


async def test_a_trial_is_the_only_call(make, clock):
    """Until one succeeds; one that the target put off says nothing. Then all go again, and the
    next failures begin anew."""
    store, values = await make(), {"concurrency": 3, "break_after": 3}
    await add(store, *"abcd")
    claims = (await store.claim(3, settings(**values))).claims
    for claim in claims:
        await release(store, claim, "failed", again_ms=1, **values)
    clock.now += 5 * S
    for how in ("busy", "gone", "answered"):
        [claim] = (await store.claim(3, settings(**values))).claims
        assert claim.is_trial
        assert await call(store, **values) == []
        await release(store, claim, how, again_ms=1, **values)
    claims = (await store.claim(5, settings(**values))).claims
    assert [claim.is_trial for claim in claims] == [False] * 3
    await release(store, claims[0], "failed", **values)
    assert (await line_of(store)).breaker == "closed"


async def test_a_job_that_fails_as_a_trial_is_not_the_next_one(make, clock):
    """It may be the job: it waits until another was tried, and then has its place again."""
    store = await make()
    await add(store, *"ab")
    await fail(store, times=3)
    clock.now += 5 * S
    await fail(store)
    told = await store.claim(1, settings())
    assert (told.claims, told.next_s) == ([], 10)
    clock.now += 10 * S
    assert await where(store, "a", "b") == ["later", "line"]
    [claim] = (await store.claim(1, settings())).claims
    assert (claim.id, claim.is_trial) == ("b", True)
    await release(store, claim)
    clock.now += S
    assert await call(store) == ["a"]


async def test_late_failures_do_not_count_as_trials(make, clock):
    """Of calls that began before: they open nothing again. A late success does close it."""
    store, values = await make(), {"concurrency": 5, "break_after": 2}
    await add(store, *"abcdef")
    claims = (await store.claim(5, settings(**values))).claims
    for claim in claims[:3]:
        await release(store, claim, "failed", **values)
    line = await line_of(store)
    assert (line.breaker, line.open_until_ms) == ("open", clock.now // 1000 + 5000)
    clock.now += 6 * S
    assert await call(store, **values) == []  # a trial is alone
    await release(store, claims[3], "failed", **values)
    assert (await line_of(store)).breaker == "trial"
    await release(store, claims[4], "answered", **values)
    assert (await line_of(store)).breaker == "closed"


async def test_a_clock_that_jumps_back_keeps_nothing_closed_for_longer(make, clock):
    """An open breaker for a minute at most, a held target for an hour."""
    store = await make()
    await add(store, *"ab")
    await fail(store, times=3)
    clock.now -= 86_400 * S
    told = await store.claim(1, settings())
    assert (told.claims, told.next_s) == ([], 60)
    clock.now += 60 * S
    [claim] = (await store.claim(1, settings())).claims
    await release(store, claim, "answered", hold_ms=clock.now // 1000 + 3_000_000)
    clock.now -= 86_400 * S
    assert (await store.claim(1, settings())).next_s == 3600


async def test_a_clock_that_jumps_back_holds_another_algorithm_for_a_window(make, clock):
    """From the first claim after the jump on, not from each."""
    store = await make()
    await add(store, *"ab")
    assert await call(store, 1, rate=1, algorithm="leaky_bucket") == ["a"]
    clock.now -= 86_400 * S
    changed = settings(rate=1, algorithm="fixed_window")
    assert (await store.claim(1, changed)).next_s == 1
    clock.now += S // 2
    assert (await store.claim(1, changed)).next_s == 0.5
    clock.now += S // 2
    assert await call(store, 1, rate=1, algorithm="fixed_window") == ["b"]


# Permits ------------------------------------------------------------------------------------------


async def test_a_permit_is_good_once(make, clock):
    """For that job with that number, within its window; the same request may ask again."""
    store, values = await make(), settings(claim_window=5, timeout=60)
    await add(store, "A", "b", online="A")
    [claim] = (await store.claim(0, values)).claims
    clock.now += 5 * S - 1
    assert await store.use_permit("A", claim.fence - 1, values) == "over"
    assert await store.use_permit("b", claim.fence, values) == "over"
    assert await store.use_permit("A", claim.fence, values, "request 1") == "ok"
    assert await store.use_permit("A", claim.fence, values, "request 2") == "used"
    assert await store.use_permit("A", claim.fence, values, "request 1") == "ok"
    assert await store.use_permit("A", claim.fence, values) == "used"
    clock.now += 59 * S
    assert (await store.inspect("A", values))[1] == [
        QueuePlace("used", None, claim.fence, (clock.now + S) // 1000)
    ]
    assert await store.end_call("A", claim.fence)
    assert not await store.end_call("A", claim.fence)
    assert await store.use_permit("A", claim.fence, values) == "over"
    assert await store.read_timed_out_calls() == []


async def test_permits_end_by_themselves(make, clock):
    """Not used in their window, or with their term; each is told until somebody has handled it."""
    store, values = await make(), settings(claim_window=5, timeout=60)
    await add(store, "A", "B", online="AB")
    began = clock.now
    claims = (await store.claim(0, values)).claims
    await store.use_permit("B", claims[1].fence, values)
    clock.now += 5 * S
    assert await store.use_permit("A", claims[0].fence, values) == "over"
    clock.now += 60 * S
    assert await call(store) == []
    ended = await store.read_timed_out_calls()
    assert ended == [
        ("A", "unused", (began + 5 * S) // 1000), ("B", "term", (began + 60 * S) // 1000)
    ]  # fmt: skip
    await store.forget_timed_out_calls(ended[:1])
    assert await store.read_timed_out_calls() == ended[1:]
    line = await line_of(store)
    assert (line.active, line.counters["expired"], line.counters["completed"]) == (0, 1, 1)


async def test_who_called_without_asking_may_be_done_all_the_same(make, clock):
    """Where nothing guards the target; how long it took counts from the call on."""
    store = await make()
    await add(store, "A", online="A")
    [claim] = (await store.claim(0, settings())).claims
    clock.now += 3 * S
    assert not await store.end_call("A", claim.fence + 1)
    assert await store.end_call("A", claim.fence)
    assert (await line_of(store)).mean_s == 3


async def test_an_online_trial_ends_too(make, clock):
    """When its call is over; not when nobody came."""
    store, values = await make(), {"break_after": 1, "claim_window": 5}
    await add(store, "a", "B", "C", online="BC")
    [claim, *_] = (await store.claim(1, settings(concurrency=1))).claims
    await release(store, claim, "failed", **values)
    clock.now += 5 * S
    assert await call(store, **values) == ["B"]
    clock.now += 5 * S
    [claim] = (await store.claim(0, settings(**values))).claims
    assert (claim.id, claim.is_trial) == ("C", True)
    await store.end_call("C", claim.fence)
    assert (await line_of(store)).breaker == "closed"


# A store that was emptied -------------------------------------------------------------------------


async def test_a_new_queue_is_built_before_anything_is_called(make, clock):
    """Jobs are taken meanwhile; then it is called from a moment on, which is told."""
    store = await make(is_ready=False)
    order = await store.reserve("a", "", settings())
    assert await add(store, "a", first=order) == [1]
    told = await store.claim(1, settings())
    assert (told.claims, told.next_s, told.is_ready) == ([], None, False)
    clock.now += S
    assert (await store.claim(1, settings())).detected_us == told.detected_us
    assert not await store.mark_ready(0, told.detected_us - 1)  # of a loss before this one
    assert not await store.is_ready()
    assert not (await line_of(store)).is_ready
    assert await store.mark_ready(2 * S, told.detected_us)
    told = await store.claim(1, settings())
    assert (told.claims, told.next_s, told.is_ready, told.detected_us) == ([], 2, True, 0)
    await store.mark_ready(60 * S)  # another keeper's word changes nothing
    clock.now += 2 * S
    assert await call(store) == ["a"]


async def test_a_queue_that_was_lost_is_built_again(redis, make, clock):
    """Workers keep their locks, permits are not refused but not known, jobs have their order, and
    numbers grow on."""
    store = await make()
    await add(store, "a", "B", "c", "d", online="B")
    [runs, called] = (await store.claim(1, settings())).claims
    await lose(redis, store)
    clock.now += S
    assert await store.renew([("a", runs.fence)]) == ["held"]
    assert not await release(store, runs)
    for ask in (store.use_permit("B", called.fence, settings()), store.end_call("B", called.fence)):
        with pytest.raises(StoreError, match="the queue was lost"):
            await ask
    born = (await store.claim(1, settings())).detected_us
    entries = [QueueEntry("d", 32), QueueEntry("a", 8), QueueEntry("c", 24)]
    await store.add(entries, settings())
    held = [
        job(id="a", fence=runs.fence, queue_order=8),
        job(id="B", fence=called.fence, queue_order=16, kind="online", state=State.CALLED),
        job(id="x", fence=2**52, queue_order=0),
    ]
    await store.restore([make_restored_call(job, settings()) for job in held])
    assert await store.mark_ready(0, born)
    assert await where(store, "a", "B", "c", "d") == ["running", "called", "line", "line"]
    assert await store.use_permit("B", called.fence, settings()) == "ok"
    assert await store.renew([("a", runs.fence), ("y", 1)]) == ["held", "lost"]
    claims = (await store.claim(5, settings())).claims
    assert [claim.id for claim in claims] == ["c", "d"]
    assert claims[0].fence > 2**52
    assert await release(store, runs)


async def test_all_that_wait_are_told(make, clock):
    """In the queue and elsewhere, however many; not who is called."""
    store = await make()
    await add(store, *(f"j{n}" for n in range(300)))
    await call(store, 7)
    await add(store, "later", due_ms=clock.now // 1000 + 1000)
    found = {job async for jobs in store.scan_waiting_jobs() for job in jobs}
    assert found == {f"j{n}" for n in range(7, 300)} | {"later"}


# News ---------------------------------------------------------------------------------------------


@pytest.fixture
async def told(redis):
    """What was published of a target since the last time."""
    async with redis.pubsub() as channel:
        await channel.subscribe(JOBS_CHANNEL)
        await channel.get_message(timeout=5)

        async def read(store):
            await redis.publish(JOBS_CHANNEL, f"end {store._name}")
            words = []
            while (message := await channel.get_message(timeout=5)) is not None:
                word = message["data"].decode()
                if word == f"end {store._name}":
                    return words
                words += [word.replace(store._name, "T")] * (store._name in word)
            return None

        yield read


async def test_who_can_do_something_is_told(make, clock, told):
    """When somebody is first in the queue; when an online call ends, a breaker closes, or a worker
    stops while others wait; when a call is to be cut off, and when the queue is ready."""
    store, values = await make(), {"concurrency": 1, "break_after": 1}
    assert await told(store) == ["T"]
    await add(store, "B", online="B")
    assert await told(store) == ["T"]
    await add(store, *"cdef", first=16)
    assert await told(store) == []
    [claim] = (await store.claim(1, settings(**values))).claims
    await store.remove("B")
    assert await told(store) == ["T"]
    [claim] = (await store.claim(1, settings(**values))).claims
    await store.abort("c")
    assert await told(store) == ["abort T"]
    await release(store, claim, "failed", **values)
    assert await told(store) == []
    clock.now += 5 * S
    [claim] = (await store.claim(1, settings(**values))).claims
    await release(store, claim, **values)
    assert await told(store) == ["T"]
    [claim] = (await store.claim(1, settings(**values))).claims
    await release(store, claim, **values)
    assert await told(store) == []
    [claim] = (await store.claim(1, settings(**values))).claims
    await add(store, "first", online="f", first=8)
    assert await told(store) == ["T"]
    await store.drop([(claim.id, claim.fence)], settings(), retry_ms=1, wake_others=True)
    assert await told(store) == ["T"]


async def test_nobody_is_told_of_what_is_not_so(make, told):
    """Where nobody waits, or nothing was changed."""
    store = await make()
    await add(store, "A", online="A")
    [claim] = (await store.claim(0, settings())).claims
    await told(store)
    await store.end_call("A", claim.fence)
    await store.end_call("A", claim.fence)
    await store.drop([("A", claim.fence)], settings(), wake_others=True)
    await store.remove("A")
    await store.abort("A")
    await store.claim(1, settings())
    assert await told(store) == []


async def heard(words, name):
    """The next that is of this target, or of all."""
    async for _, word in words:
        if not word or name in word:
            return word
    return None


async def test_news_are_heard(redis, make):
    """By whoever listens; at first it has to look at everything."""
    store = await make()
    async with contextlib.aclosing(subscribe(redis, [JOBS_CHANNEL])) as words:
        assert await heard(words, store._name) == ""
        await add(store, "a")
        await store.claim(1, settings())
        await store.abort("a")
        assert await heard(words, store._name) == store._name
        assert await heard(words, store._name) == f"abort {store._name}"


async def test_news_go_on_after_a_lost_connection(redis_socket):
    """Whoever listens is told that something may have been missed. A silent server is asked whether
    it is there, and is heard all the same."""
    listening = connect(f"unix://{redis_socket}", timeout_s=1)
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    store = TargetStore(redis, new_room_name(), clock=StoreClock())
    async with contextlib.aclosing(subscribe(listening, [JOBS_CHANNEL], silence_s=1)) as words:
        assert await heard(words, store._name) == ""
        waits = asyncio.create_task(heard(words, store._name))
        commands = ""
        while "cmd=ping" not in commands:  # it was asked
            assert not waits.done(), "the server took longer than silence_s to respond"
            await asyncio.sleep(0.01)
            commands = str(await redis.execute_command("CLIENT", "LIST", "TYPE", "pubsub"))
            commands = commands.replace("'cmd': 'ping'", "cmd=ping")
        await store.mark_ready(0)
        assert await waits == store._name
        await redis.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        assert await heard(words, store._name) == ""
        await add(store, "a")
        assert await heard(words, store._name) == store._name
    await close(listening)
    await close(redis)


# Where Redis fails --------------------------------------------------------------------------------


async def test_a_full_store(redis_socket):
    """Takes nobody, and nothing is half done; what was taken is called, renewed and ended."""
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    clock = RedisTimeUs()
    store = TargetStore(redis, new_room_name(), clock=StoreClock(), now_us=clock, timeout_s=5)
    values = settings(rate=100)
    await store.mark_ready(0)
    await add(store, "a", "B", "C", "d", online="BC")
    await store.claim(0, values)
    await redis.config_set("maxmemory", 1)
    try:
        for refused in (store.reserve("e", "", values), add(store, "e")):
            with pytest.raises(StoreError, match="memory"):
                await refused
        [a, b, _] = (await store.claim(1, values)).claims
        assert await store.renew([("a", a.fence)]) == ["held"]
        assert await store.abort("a")
        assert await store.use_permit("B", b.fence, values) == "ok"
        assert await store.end_call("B", b.fence)
        assert await store.remove("C")
        assert await release(store, a, "failed", again_ms=clock.now // 1000, rate=100)
        assert await call(store, 5, rate=100) == ["a", "d"]
        clock.now += LOCK
        assert await call(store, 5, rate=100) == ["a", "d"]
        assert await where(store, "e") == ["gone"]
        assert (await line_of(store)).reserved == 0
    finally:
        await redis.config_set("maxmemory", 0)
        await close(redis)


async def test_redis_is_away(tmp_path):
    """Each call says so, and after some nobody waits for it."""
    redis = connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1)
    errors = []
    observer = Observer(error=lambda name, verb: errors.append((name, verb)))
    store = TargetStore(redis, "t", clock=StoreClock(), observer=observer)
    for _ in range(TRIES):
        with pytest.raises(StoreError, match="reserve"):
            await store.reserve("a", "", settings())
    assert store._scripts.is_away
    asks = (
        store.claim(1, settings()), add(store, "a"),
        store.use_permit("a", 1, settings()), line_of(store),
        store.read_timed_out_calls(), store.remove("a"), store.renew([("a", 1)]),
        store.drop([("a", 1)], settings()), store.end_call("a", 1),
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(StoreUnavailableError):
            await ask
    assert errors == [("t", "reserve")] * TRIES
    await close(redis)
