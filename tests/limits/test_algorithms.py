"""The rules of every algorithm of a limit, on both kinds of store, with a turned clock. What holds
of one alone, to the microsecond, the model of test_model.py says."""

import asyncio
import random

import pytest

from sidecar.limits.model import Call, Outcome
from sidecar.limits.settings import UNLIMITED
from sidecar.limits.store import BATCH_LIMIT, UNITS_LIMIT
from tests.support.limits import ALL, BEGIN, BURSTS, MODES, S, key_ttls_ms

GRANTED, REFUSED = Outcome.GRANTED, Outcome.REFUSED


async def granted(store, number, **ask):
    """Make `number` calls. Return how many are granted."""
    decisions = await store.acquire_each([Call(**ask)] * number)
    return sum(decision.outcome is GRANTED for decision in decisions)


# The number ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
async def test_of_100_racers_over_4_replicas_exactly_so_many_go(replicas, algorithm):
    """Of 100 calls over four replicas exactly the limit is granted."""
    stores = replicas(algorithm, limit=17)
    racers = [stores[n % 4].acquire(Call("refund")) for n in range(100)]
    outcomes = [decision.outcome for decision in await asyncio.gather(*racers)]
    permits = 17 if algorithm in BURSTS else 1
    assert outcomes.count(GRANTED) == permits
    assert outcomes.count(REFUSED) == 100 - permits


@pytest.mark.parametrize("algorithm", ALL)
async def test_racers_with_the_same_id_are_one_call(replicas, algorithm):
    """Of ten calls, each made ten times, the same are granted all ten times."""
    stores = replicas(algorithm, limit=4)
    asks = [Call("refund", id=f"call-{n % 10}") for n in range(100)]
    racers = [stores[n % 4].acquire(ask) for n, ask in enumerate(asks)]
    decisions = await asyncio.gather(*racers)
    went = {ask.id for ask, one in zip(asks, decisions, strict=True) if one.is_allowed}
    assert len(went) == (4 if algorithm in BURSTS else 1)
    for ask, one in zip(asks, decisions, strict=True):
        assert one.permit == (f"1~{ask.id}" if ask.id in went else "")


@pytest.mark.parametrize("algorithm", ALL)
async def test_many_are_decided_in_parts(make, algorithm):
    """Over several script calls no call is lost or counted twice."""
    store = make(algorithm, limit=UNITS_LIMIT)
    asks = [Call(f"key{n % 7}", cost=1 + n % 3) for n in range(2 * BATCH_LIMIT + 1)]
    decisions = await store.acquire_each([*asks, Call("big", cost=700), Call("big", cost=400)])
    permits = {ask.key: 0 for ask in asks}
    for ask, one in zip(asks, decisions, strict=False):
        permits[ask.key] += ask.cost * (one.outcome is GRANTED)
    asked = {key: sum(ask.cost for ask in asks if ask.key == key) for key in permits}
    first = {key: next(ask.cost for ask in asks if ask.key == key) for key in permits}
    assert permits == (asked if algorithm in BURSTS else first)
    assert [one.outcome for one in decisions[-2:]] == [GRANTED, REFUSED]


@pytest.mark.parametrize("algorithm", ALL)
async def test_what_can_never_go_has_no_moment(make, algorithm):
    """A limit of 0, and a cost above the limit; a leaky bucket bears any cost."""
    store = make(algorithm, limit=3, values={"closed": 0})
    for ask in (Call("closed"), Call("open", cost=4)):
        refused = await store.acquire(ask)
        if ask.key == "closed" or algorithm != "leaky_bucket":
            assert (refused.outcome, refused.at_us, refused.remaining) == (REFUSED, 0, 0)
    assert (await store.peek("closed")).at_us == 0


async def test_a_burst_is_what_a_token_bucket_holds(make, clock):
    """A token bucket never grants more than `burst` at once, after a long rest either."""
    store = make("token_bucket", window=1, limit=2, burst=5)
    assert (await store.acquire(Call(cost=6))).at_us == 0
    assert await granted(store, 9) == 5
    clock.now += 3600 * S
    assert await granted(store, 9) == 5


# The moment ------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
async def test_who_is_refused_is_told_the_first_moment_that_does(make, clock, algorithm):
    """A refusal names the first moment at which the same call is granted, for any cost."""
    clock.now += 1_234_567
    numbers = random.Random(7)
    store = make(algorithm, limit=7)
    refusals = 0
    for _ in range(60):
        ask = Call(cost=numbers.randint(1, 4))
        decision = await store.acquire(ask)
        if decision.outcome is REFUSED:
            refusals += 1
            clock.now = decision.at_us - 1
            assert (await store.acquire(ask)).outcome is REFUSED
            clock.now += 1
            assert (await store.acquire(ask)).outcome is GRANTED
        clock.now += numbers.randint(0, 9 * S)
    assert refusals > 10


@pytest.mark.parametrize("algorithm", ALL)
async def test_a_clock_that_goes_back_grants_no_more(make, clock, algorithm):
    """A clock that goes back counts as standing still: only the rest is granted."""
    store = make(algorithm, limit=4)
    clock.now += 30 * S
    before = await granted(store, 2)
    clock.now -= S // 2
    assert before + await granted(store, 9) == (4 if algorithm in BURSTS else 1)
    clock.now -= 40 * S
    assert await granted(store, 9) == 0


# The same call again ---------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "on_exceed"), MODES)
async def test_a_call_without_an_id_leaves_nothing_but_its_count(make, algorithm, on_exceed):
    """A call that may go now without an id writes one key. Only concurrency gives it a permit."""
    store = make(algorithm, limit=2, on_exceed=on_exceed)
    decision = await store.acquire(Call("a"))
    assert bool(decision.permit) == (algorithm == "concurrency")
    assert list(await key_ttls_ms(store)) == [f"{algorithm}:a"]


# Values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
async def test_a_key_without_a_limit_is_not_counted(make, algorithm):
    """A key without a limit, configured or set at run time, writes nothing."""
    store = make(algorithm, limit=None, values={"file": UNLIMITED, "set": 1})
    await store.set_value("set", UNLIMITED)
    for key in ("none", "file", "set"):
        decisions = [*await store.acquire_each([Call(key, 1000, "id")] * 3), await store.peek(key)]
        assert {one.outcome for one in decisions} == {Outcome.UNLIMITED}
        assert {(one.limit, one.permit) for one in decisions} == {(UNLIMITED, "")}
    assert set(await key_ttls_ms(store)) == {"values", "revisions", "digest"}


# Looking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
async def test_looking_changes_nothing(make, algorithm):
    """A look returns the decision on a call, and writes nothing."""
    store = make(algorithm, limit=2)
    free = [await store.peek("a") for _ in range(5)]
    assert {(one.outcome, one.at_us, one.permit) for one in free} == {(GRANTED, BEGIN, "")}
    assert {one.remaining for one in free} == {2 if algorithm in BURSTS else 1}
    assert await key_ttls_ms(store) == {}
    await granted(store, 9, key="a")
    refused = await store.acquire(Call("a"))
    assert [await store.peek("a") for _ in range(5)] == [refused] * 5


# Concurrency -----------------------------------------------------------------------------------


async def test_a_permit_is_free_when_it_is_given_back(make):
    """A permit gives back all its units once; wrong permits give back nothing."""
    store = make("concurrency", limit=3)
    one = await store.acquire(Call("a", cost=3))
    assert (await store.acquire(Call("a"))).outcome is REFUSED
    for wrong in ("", "x", "3", "3~", "~x", "0~x", "3~other", "1" + one.permit, "9999~x", "3~ü\n"):
        assert not await store.release("a", wrong)
    assert not await store.release("b", one.permit)
    assert [await store.release("a", one.permit) for _ in range(2)] == [True, False]
    assert await key_ttls_ms(store) == {}
    assert await granted(store, 9, key="a") == 3


async def test_a_lease_ends_by_itself(make, clock):
    """A lease ends at its exact end, and then cannot be given back."""
    store = make("concurrency", limit=2, lease=30)
    first = await store.acquire(Call())
    clock.now += 10 * S
    await store.acquire(Call())
    assert (await store.acquire(Call())).at_us == BEGIN + 30 * S
    clock.now += 20 * S - 1
    assert (await store.acquire(Call())).outcome is REFUSED
    clock.now += 1
    assert not await store.release("", first.permit)
    assert (await store.acquire(Call())).outcome is GRANTED


async def test_asking_again_keeps_the_permit(make, clock):
    """Asking again starts the lease again, even under a lower limit; after its end it is a new
    call."""
    store = make("concurrency", limit=2, lease=30)
    twice = await store.acquire_each([Call("b", id="a"), Call("b", id="a"), Call("b")])
    assert [one.remaining for one in twice] == [1, 1, 0]
    await store.acquire(Call(cost=2, id="a"))
    for _ in range(5):
        clock.now += 29 * S
        kept = await store.acquire(Call(cost=2, id="a"))
        assert (kept.outcome, kept.permit, kept.reset_us) == (GRANTED, "2~a", clock.now + 30 * S)
        assert (await store.acquire(Call(id="a"))).outcome is REFUSED
    await store.set_value("", 1)
    assert (await store.acquire(Call(cost=2, id="a"))).outcome is GRANTED
    clock.now += 30 * S
    assert (await store.acquire(Call(cost=2, id="a"))).at_us == 0


async def test_permits_that_are_given_back_together_are_told_one_by_one(make):
    """Permits released together are answered one by one, held or not."""
    store = make("concurrency", limit=100)
    permits = [one.permit for one in await store.acquire_each([Call("a")] * 50)]
    given = [permit for permit in permits for _ in range(2)]
    told = await asyncio.gather(*(store.release("a", permit) for permit in given))
    assert told == [True, False] * 50
