"""Jobs that are submitted for later: held in the queue until they are due, whatever happens
meanwhile."""

import asyncio
import time

import pytest

from sidecar.jobs.model import IdempotencyKeyUsedError, State
from sidecar.jobs.worker import reconciler
from tests.jobs.bench import running, until
from tests.support.rooms import new_room_name

HOUR_MS = 3_600_000


async def views(here, *ids):
    return await here.jobs.view([await here.row(id_) for id_ in ids])


async def claimed(target):
    return [claim.id for claim in (await target.store.claim(10, target.settings)).claims]


@pytest.fixture
async def target(here):
    """A target whose clock is known."""
    target = await here.target(pending_ttl="1h", concurrency=10)
    await target.store.claim(0, target.settings)
    return target


async def test_it_is_called_when_it_is_due(here, target):
    """Not a millisecond before; until then it says when, and has no position."""
    due_ms = here.time() + 90_000
    id_ = await here.submit(target, run_at_ms=due_ms)
    [view] = await views(here, id_)
    assert (view.state, view.position, view.wait_s) == (State.PENDING, None, None)
    assert (view.run_ms, view.retry_ms) == (due_ms, None)
    here.time.now_ms = due_ms - 1
    assert await claimed(target) == []
    here.time.now_ms = due_ms
    assert await claimed(target) == [id_]


async def test_those_that_are_due_first_are_called_first(here, target):
    """As if they came when they are due: after who came before that, whatever they waited."""
    now_ms = here.time()
    ids = {name: await here.submit(target, **order) for name, order in {
        "third": {"run_at_ms": now_ms + 5000}, "first": {}, "second": {"delay_s": 2},
    }.items()}  # fmt: skip
    here.time.forward(9)
    last = await here.submit(target)
    assert await claimed(target) == [ids["first"], ids["second"], ids["third"], last]


async def test_a_time_in_the_past_is_now(here, target):
    id_ = await here.submit(target, run_at_ms=here.time() - HOUR_MS)
    assert (await here.row(id_)).not_before_ms is None
    assert await claimed(target) == [id_]


@pytest.mark.parametrize("hours", [-3, 3])
async def test_the_first_job_of_a_process_goes_by_the_clock_of_redis(here, hours):
    """Though this machine's clock is hours off, and no reply of Redis has told its time yet."""
    here.time.now_ms = round((time.time() + hours * 3600) * 1000)
    for seconds, due_s in ((60, 60), (-60, None)):
        target = await here.make(new_room_name(), pending_ttl="1h")
        assert not target.clock.is_known
        now_ms = here.time()
        row = await here.row(await here.submit(target, run_at_ms=now_ms + 1000 * seconds))
        assert row.not_before_ms == (None if due_s is None else now_ms + 1000 * due_s)
        expires_ms = now_ms + 1000 * (due_s or 0) + HOUR_MS
        assert row.expires_ms == pytest.approx(expires_ms, abs=60_000)


async def test_it_expires_after_its_time_not_after_its_submission(here, target):
    """`pending_ttl` counts from when it is due."""
    due_ms = here.time() + 2 * HOUR_MS
    id_ = await here.submit(target, run_at_ms=due_ms)
    assert (await here.row(id_)).expires_ms == due_ms + HOUR_MS
    here.time.forward(7201)
    await target.store.claim(0, target.settings)
    assert await here.reconciler.clean() == (0, 0)
    here.time.forward(3600)
    await target.store.claim(0, target.settings)
    assert await here.reconciler.clean() == (1, 0)
    assert (await here.row(id_)).state == State.EXPIRED


async def test_it_is_held_though_redis_is_emptied(here, target):
    """SQL knows when it is due. Jobs that come after the rebuild do not wait for it."""
    id_ = await here.submit(target, delay_s=60)
    await here.lose_line(target)
    other = await here.submit(target)
    assert await claimed(target) == [other]
    [view] = await views(here, id_)
    assert view.run_ms is not None
    here.time.forward(61)
    assert await claimed(target) == [other, id_], "the lock of the first has ended"


async def test_it_is_cancelled_and_tried_again_as_others(here, target):
    """A job that is tried again does not wait for the time of its submission."""
    id_ = await here.submit(target, delay_s=60)
    assert await here.jobs.cancel(id_, None) is State.CANCELLED
    here.time.forward(61)
    assert await claimed(target) == []
    again = await here.submit(target, delay_s=60)
    await here.jobs.cancel(again, None)
    await here.jobs.retry(again, None)
    assert await claimed(target) == [again]


async def test_a_key_names_a_job_and_its_time(here, target):
    """A submission that is sent again later has the same delay, and is the same job."""
    key = {"idempotency_key": "order-1"}
    id_ = await here.submit(target, delay_s=60, **key)
    here.time.forward(5)
    await target.store.claim(0, target.settings)
    assert await here.submit(target, delay_s=60, **key) == id_
    for other in ({}, {"delay_s": 61}, {"run_at_ms": here.time() + 55_000}):
        with pytest.raises(IdempotencyKeyUsedError):
            await here.submit(target, **other, **key)


async def test_it_counts_as_a_job_that_waits(here):
    """Against `max_pending`."""
    target = await here.target(max_pending=1)
    await here.submit(target, delay_s=60)
    assert await target.store.reserve("another", "", target.settings) is None


async def test_an_online_job_is_called_when_it_is_due(here):
    """And has its permit for as long as others."""
    target = await here.target(kinds=["online"], claim_window=5)
    await target.store.claim(0, target.settings)
    id_ = await here.submit(target, kind="online", delay_s=60)
    here.time.forward(61)
    reply = await target.store.claim(0, target.settings)
    await here.jobs.record_calls(target, reply.claims)
    [view] = await views(here, id_)
    assert (view.state, view.permit_expires_ms) == (State.CALLED, here.time() + 5000)


async def test_a_worker_with_nothing_to_do_learns_of_it(here, target):
    """It sleeps until the first one is due, and hears of one that is due sooner."""
    worker = here.worker(target)
    async with running(here.subscriber.run()), running(here.wake_ups.run()), running(worker.run()):
        await until(lambda: target.store.claims[1] > 0)
        await asyncio.sleep(0.05)
        claims = target.store.claims[1]
        await here.submit(target, delay_s=300)
        await until(lambda: target.store.claims[1] > claims)
        await asyncio.sleep(0.05)
        claims = target.store.claims[1]
        await here.submit(target, delay_s=200)
        await until(lambda: target.store.claims[1] > claims)
        await asyncio.sleep(0.05)
        claims = target.store.claims[1]
        await here.submit(target, delay_s=400)
        await asyncio.sleep(0.1)
        assert target.store.claims[1] == claims


async def test_a_reconciler_is_idle_until_it_is_due(here, target, monkeypatch):
    """It does not look each second for a job of tomorrow."""
    monkeypatch.setattr(reconciler, "CHECK_S", 0.01)
    await here.submit(target, delay_s=86_400)
    async with running(here.reconciler.run()):
        await until(lambda: target.store.claims[0] > 1)
        claims = target.store.claims[0]
        await asyncio.sleep(0.3)
        assert target.store.claims[0] <= claims + 1
