"""Changes for which somebody waits: a job has ended, or was called."""

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

from sidecar.jobs.changes import JobChanges
from sidecar.jobs.endpoints import long_poll
from sidecar.jobs.endpoints.long_poll import JobPolls
from sidecar.jobs.model import State
from sidecar.jobs.redis_keys import CHANGES_CHANNEL
from sidecar.jobs.service import JobView
from sidecar.storage.redis.pub_sub import Subscriber
from tests.jobs.bench import running, until

#: A request whose client stays connected.
REQUEST = SimpleNamespace(transport=SimpleNamespace(is_closing=lambda: False))


async def call(here, target):
    """Call the first job of a target. Return the claim."""
    [claim] = (await target.store.claim(1, target.settings)).claims
    await here.store.attempts.start([(claim.id, claim.fence)], at_ms=here.time())
    return claim


async def wait(here, id_, *others):
    """Two requests that wait for up to a minute: one for a job, one also for others."""
    polls = JobPolls(here.jobs)
    view = JobView(await here.row(id_), State.PENDING)
    waits = asyncio.create_task(polls.wait(REQUEST, view, 60))
    several = asyncio.create_task(polls.wait_for_any(REQUEST, [*others, id_], 60))
    await until(lambda: len(polls) == 2)
    return waits, several


async def complete(here, target, _):
    claim = await call(here, target)
    await here.jobs.finish(target.make_ending(claim.id, claim.fence, State.COMPLETED))


async def cancel(here, _, id_):
    await here.jobs.cancel(id_, None)


async def cancel_a_call(here, target, id_):
    """No worker has it any more."""
    claim = await call(here, target)
    await target.store.drop([(claim.id, claim.fence)], target.settings)
    await here.jobs.cancel(id_, None)


async def expire(here, target, _):
    here.time.forward(2 * 3600)
    await target.store.inspect([], target.settings)  # the time of Redis is known
    await here.reconciler.clean()


async def call_online(here, target, _):
    await here.reconciler._maintain(target)


async def miss_the_call(here, target, _):
    await here.reconciler._maintain(target)
    here.time.forward(3600)
    await here.reconciler._maintain(target)


async def work(here, target, _):
    worker = here.worker(target)
    async with running(worker.run()):
        here.egress.over.set()
        await until(lambda: here.egress.called and not len(worker))


@pytest.mark.parametrize(
    ("change", "settings"),
    [
        (complete, {}), (work, {}), (cancel, {}), (cancel_a_call, {"abort": True}),
        (expire, {"pending_ttl": "1h"}), (call_online, {"kinds": ["online"]}),
        (miss_the_call, {"kinds": ["online"]}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
async def test_whoever_waits_is_woken(here, monkeypatch, change, settings):
    """By whatever ends a job or calls it: no look is due for a minute."""
    monkeypatch.setattr(long_poll, "POLL_S", 60)
    monkeypatch.setattr(long_poll, "POLL_SEVERAL_S", 60)
    target = await here.target(**settings)
    id_ = await here.submit(target, kind=target.settings.kinds[0])
    other = await here.submit(await here.target())
    waits, several = await wait(here, id_, other)
    await change(here, target, id_)
    async with asyncio.timeout(20):
        assert (await waits).state in long_poll.AWAITED_STATES
        assert id_ in {view.job.id for view in await several}


async def test_other_replicas_are_told(here):
    """Of many jobs with one message."""
    told, heard = (JobChanges(here.redis, timeout_s=5) for _ in range(2))
    subscriber = Subscriber(here.redis)
    messages = []
    subscriber.listen(CHANGES_CHANNEL, lambda text: (messages.append(text), heard.wake(text)))
    ids = [f"job-{number}" for number in range(30)]
    events = [asyncio.Event() for _ in ids]
    async with running(subscriber.run()):
        await until(lambda: messages == [""])
        with contextlib.ExitStack() as stack:
            for id_, event in zip(ids, events, strict=True):
                stack.enter_context(heard.waiters.listen(id_, event))
            told.announce(*ids)
            async with asyncio.timeout(20):
                await asyncio.gather(*(event.wait() for event in events))
        assert messages == ["", " ".join(ids)]
    assert len(heard.waiters) == 0


async def test_a_change_without_a_message_is_found(here, monkeypatch):
    """By the look that is due: another replica ended the job, and its message was lost."""
    monkeypatch.setattr(long_poll, "POLL_S", 0.05)
    monkeypatch.setattr(long_poll, "POLL_SEVERAL_S", 0.05)
    target = await here.target()
    id_ = await here.submit(target)
    waits, several = await wait(here, id_)
    await here.store.jobs.cancel(id_, at_ms=here.time(), expires_ms=here.time() + 1000)
    async with asyncio.timeout(20):
        assert (await waits).state == State.CANCELLED
        assert [view.job.id for view in await several] == [id_]


async def test_a_wait_ends(here):
    """After its time, with the job as it is."""
    target = await here.target()
    id_ = await here.submit(target)
    polls = JobPolls(here.jobs)
    view = JobView(await here.row(id_), State.PENDING)
    assert (await polls.wait(REQUEST, view, 0.01)).state == State.PENDING
    assert await polls.wait_for_any(REQUEST, [id_], 0.01) == []
