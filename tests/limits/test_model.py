"""The scripts of rate limits against plain Python that remembers every promise."""

import random
from dataclasses import replace

import pytest

from sidecar.limits.model import Call, Outcome
from tests.support.limit_model import LIMITS, SETTINGS, Key
from tests.support.limits import WINDOWS, RedisTimeUs, S, make_limit
from tests.support.rooms import refuse_functions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store_url", "by"),
    [
        pytest.param("redis", "fcall", marks=pytest.mark.server),
        pytest.param("redis", "evalsha", marks=pytest.mark.server),
        ("memory", "evalsha"),  # scripts in memory never go by FCALL
    ],
    indirect=["store_url"],
)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("on_exceed", ["refuse", "pace"])
@pytest.mark.parametrize("algorithm", WINDOWS)
async def test_the_scripts_say_what_the_model_says(redis, algorithm, on_exceed, seed, by):
    """Every outcome, moment, rest and reset of a random run: calls in batches, with ids and
    without, given back, looked at, under limits and a clock that change."""
    if by == "evalsha":
        refuse_functions(redis)
    numbers, clock = random.Random(f"{algorithm} {on_exceed} {seed}"), RedisTimeUs()
    store = make_limit(redis, clock, algorithm, on_exceed=on_exceed, **SETTINGS)
    keys = {name: Key(algorithm, on_exceed == "pace") for name in "ab"}
    limits = dict(LIMITS)
    permits = []
    for step in range(150):
        clock.now += numbers.choice([0, 0, 1, 999, 100_000, 333_333, S // 2, S, -200_000, -7])
        asks = [
            Call(*map(numbers.choice, ("aab", (1, 1, 2, 3, 5), ("", "x", "y", f"n{step}"))))
            for _ in range(numbers.randint(0, 4))
        ]
        for ask, one in zip(asks, await store.acquire_each(asks), strict=True):
            made = one.permit.partition("~")[2]
            said = keys[ask.key].ask(ask, limits[ask.key], clock.now, made=made)
            assert (step, one) == (step, replace(said, permit=one.permit))
            is_named = ask.id != "" or said.outcome is Outcome.PACED
            assert bool(one.permit) == (is_named and said.is_allowed and said.limit >= 0)
            permits += [(ask.key, one.permit)] * bool(one.permit)
        for key in "ab":
            said = keys[key].ask(Call(key), limits[key], clock.now, looks=True)
            assert (step, await store.peek(key)) == (step, said)
        if permits and numbers.random() < 0.4:
            key, permit = numbers.choice(permits[-8:])
            cost, _, id_ = permit.partition("~")
            said = keys[key].release((int(cost), id_), clock.now)
            assert (step, await store.release(key, permit)) == (step, said)
        if numbers.random() < 0.1:
            key, limit = numbers.choice("ab"), numbers.choice([None, -1, 0, 1, 3, 9])
            await store.set_value(key, limit)
            limit = LIMITS[key] if limit is None else limit
            keys[key].set_limit(limits[key], limit, clock.now)
            limits[key] = limit
