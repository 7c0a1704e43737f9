"""What a decision costs, counted and not timed: script calls, and the commands within them, with
bounds a little above what they are now."""

import asyncio

import pytest

from sidecar.limits.model import Call
from sidecar.storage.redis.connect import close, connect
from tests.support.limits import RedisTimeUs, make_limit

#: A batch of distinct keys: of the rule once, of each key so many.
COMMANDS = {
    "fixed_window": 2, "sliding_window": 3, "token_bucket": 2, "leaky_bucket": 2, "concurrency": 5,
}  # fmt: skip


@pytest.fixture
async def redis(redis_socket):
    client = connect(f"unix://{redis_socket}", timeout_s=5)
    yield client
    await close(client)


async def commands(redis) -> dict[str, int]:
    """Those that Redis has carried out, within scripts too."""
    stats = await redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): entry["calls"] for name, entry in stats.items()}


async def counted(redis, work) -> dict[str, int]:
    before = await commands(redis)
    await work()
    after = await commands(redis)
    made = {name: number - before.get(name, 0) for name, number in after.items()}
    return {name: number for name, number in made.items() if number and name != "info"}


@pytest.mark.parametrize("algorithm", COMMANDS)
async def test_a_batch_is_one_script_and_few_commands(redis, algorithm):
    """128 at a time, whoever asks: one call after the other, or a list."""
    store = make_limit(redis, RedisTimeUs(), algorithm, limit=1000)
    asks = [Call(f"customer-{n}") for n in range(128)]
    await store.acquire_each(asks)
    made = await counted(redis, lambda: store.acquire_each(asks))
    assert made.pop("fcall") == 1
    assert sum(made.values()) <= 2 + 128 * COMMANDS[algorithm]
    made = await counted(redis, lambda: asyncio.gather(*map(store.acquire, asks)))
    assert made["fcall"] <= 2


async def test_calls_of_one_key_share_its_commands(redis):
    """Refused or granted: its state is read once, and written once."""
    store = make_limit(redis, RedisTimeUs(), "token_bucket", limit=20)
    await store.acquire(Call("bank"))
    made = await counted(redis, lambda: store.acquire_each([Call("bank")] * 128))
    assert sum(made.values()) <= 4
