"""Limits that pace: moments that are booked, kept and given back."""

import asyncio
import random
from functools import partial
from itertools import pairwise

import pytest

from sidecar.limits.model import Call, Outcome
from tests.support.limits import BEGIN, WINDOWS, S, check_granted_rate, key_ttls_ms

GRANTED, PACED, REFUSED = Outcome.GRANTED, Outcome.PACED, Outcome.REFUSED
#: The algorithms that spread calls evenly with a limit of 1.
each_algorithm = pytest.mark.parametrize("algorithm", WINDOWS)


@pytest.fixture
def make(make):
    """Makes the store of a new rule that paces, one call a second; settings by name."""
    return partial(make, on_exceed="pace", window=1)


def seconds(decisions):
    """Return the moments in seconds from the beginning."""
    return [(one.at_us - BEGIN) / S for one in decisions]


@each_algorithm
async def test_60_refunds_are_spaced_by_a_second_each(replicas, algorithm):
    """60 calls over four replicas have 60 moments, a second apart."""
    stores = replicas(algorithm, limit=1, window=1, on_exceed="pace")
    refunds = await asyncio.gather(*(stores[n % 4].acquire(Call("wx")) for n in range(60)))
    assert sorted(seconds(refunds)) == list(range(60))
    assert [one.outcome for one in refunds].count(PACED) == 59
    assert all((one.permit == "") == (one.at_us == BEGIN) for one in refunds)


@each_algorithm
async def test_a_call_that_may_go_leaves_nothing_but_its_count(make, algorithm):
    """A call that may go now has no permit, and writes one key."""
    store = make(algorithm, limit=1)
    assert (await store.acquire(Call("a"))).permit == ""
    assert list(await key_ttls_ms(store)) == [f"{algorithm}:a"]


@each_algorithm
async def test_moments_that_are_given_back_go_to_the_next(make, algorithm):
    """Free moments are given first, earliest first; then new ones at the end."""
    store = make(algorithm, limit=1)
    booked = await store.acquire_each([Call()] * 10)
    for n in (7, 3, 5):
        assert await store.release("", booked[n].permit)
    assert seconds(await store.acquire_each([Call()] * 5)) == [3, 5, 7, 10, 11]


@each_algorithm
async def test_a_moment_is_given_back_once(make, clock, algorithm):
    """A moment is given back once, by its own key and permit only."""
    store = make(algorithm, limit=1)
    await store.acquire(Call("a"))
    one = await store.acquire(Call("a"))
    for wrong in ("", "1~", "1~other", "2" + one.permit[1:], one.permit + "\n", "1~~"):
        assert not await store.release("a", wrong)
    assert not await store.release("b", one.permit)
    assert [await store.release("a", one.permit) for _ in range(2)] == [True, False]
    assert seconds(await store.acquire_each([Call("a")] * 2)) == [1, 2]
    assert not await store.release("a", one.permit)


@each_algorithm
async def test_a_moment_that_has_come_is_not_given_back(make, clock, algorithm):
    """A moment that has come cannot be given back, because its call may have gone."""
    store = make(algorithm, limit=1)
    decisions = await store.acquire_each([Call(id="now"), Call(), Call(id="later"), Call()])
    assert not await store.release("", "1~now")
    clock.now += 2 * S
    for one in decisions[:3]:
        assert not await store.release("", one.permit)
    clock.now += S - 1
    assert await store.release("", decisions[3].permit)


@each_algorithm
async def test_nobody_waits_longer_than_max_wait(make, clock, algorithm):
    """A call that would wait longer is refused, and paced when it asks again as told. It does not
    take a free moment that is too far away either."""
    store = make(algorithm, limit=1, max_wait=3)
    decisions = await store.acquire_each([Call()] * 6)
    assert [one.outcome for one in decisions] == [GRANTED, PACED, PACED, PACED, REFUSED, REFUSED]
    assert seconds(decisions) == [0, 1, 2, 3, 1, 1]
    clock.now += S
    assert seconds([await store.acquire(Call())]) == [4]
    await store.release("", (await store.acquire(Call())).permit)
    clock.now -= S // 2
    assert (await store.acquire(Call())).outcome is REFUSED


async def test_a_free_moment_beyond_max_wait_stays(make, clock):
    """A free moment beyond max_wait stays for a later call."""
    store = make("token_bucket", limit=1, max_wait=3)
    booked = await store.acquire_each([Call()] * 4)
    await store.release("", booked[3].permit)
    hasty = make("token_bucket", name=store._name, limit=1, max_wait=2)
    refused = await hasty.acquire(Call())
    assert (refused.outcome, refused.at_us) == (REFUSED, BEGIN + S)
    assert seconds([await store.acquire(Call())]) == [3]


@each_algorithm
async def test_a_call_with_an_id_keeps_its_moment(make, clock, algorithm):
    """An id keeps its moment, before it and after. Once given back, the same id is a new call."""
    store = make(algorithm, limit=1)
    decisions = await store.acquire_each([Call(), Call(id="a"), Call(id="a"), Call()])
    assert seconds(decisions) == [0, 1, 1, 2]
    clock.now += S // 2
    assert (await store.acquire(Call(id="a"))).outcome is PACED
    assert await store.release("", "1~a")
    assert seconds(await store.acquire_each([Call(), Call(id="a"), Call(id="a")])) == [1, 3, 3]
    assert await store.release("", "1~a")
    assert seconds(await store.acquire_each([Call(id="a"), Call()])) == [3, 4]
    clock.now += 5 * S
    again = await store.acquire(Call(id="a"))
    assert (again.outcome, again.at_us, again.remaining) == (GRANTED, BEGIN + 3 * S, 1)


async def test_what_one_id_gave_back_twice_is_two_moments(make):
    """Two equal moments that one id gave back are two free moments."""
    store = make("fixed_window", limit=2)
    await store.acquire_each([Call()] * 2)
    booked = await store.acquire_each([Call(id="a"), Call(id="b"), Call(id="c")])
    assert seconds(booked) == [1, 1, 2]
    for id_ in ("b", "a"):
        await store.release("", f"1~{id_}")
    assert seconds([await store.acquire(Call(id="b"))]) == [1]
    assert await store.release("", "1~b")
    assert seconds(await store.acquire_each([Call(), Call(), Call()])) == [1, 1, 2]


@each_algorithm
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lowered_limit_passes_on_no_moment_of_before(make, algorithm, when):
    """Moments from before a lower limit are not passed on, whether given back before or after it;
    moments from after it are."""
    store = make(algorithm, limit=10)
    booked = await store.acquire_each([Call("a", id="mine" if n == 50 else "") for n in range(60)])
    await store.set_value("b", 1)
    permits = [one.permit for one in booked if one.permit]
    for permit in permits if when == "before" else []:
        await store.release("a", permit)
    await store.set_value("a", 1)
    for permit in permits if when == "after" else []:
        assert await store.release("a", permit)
    after = await store.acquire_each([Call("a")] * 8)
    assert all(b - a >= 1 for a, b in pairwise(seconds([booked[-1], *after])[1:]))
    assert after[0].at_us >= booked[-1].at_us
    await store.release("a", after[4].permit)
    assert (await store.acquire(Call("a"))).at_us == after[4].at_us
    await store.set_value("a", None)
    await store.release("a", after[5].permit)
    assert (await store.acquire(Call("a"))).at_us == after[5].at_us


async def test_another_algorithm_passes_on_no_moment_of_the_old_one(make):
    """Another algorithm starts without the moments of the old one."""
    old = make("fixed_window", limit=5)
    booked = await old.acquire_each([Call()] * 20)
    await old.release("", booked[-1].permit)
    store = make("leaky_bucket", name=old._name, limit=1)
    assert seconds(await store.acquire_each([Call()] * 5)) == [0, 1, 2, 3, 4]
    assert not await store.release("", booked[-2].permit)


@each_algorithm
async def test_a_moment_that_is_promised_is_no_clock_that_went_back(make, clock, algorithm):
    """A limit that refuses grants nothing before a moment that a pacing replica gave. After that
    its own clock may go back."""
    paces = make(algorithm, limit=4)
    went = (await paces.acquire_each([Call()] * 5))[-1].at_us
    refuses = make(algorithm, name=paces._name, limit=4, on_exceed="refuse")
    for _ in range(2):
        clock.now = went - S // 5
        assert {one.outcome for one in await refuses.acquire_each([Call()] * 5)} == {REFUSED}
        clock.now += S // 5
        await paces.acquire_each([Call()] * 5)
        went = (await paces.acquire(Call())).at_us
    clock.now = went + 3 * S
    assert (await refuses.acquire(Call())).outcome is GRANTED
    clock.now -= S // 2
    granted = (await refuses.acquire(Call())).outcome is GRANTED
    assert granted is (algorithm != "leaky_bucket")


@each_algorithm
async def test_a_rule_that_paces_no_longer_keeps_what_was_promised(make, clock, algorithm):
    """A limit that paces no longer refuses until the last moment has come."""
    store = make(algorithm, limit=2)
    last = (await store.acquire_each([Call()] * 7))[-1].at_us
    refuses = make(algorithm, name=store._name, limit=2, on_exceed="refuse")
    refused = await refuses.acquire(Call())
    assert (refused.outcome, refused.at_us >= last) == (REFUSED, True)
    clock.now = refused.at_us
    assert (await refuses.acquire(Call())).outcome is GRANTED


async def test_those_who_are_refused_and_those_who_wait_are_counted_together(make, clock):
    """Calls of a pacing and of a refusing replica share the limit, in the same moment too."""
    paces = make("sliding_window", limit=4)
    clock.now = (await paces.acquire_each([Call()] * 5))[-1].at_us
    refuses = make("sliding_window", name=paces._name, limit=4, on_exceed="refuse")
    outcomes = [(await refuses.acquire(Call())).outcome for _ in range(5)]
    assert outcomes == [GRANTED] * 3 + [REFUSED] * 2
    assert seconds(await paces.acquire_each([Call()] * 5)) == [2, 2, 2, 2, 3]


@each_algorithm
async def test_a_clock_that_goes_back_books_no_moment_twice(make, clock, algorithm):
    """After a clock went back no moment is given twice."""
    store = make(algorithm, limit=1, max_wait=100)
    before = await store.acquire_each([Call()] * 3)
    clock.now -= 10 * S
    after = await store.acquire_each([Call()] * 3)
    clock.now += 11 * S
    last = await store.acquire_each([Call()] * 3)
    assert seconds([*before, *after, *last]) == list(range(9))


@each_algorithm
@pytest.mark.slow
async def test_no_stretch_of_time_has_more_than_its_limit(make, clock, algorithm):
    """In a random run with moments given back no stretch has more than the limit."""
    numbers, limit = random.Random(5), 4
    store = make(algorithm, limit=limit, max_wait=20)
    kept = {}
    for n in range(120):
        asks = [Call(cost=numbers.randint(1, 3), id=f"{n}.{i}") for i in range(3)]
        for ask, one in zip(asks, await store.acquire_each(asks), strict=True):
            if one.is_allowed:
                kept[one.permit] = (one.at_us, ask.cost)
        for permit in numbers.sample(sorted(kept), min(2, len(kept))):
            if await store.release("", permit):
                del kept[permit]
        clock.now += numbers.choice([0, 100_000, 333_333, S])
    assert max(kept.values())[0] > clock.now
    check_granted_rate(algorithm, kept.values(), limit)


@each_algorithm
async def test_calls_get_their_moments_in_order(make, algorithm):
    """Moments are given in order: a cheap call does not overtake an expensive one."""
    store = make(algorithm, limit=3)
    decisions = await store.acquire_each([Call(cost=cost) for cost in (2, 2, 1, 3, 1, 1)])
    moments = [one.at_us for one in decisions]
    assert moments == sorted(moments)
    assert all(one.is_allowed for one in decisions)


@each_algorithm
async def test_a_free_moment_that_nobody_took_is_gone(make, clock, algorithm):
    """A free moment that has passed is given to nobody."""
    store = make(algorithm, limit=1)
    booked = await store.acquire_each([Call()] * 4)
    for n in (1, 2):
        await store.release("", booked[n].permit)
    clock.now += 2 * S
    taken = await store.acquire_each([Call(), Call()])
    assert [(one.outcome, one.permit != "") for one in taken] == [(GRANTED, False), (PACED, True)]
    assert seconds(taken) == [2, 4]


@each_algorithm
async def test_a_free_moment_is_for_a_call_of_its_cost(make, algorithm):
    """A free moment is given only to a call of the same cost."""
    store = make(algorithm, limit=12)
    booked = await store.acquire_each([Call(cost=12)] * 3)
    await store.release("", booked[1].permit)
    dear, cheap, fits = await store.acquire_each([Call(cost=13), Call(), Call(cost=12)])
    assert dear.outcome is (PACED if algorithm == "leaky_bucket" else REFUSED)
    assert cheap.at_us > booked[2].at_us
    assert fits.at_us == booked[1].at_us


@each_algorithm
async def test_a_limit_that_changes_keeps_what_was_promised(make, clock, algorithm):
    """Moments stay when the limit changes; the following ones are spaced by the new limit."""
    store = make(algorithm, limit=1)
    booked = await store.acquire_each([Call(id=f"{n}") for n in range(5)])
    await store.set_value("", 10)
    faster = await store.acquire_each([Call()] * 30)
    assert faster[0].at_us >= booked[4].at_us
    assert faster[-1].at_us <= BEGIN + 8 * S
    await store.set_value("", 1)
    slower = await store.acquire_each([Call()] * 3)
    assert [b - a for a, b in pairwise(seconds(slower))] == [1, 1]
    assert slower[0].at_us > faster[-1].at_us
    again = await store.acquire_each([Call(id=f"{n}") for n in range(5)])
    assert seconds(again) == seconds(booked)


async def test_a_limit_that_goes_back_to_a_lower_one_of_the_file_is_lowered(make):
    """A reset to a lower configured limit counts as lowering it."""
    store = make("leaky_bucket", limit=1)
    await store.set_value("", 10)
    booked = await store.acquire_each([Call()] * 9)
    await store.set_value("", None)
    assert await store.release("", booked[4].permit)
    assert (await store.acquire(Call())).at_us > booked[-1].at_us


@each_algorithm
async def test_looking_tells_the_moment_and_books_nothing(make, clock, algorithm):
    """A look returns the next call's moment, free ones included, and reserves nothing."""
    store = make(algorithm, limit=1, max_wait=3)
    booked = await store.acquire_each([Call()] * 3)
    ahead = [await store.peek("") for _ in range(3)]
    assert {(one.outcome, one.at_us, one.remaining, one.permit) for one in ahead} == {
        (PACED, BEGIN + 3 * S, 0, "")
    }
    last = await store.acquire(Call())
    assert (last.outcome, last.at_us) == (ahead[0].outcome, ahead[0].at_us)
    beyond = await store.peek("")
    assert (beyond.outcome, beyond.at_us) == (REFUSED, BEGIN + S)
    assert beyond == await store.acquire(Call())
    await store.release("", booked[2].permit)
    clock.now += S
    free = await store.peek("")
    assert (free.outcome, free.at_us, free.permit) == (PACED, BEGIN + 2 * S, "")
    clock.now += S
    assert (await store.peek("")).outcome is GRANTED
    assert (await store.acquire(Call())).outcome is GRANTED
