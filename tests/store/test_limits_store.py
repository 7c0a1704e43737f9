"""What rate limits leave in the store, and what they do without it."""

from __future__ import annotations

from functools import partial

import pytest

from sidecar.base.errors import StoreAwayError, StoreError
from sidecar.base.limits import Ask, LimitSettings, Outcome
from sidecar.store.breaker import TRIES
from sidecar.store.connect import close, connect
from sidecar.store.limits import LimitStore
from tests.conftest import new_room_name
from tests.processes import free_port
from tests.store.limits import ALL, WINDOWS, S, TurnedClock, keys_of, make_limit


@pytest.fixture
def clock():
    return TurnedClock()


@pytest.fixture
def make(redis, clock):
    """Makes the store of a new rule; settings by name."""
    return partial(make_limit, redis, clock)


async def test_time_is_the_stores_own(redis):
    """Where no test says what time it is."""
    rule = LimitSettings(algorithm="sliding_window", window=1, limit=1)
    store = LimitStore(redis, new_room_name(), settings=rule, timeout_s=5)
    times = []
    for _ in range(3):
        seconds, microseconds = await redis.time()
        times += [seconds * S + microseconds, (await store.acquire(Ask())).now_us]
    assert times == sorted(times)


@pytest.mark.parametrize("on_exceed", ["refuse", "pace"])
@pytest.mark.parametrize("algorithm", ALL)
async def test_a_key_lives_as_long_as_it_means_something(make, clock, algorithm, on_exceed):
    """And up to 10 s more, wherever its clock stands."""
    if algorithm == "concurrency" and on_exceed == "pace":
        return
    store = make(algorithm, limit=2, on_exceed=on_exceed, max_wait=200, idempotency_window=500)
    clock.now += 5 * S
    asks = [Ask("a", id="a"), Ask("a"), Ask("a", 2), Ask("a", id="b"), Ask("a")]
    decisions = await store.acquire_all(asks)
    paced = [one.at_us for one in decisions if one.outcome is Outcome.PACED]
    named = [one.at_us for one in decisions if "~~" not in one.permit and one.permit]
    for one in decisions:
        await store.release("a", one.permit)
    over = {
        algorithm: max(one.reset_us for one in decisions),
        "permits": max(named, default=0) + 500 * S,
        "free": max(paced, default=0),
        "booked": max(paced, default=0),
    }
    found = await keys_of(store)
    assert (len(found) > 0) == (algorithm != "concurrency")
    for name, ms in found.items():
        needed_ms = (over[name.partition(":")[0]] - clock.now) / 1000
        assert needed_ms < ms <= needed_ms + 10_000, name


async def test_a_log_keeps_what_its_window_needs(make, clock):
    """However long a key is busy."""
    store = make("sliding_window", window=1, limit=5)
    for _ in range(60):
        await store.acquire_all([Ask("a")] * 9)
        clock.now += S // 5
    [log] = [name async for name in store._redis.scan_iter(f"*{store._name}*")]
    assert await store._redis.zcard(log) <= 10


@pytest.mark.parametrize("algorithm", ALL)
async def test_a_rule_that_gets_another_algorithm_begins_anew(make, algorithm):
    """What the old one left is in nobody's way."""
    old = make("fixed_window" if algorithm != "fixed_window" else "sliding_window", limit=1)
    await old.acquire(Ask("a"))
    store = make(algorithm, name=old._name, limit=1)
    outcomes = [one.outcome for one in await store.acquire_all([Ask("a")] * 2)]
    assert outcomes == [Outcome.GRANTED, Outcome.REFUSED]


@pytest.fixture
async def full(redis_socket):
    """A client of a real server, that can be made full."""
    client = connect(f"unix://{redis_socket}", timeout_s=5)
    yield client, lambda is_full: client.config_set("maxmemory", "1mb" if is_full else 0)
    await client.config_set("maxmemory", 0)
    await close(client)


@pytest.mark.parametrize("on_exceed", ["refuse", "pace"])
@pytest.mark.parametrize("algorithm", WINDOWS)
async def test_a_full_store_counts_nothing(full, algorithm, on_exceed):
    """A call that could not be written has taken nothing from those that come later."""
    client, fill = full
    rule = LimitSettings(algorithm=algorithm, window=60, limit=1, on_exceed=on_exceed)
    store = LimitStore(client, new_room_name(), settings=rule, now_us=TurnedClock(), timeout_s=5)
    await fill(True)
    with pytest.raises(StoreError, match="acquire: "):
        await store.acquire_all([Ask("a", id="a"), Ask("b"), Ask("a")])
    assert await keys_of(store) == {}
    await fill(False)
    assert (await store.acquire(Ask("a"))).outcome is Outcome.GRANTED


async def test_a_store_that_is_away_is_asked_once_a_second(redis_socket):
    """The others are told at once; the first answer brings it back for all."""
    nobody = connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1)
    there = connect(f"unix://{redis_socket}", timeout_s=1)
    rule = LimitSettings(algorithm="token_bucket", window=1, limit=1)
    store = LimitStore(nobody, new_room_name(), settings=rule)
    for _ in range(TRIES):
        assert not store.is_away
        with pytest.raises(StoreError, match="acquire: "):
            await store.acquire(Ask())
    assert store.is_away
    store._script.registered_client = there
    calls = [
        store.acquire(Ask()),
        store.look(""),
        store.release("", "1~a"),
        store.acquire_all([Ask()]),
    ]
    for call in calls:
        with pytest.raises(StoreAwayError):
            await call
    store._tried_at -= 1
    assert (await store.acquire(Ask())).outcome is Outcome.GRANTED
    assert not store.is_away
    await close(nobody)
    await close(there)
