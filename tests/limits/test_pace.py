"""Limits that pace: what the model of test_model.py does not say, such as several replicas, wrong
permits, and limits whose other settings change."""

import asyncio
import random
from functools import partial

import pytest

from sidecar.limits.model import Call, Outcome
from tests.support.limits import BEGIN, WINDOWS, S, check_granted_rate

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


async def test_a_free_moment_beyond_max_wait_stays(make, clock):
    """A free moment beyond max_wait stays for a later call."""
    store = make("token_bucket", limit=1, max_wait=3)
    booked = await store.acquire_each([Call()] * 4)
    await store.release("", booked[3].permit)
    hasty = make("token_bucket", name=store._name, limit=1, max_wait=2)
    refused = await hasty.acquire(Call())
    assert (refused.outcome, refused.at_us) == (REFUSED, BEGIN + S)
    assert seconds([await store.acquire(Call())]) == [3]


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
@pytest.mark.parametrize("on_exceed", ["pace", "refuse"])
async def test_no_stretch_of_time_has_more_than_its_limit(make, clock, algorithm, on_exceed):
    """In a random run with moments given back no stretch has more than the limit."""
    numbers, limit = random.Random(5), 4
    store = make(algorithm, on_exceed=on_exceed, limit=limit, max_wait=20)
    kept = {}
    for n in range(150):
        asks = [Call(cost=numbers.randint(1, 3), id=f"{n}.{i}") for i in range(3)]
        for ask, one in zip(asks, await store.acquire_each(asks), strict=True):
            if one.is_allowed:
                kept[one.permit] = (one.at_us, ask.cost)
        for permit in numbers.sample(sorted(kept), min(2, len(kept))):
            if await store.release("", permit):
                del kept[permit]
        clock.now += numbers.choice([0, 100_000, 333_333, S])
    assert len(kept) > 50
    assert (max(kept.values())[0] > clock.now) == (on_exceed == "pace")
    check_granted_rate(algorithm, kept.values(), limit)
