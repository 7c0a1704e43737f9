"""The keys that limits leave in Redis, and limits while Redis is unavailable."""

import asyncio
import itertools

import pytest

from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.limits.model import Call, Decision, Outcome
from sidecar.limits.redis_keys import redis_key
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import BATCH_LIMIT, LimitStore
from sidecar.storage.redis.breaker import TRIES, Breaker
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.scripts import RedisScripts
from tests.support.limits import ALL, MODES, S, key_ttls_ms, make_limit
from tests.support.processes import free_port
from tests.support.rooms import new_room_name


async def acquire_all(store, calls):
    """Decide on all calls. Raise the error of the first call without an answer."""
    for result in await store.acquire_each(calls):
        if isinstance(result, StoreError):
            raise result


async def test_time_is_the_stores_own(redis):
    """Times are Redis' own."""
    store = make_limit(redis, None, "sliding_window", limit=1)
    times = []
    for _ in range(3):
        seconds, microseconds = await redis.time()
        times += [seconds * S + microseconds, (await store.acquire(Call())).now_us]
    assert times == sorted(times)


@pytest.mark.parametrize(("algorithm", "on_exceed"), MODES)
async def test_a_key_lives_as_long_as_it_means_something(make, clock, algorithm, on_exceed):
    """A key lives as long as it is needed, and up to 10 s more."""
    store = make(algorithm, limit=2, on_exceed=on_exceed, max_wait=200, idempotency_window=500)
    clock.now += 5 * S
    asks = [Call("a", id="a"), *[Call("a")] * 3, Call("a", 2), Call("a"), Call("a", id="b")]
    decisions = await store.acquire_each(asks)
    if algorithm != "concurrency":
        freed = [await store.release("a", one.permit) for one in decisions[1:4]]
        for id_ in ["c", "", ""][: freed.count(True)]:  # earlier than what is there already
            decisions.append(await store.acquire(Call("a", id=id_)))
    named = [one.at_us for one in decisions if one.permit and "~~" not in one.permit]
    paced = [one.at_us for one in decisions if one.is_allowed and "~~" in one.permit]
    over = {
        algorithm: max(one.reset_us for one in decisions),
        f"{algorithm}.permits": max(named) + 500 * S,
        f"{algorithm}.free": max(paced, default=0),
        f"{algorithm}.booked": max(paced, default=0),
    }
    found = await key_ttls_ms(store)
    assert f"{algorithm}:a" in found
    for name, ms in found.items():
        needed_ms = (over[name.partition(":")[0]] - clock.now) / 1000
        assert needed_ms < ms <= needed_ms + 10_000, name


async def test_a_lease_that_was_shortened_ends_no_other(make, clock):
    """A shorter lease does not shorten permits from before."""
    long = make("concurrency", limit=9, lease=300)
    await long.acquire(Call("a"))
    short = make("concurrency", name=long._name, limit=9, lease=1)
    await short.acquire(Call("a"))
    assert (await key_ttls_ms(short))["concurrency:a"] > 300_000


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("sliding_window", {"algorithm": "sliding_window", "window": 1}),
        ("concurrency", {"algorithm": "concurrency", "lease": 1}),
        (
            "fixed_window.booked",
            {"algorithm": "fixed_window", "window": 1, "on_exceed": "pace", "max_wait": 1},
        ),
    ],
)
async def test_a_busy_key_keeps_no_more_than_it_needs(make, clock, kind, settings):
    """A busy key stays small."""
    store = make(limit=5, **settings)
    for _ in range(60):
        await store.acquire_each([Call("a")] * 9)
        clock.now += S // 5
    assert await store._redis.zcard(redis_key(store._name, "a", kind)) <= 10


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket"])
async def test_a_bucket_whose_limit_is_lowered_is_not_forgotten(make, clock, algorithm):
    """A bucket is kept until it is empty by the lower limit, set or configured. A higher limit, and
    an unused key, change nothing."""
    store = make(algorithm, limit=1, window=3600)
    await store.set_value("a", 3600)
    for _ in range(3):
        clock.now += S
        await store.acquire_each([Call("a", 1 if algorithm == "leaky_bucket" else 2)] * 2)
    quick = (await key_ttls_ms(store))[f"{algorithm}:a"]
    assert quick < 20_000
    await store.set_value("a", 1800)
    assert quick < (await key_ttls_ms(store))[f"{algorithm}:a"] < 2 * quick
    await store.set_value("a", None)
    refused = await store.acquire(Call("a"))
    assert refused.outcome is Outcome.REFUSED
    kept = (await key_ttls_ms(store))[f"{algorithm}:a"]
    assert kept > (refused.at_us - clock.now) / 1000 > 3_000_000
    for limit in (7200, 0, -1):
        await store.set_value("a", limit)
        assert abs((await key_ttls_ms(store))[f"{algorithm}:a"] - kept) < 5_000
        await store.set_value("b", limit)
    assert set(await key_ttls_ms(store)) == {f"{algorithm}:a", "values", "revisions", "digest"}


@pytest.mark.parametrize("algorithm", ALL)
async def test_a_rule_that_gets_another_algorithm_begins_anew(make, algorithm):
    """A limit with another algorithm starts anew."""
    old = make("fixed_window" if algorithm != "fixed_window" else "sliding_window", limit=1)
    await old.acquire(Call("a"))
    store = make(algorithm, name=old._name, limit=1)
    outcomes = [one.outcome for one in await store.acquire_each([Call("a")] * 2)]
    assert outcomes == [Outcome.GRANTED, Outcome.REFUSED]


@pytest.fixture
async def full(redis_socket):
    """Returns a client of a real Redis, and a function that makes it full."""
    client = connect(f"unix://{redis_socket}", timeout_s=5)
    yield client, lambda is_full: client.config_set("maxmemory", "1mb" if is_full else 0)
    await client.config_set("maxmemory", 0)
    await close(client)


@pytest.mark.parametrize(("algorithm", "on_exceed"), MODES)
async def test_a_full_store_counts_nothing(full, clock, algorithm, on_exceed):
    """A call that a full Redis refused has counted nothing."""
    client, fill = full
    store = make_limit(client, clock, algorithm, limit=1, on_exceed=on_exceed)
    await fill(True)
    with pytest.raises(StoreError, match="acquire: "):
        await acquire_all(store, [Call("a", id="a"), Call("b"), Call("a")])
    assert await key_ttls_ms(store) == {}
    await fill(False)
    assert (await store.acquire(Call("a"))).outcome is Outcome.GRANTED


def lose(store, *, replies, error=OSError("lost")):  # noqa: B008
    """Lose the replies of the next script calls that have these numbers."""
    send, numbers = store._scripts.send, itertools.count()

    async def send_and_lose(name, *args):
        reply = await send(name, *args)
        if name != "release" and next(numbers) in replies:
            raise error
        return reply

    store._scripts.send = send_and_lose


LOST = [
    ("concurrency", {"algorithm": "concurrency", "limit": 3}),
    ("leaky_bucket.booked", {"algorithm": "leaky_bucket", "on_exceed": "pace", "window": 1,
                             "limit": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rule"), LOST)
@pytest.mark.parametrize("error", [OSError("lost"), asyncio.CancelledError()])
async def test_what_nobody_was_told_of_is_given_back(make, kind, rule, error):
    """Permits with lost replies are given back when Redis answers again, in two tries if needed. A
    call with the caller's own id stays."""
    store = make(**rule)
    key = redis_key(store._name, "a", kind)
    await store.acquire(Call("a", id="first"))
    lose(store, replies={0}, error=error)
    with pytest.raises((StoreError, asyncio.CancelledError)):
        await acquire_all(store, [Call("a"), Call("a"), Call("b")])
    assert await store._redis.zcard(key) >= 2
    send = store._scripts.send

    async def fail_once(name, *args):
        if name == "release":
            store._scripts.send = send
            raise OSError
        return await send(name, *args)

    store._scripts.send = fail_once
    for _ in range(2):
        await store.peek("a")
        await store._release_task
    assert await store._redis.zcard(key) == (1 if kind == "concurrency" else 0)
    assert not store._lost_permits
    if kind == "concurrency":
        assert await store.release("a", "1~first")
    else:
        again = await store.acquire_each([Call("a")] * 2)
        assert [one.wait_s for one in again] == [1, 2]


async def test_calls_that_were_answered_keep_their_answers(make):
    """If Redis fails half way through many calls, answered ones keep their decisions, and the rest
    is not sent."""
    for rule, first in ((LOST[0][1], BATCH_LIMIT), (LOST[1][1], BATCH_LIMIT)):
        store = make(**{**rule, "limit": 100})
        lose(store, replies={1, 2})
        told = await store.acquire_each([Call("a")] * (3 * BATCH_LIMIT))
        assert all(isinstance(one, Decision) for one in told[:first])
        assert all(isinstance(one, StoreError) for one in told[first:])
        assert len(store._lost_permits) == BATCH_LIMIT
    store = make("sliding_window", limit=1000)
    lose(store, replies={1})
    told = await asyncio.gather(
        *(store.acquire(Call("a", cost=600)) for _ in range(3)), return_exceptions=True
    )
    assert isinstance(told[0], Decision)
    assert all(isinstance(one, StoreError) for one in told[1:])


def test_a_try_that_lasts_is_the_only_one(monkeypatch):
    """While one try lasts the breaker allows no other, also with a long timeout."""
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for timeout_s, pause_s in ((0.2, 1), (1, 1), (5, 5)):
        breaker = Breaker(timeout_s)
        for _ in range(TRIES):
            breaker.record_attempt()
            breaker.record_failure()
        now += pause_s - 0.01
        assert breaker.is_refusing
        now += 0.02
        assert not breaker.is_refusing
        breaker.record_attempt()
        assert breaker.is_refusing
        breaker.record_success()
        assert not breaker.is_refusing


async def test_a_store_that_is_away_is_asked_once_a_second(redis_socket):
    """An unavailable Redis gets one try a second; other calls fail at once until a try succeeds."""
    nobody = connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1)
    there = connect(f"unix://{redis_socket}", timeout_s=1)
    rule = LimitSettings(algorithm="token_bucket", window=1, limit=1)
    store = LimitStore(nobody, new_room_name(), settings=rule, timeout_s=3)
    for _ in range(TRIES):
        assert not store.is_away
        with pytest.raises(StoreError, match="acquire: "):
            await store.acquire(Call())
    assert store.is_away
    store._scripts.send = RedisScripts(there, "limits").send
    calls = [
        store.acquire(Call()),
        store.peek(""),
        store.release("", "1~a"),
        acquire_all(store, [Call()]),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError):
            await call
    store._scripts.breaker._tried_s -= 1
    with pytest.raises(StoreUnavailableError):
        await store.acquire(Call())  # the one of a second ago may still be on its way
    store._scripts.breaker._tried_s -= 2
    assert (await store.acquire(Call())).outcome is Outcome.GRANTED
    assert not store.is_away
    await close(nobody)
    await close(there)
