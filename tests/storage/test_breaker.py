"""A Redis that does not answer gets no calls, except for probes that look whether it is back."""

import asyncio

import pytest

from sidecar.kit.errors import StoreError
from sidecar.storage.redis.breaker import TRIES
from sidecar.storage.redis.connect import close, connect
from sidecar.storage.redis.scripts import RedisScripts
from sidecar.visitors.tokens import new_visitor
from tests.storage.products import open_room
from tests.support.processes import free_port


@pytest.fixture
async def fails(redis_socket):
    """Yield a store whose server is unavailable, and a function that makes it available."""
    nobody = connect(f"redis://127.0.0.1:{free_port()}", timeout_s=1)
    there = connect(f"unix://{redis_socket}", timeout_s=1)
    store = open_room(nobody, timeout_s=1)

    def back():
        store._scripts.send = RedisScripts(there, "rooms").send

    yield store, back
    await close(nobody)
    await close(there)


async def test_after_a_few_failures_no_call_is_sent(fails):
    store, _ = fails
    for _ in range(TRIES):
        assert not store.is_away
        with pytest.raises(StoreError, match="enter: "):
            await store.enter(new_visitor())
    assert store.is_away
    with pytest.raises(StoreError, match="enter: Redis is unavailable"):
        await store.enter(new_visitor())


async def test_the_snapshot_is_sent_all_the_same_and_closes_the_breaker(fails):
    store, back = fails
    for _ in range(TRIES):
        with pytest.raises(StoreError):
            await store.snapshot()
    back()
    with pytest.raises(StoreError, match="Redis is unavailable"):
        await store.enter(new_visitor())
    await store.snapshot()
    assert not store.is_away
    await store.enter(new_visitor())


async def test_a_success_between_failures_keeps_it_closed(fails, redis_socket):
    store, back = fails
    for _ in range(TRIES - 1):
        with pytest.raises(StoreError):
            await store.snapshot()
    away = store._scripts.send
    back()
    await store.snapshot()
    store._scripts.send = away
    with pytest.raises(StoreError):
        await store.snapshot()
    assert not store.is_away


async def test_a_failed_batch_is_one_failure(fails):
    store, _ = fails
    replies = await asyncio.gather(
        *(store.enter(new_visitor()) for _ in range(50)), return_exceptions=True
    )
    assert all(isinstance(reply, StoreError) for reply in replies)
    assert not store.is_away


async def test_unreported_admissions_are_reported_until_redis_answers(fails):
    """Visitors were admitted meanwhile. The first reply starts the recovery, and ends reports."""
    store, back = fails
    store.mark_unreported_admissions(1)
    with pytest.raises(StoreError):
        await store.snapshot()
    back()
    first = await store.snapshot()
    assert first.recovery_stage == 2
    assert (await store.snapshot()).recovers_until_ms == first.recovers_until_ms
    assert store._unreported_since_ms is None
