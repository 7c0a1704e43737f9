"""Workers and reconcilers that have nothing to do: what they send to Redis, and how they hear of
what there is to do although the news of it was lost."""

import asyncio

import pytest

from sidecar.jobs.model import QueueEntry, State
from sidecar.jobs.redis_keys import JOBS_CHANNEL
from sidecar.jobs.worker import reconciler
from sidecar.jobs.worker.queue_rebuild import make_restored_call
from sidecar.jobs.worker.target_worker import WorkerPool
from sidecar.storage.redis.pub_sub import publish
from tests.jobs.bench import running, until
from tests.support.jobs import job

TARGETS = 20


def runner(here):
    return WorkerPool(here.jobs, here.wake_ups, here.egress, max_calls=5)


async def test_an_idle_worker_leaves_redis_alone(here, sent):
    """With twenty targets it sent some sixty commands a second; now one every ten seconds, of all
    targets."""
    targets = [await here.target() for _ in range(TARGETS)]
    stop = asyncio.Event()
    async with (
        running(here.subscriber.run()),
        running(here.wake_ups.run()),
        running(here.reconciler.run()),
        running(runner(here).run(stop)),
    ):
        await until(lambda: all(min(target.store.claims) > 0 for target in targets))
        await until(lambda: len(here.reconciler.idle_targets) == TARGETS)
        await here.wake_ups.poll()  # the first one loads the script
        await asyncio.sleep(0.2)
        sent.clear()
        await asyncio.sleep(2.5)
        assert len(sent) <= 2
        sent.clear()
        await here.wake_ups.poll()
        assert len(sent) == 1
        stop.set()


async def test_a_job_without_news_is_found_by_the_look_at_all_targets(here):
    """Nobody listens to the news here. A worker that has nothing to do looks no sooner."""
    target, other = await here.target(), await here.target()
    worker = here.worker(target)
    kept = here.wake_ups.listen(other.name)
    async with running(worker.run()):
        await until(lambda: target.store.claims[1] == 1)
        await asyncio.sleep(0.05)
        id_ = await here.submit(target)
        await asyncio.sleep(0.05)
        assert (here.egress.called, target.store.claims[1]) == ([], 1)
        await here.wake_ups.poll()
        await until(lambda: here.egress.called == [id_])
        assert not kept.wake_event.is_set()
        here.egress.over.set()
        await until(lambda: not len(worker))
    assert (await here.row(id_)).state == State.COMPLETED


async def test_a_queue_that_was_lost_while_nothing_happened_is_found(here):
    """Redis was emptied, and nobody was told."""
    target = await here.target()
    listener = here.wake_ups.listen(target.name)
    await here.wake_ups.poll()
    assert not listener.wake_event.is_set()
    keys = [key async for key in here.redis.scan_iter(match=f"*{{target:{target.name}}}*")]
    await here.redis.delete(*keys)
    await here.wake_ups.poll()
    assert listener.wake_event.is_set()


async def test_the_look_at_all_targets_notes_that_a_worker_asks(here):
    """Where it makes the calls; a replica, which only keeps the queue, does not."""
    asked, kept = await here.target(), await here.target()
    worker, listener = here.worker(asked), here.wake_ups.listen(kept.name)
    await here.wake_ups.poll()
    assert (await here.line(asked)).runner_ms == here.time()
    assert (await here.line(kept)).runner_ms is None
    assert (len(worker), listener.is_worker) == (0, False)


@pytest.mark.parametrize(
    "change",
    [
        lambda target, _: target.store.add([QueueEntry("a", 1)], target.settings),
        lambda target, here: target.store.add(
            [QueueEntry("a", 1, not_before_ms=here.time() + 60_000)], target.settings
        ),
        lambda target, _: target.store.restore(
            [make_restored_call(job(kind="online"), target.settings)]
        ),
    ],
    ids=["it waits", "it waits for its next try", "it is called"],
)
async def test_whatever_there_is_to_do_is_seen(here, change):
    """By one look at all targets."""
    target = await here.target()
    listener = here.wake_ups.listen(target.name)
    await change(target, here)
    await here.wake_ups.poll()
    assert listener.wake_event.is_set()


async def test_a_reconciler_that_finds_something_looks_again_soon(here, monkeypatch):
    """Each second, until there is nothing any more."""
    monkeypatch.setattr(reconciler, "CHECK_S", 0.01)
    target = await here.target()
    async with running(here.reconciler._maintain_forever(target)):
        await until(lambda: target.name in here.reconciler.idle_targets)
        count = target.store.claims[0]
        await asyncio.sleep(0.1)
        assert target.store.claims[0] == count
        id_ = await here.submit(target)
        here.wake_ups.wake(target.name)
        await until(lambda: target.store.claims[0] > count + 3)
        assert target.name not in here.reconciler.idle_targets
        await here.jobs.cancel(id_, None)
        await until(lambda: target.name in here.reconciler.idle_targets)


async def test_an_idle_target_whose_jobs_no_queue_knows_is_reconciled(here, monkeypatch):
    """Only it: of the others the database is asked all at once."""
    monkeypatch.setattr(reconciler, "RECONCILE_S", 0.01)
    others, target = [await here.target() for _ in range(3)], await here.target()
    here.reconciler.idle_targets = {one.name for one in (*others, target)}
    id_ = await here.submit(target)
    await target.store.remove(id_)
    await target.store.claim(0, target.settings)
    here.time.forward(60)
    await target.store.claim(0, target.settings)
    async with running(here.reconciler._reconcile_forever()):
        while not (await here.line(target)).waiting:
            await asyncio.sleep(0.01)
    keys = [key async for key in here.redis.scan_iter(match="*:reconciling")]
    for one in others:
        assert not any(one.name in key.decode() for key in keys)


# Settings -----------------------------------------------------------------------------------------


async def test_a_change_of_settings_is_followed_at_once(here):
    """By those who are told of it, which is whoever hears the news."""
    target = await here.target()
    assert here.changed == [target.name]
    async with running(here.subscriber.run()), running(here.reconciler._refresh_forever()):
        await until(lambda: target.store.claims[0] > 0)
        await here.store.targets.put(target.name, '{"url": "http://other.example/"}', here.time())
        await publish(here.redis, JOBS_CHANNEL, f"settings {target.name}", timeout_s=5)
        await until(lambda: target.settings.url == "http://other.example/")
    for _, task in here.reconciler._tasks.values():
        task.cancel()


async def test_everybody_is_told_of_a_change(here):
    """Also of a target that is gone."""
    target = await here.target()
    await here.targets.change(target.name, {"concurrency": 7})
    await here.targets.restore(target.name)
    assert here.changed == [target.name] * 3
