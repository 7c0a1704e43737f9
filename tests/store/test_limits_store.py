"""What rate limits leave in the store, and what they do without it."""

from __future__ import annotations

from functools import partial

import pytest

from sidecar.base.errors import StoreAwayError, StoreError
from sidecar.base.limits import Ask, LimitSettings, Outcome
from sidecar.store.breaker import TRIES
from sidecar.store.connect import close, connect
from sidecar.store.keys import limit_key
from sidecar.store.limits import LimitStore
from tests.conftest import new_room_name
from tests.processes import free_port
from tests.store.limits import ALL, MODES, S, TurnedClock, keys_of, make_limit


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


@pytest.mark.parametrize(("algorithm", "on_exceed"), MODES)
async def test_a_key_lives_as_long_as_it_means_something(make, clock, algorithm, on_exceed):
    """And up to 10 s more, wherever its clock stands."""
    store = make(algorithm, limit=2, on_exceed=on_exceed, max_wait=200, idempotency_window=500)
    clock.now += 5 * S
    asks = [Ask("a", id="a"), *[Ask("a")] * 3, Ask("a", 2), Ask("a"), Ask("a", id="b")]
    decisions = await store.acquire_all(asks)
    if algorithm != "concurrency":
        freed = [await store.release("a", one.permit) for one in decisions[1:4]]
        for id_ in ["c", "", ""][: freed.count(True)]:  # earlier than what is there already
            decisions.append(await store.acquire(Ask("a", id=id_)))
    named = [one.at_us for one in decisions if one.permit and "~~" not in one.permit]
    paced = [one.at_us for one in decisions if one.is_allowed and "~~" in one.permit]
    over = {
        algorithm: max(one.reset_us for one in decisions),
        "permits": max(named) + 500 * S,
        "free": max(paced, default=0),
        "booked": max(paced, default=0),
    }
    found = await keys_of(store)
    assert f"{algorithm}:a" in found
    for name, ms in found.items():
        needed_ms = (over[name.partition(":")[0]] - clock.now) / 1000
        assert needed_ms < ms <= needed_ms + 10_000, name


async def test_a_lease_that_was_shortened_ends_no_other(make, clock):
    """Those that were given before last as long as was said."""
    long = make("concurrency", limit=9, lease=300)
    await long.acquire(Ask("a"))
    short = make("concurrency", name=long._name, limit=9, lease=1)
    await short.acquire(Ask("a"))
    assert (await keys_of(short))["concurrency:a"] > 300_000


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sliding_window", {"algorithm": "sliding_window", "window": 1}),
        ("concurrency", {"algorithm": "concurrency", "lease": 1}),
        ("booked", {"algorithm": "fixed_window", "window": 1, "on_exceed": "pace", "max_wait": 1}),
    ],
)
async def test_a_busy_key_keeps_no_more_than_it_needs(make, clock, kind, settings):
    """However long it is busy."""
    store = make(limit=5, **settings)
    for _ in range(60):
        await store.acquire_all([Ask("a")] * 9)
        clock.now += S // 5
    assert await store._redis.zcard(limit_key(store._name, "a", kind)) <= 10


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


@pytest.mark.parametrize(("algorithm", "on_exceed"), MODES)
async def test_a_full_store_counts_nothing(full, clock, algorithm, on_exceed):
    """A call that could not be written has taken nothing from those that come later."""
    client, fill = full
    store = make_limit(client, clock, algorithm, limit=1, on_exceed=on_exceed)
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
    store._breaker._tried_s -= 1
    assert (await store.acquire(Ask())).outcome is Outcome.GRANTED
    assert not store.is_away
    await close(nobody)
    await close(there)
