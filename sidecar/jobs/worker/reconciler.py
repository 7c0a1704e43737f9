"""Keeps Redis in step with SQL: rebuilds queues that Redis lost, calls online jobs, adds and
removes jobs that only one of the two has, ends jobs that waited too long, and removes old ones.
Every replica and worker process has a reconciler; where it matters, a leader lease picks one of
them."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

import structlog

from sidecar.jobs.model import Ending, Job, State, ms
from sidecar.jobs.redis_keys import target_key
from sidecar.jobs.service import Jobs
from sidecar.jobs.targets import Target
from sidecar.jobs.wake_ups import IDLE_S, WakeUps
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.tasks import wait_for
from sidecar.storage.redis.leader_lease import LeaderLease

#: Between two looks, seconds: at the settings, without a wake-up; at a queue where something
#: happens by itself; and at one where only the metrics change.
REFRESH_S = 10.0
LOOK_S = 1.0
GAUGES_S = 5.0
#: Seconds between two comparisons of Redis with SQL. A job that only SQL has for longer is put in
#: Redis: the replica that took the job has died, or Redis was unavailable.
RECONCILE_S = 20.0
#: Between two removals, where something waits or runs, and where nothing does.
CLEAN_S, IDLE_CLEAN_S = 5.0, 30.0
#: The pause before a rebuild, seconds: a worker that just claimed jobs writes that first.
SETTLE_S = 0.5
#: Rows that are read, and jobs that are added or removed, at a time.
PAGE = 1000
BATCH = 500
#: How long a leader lease lasts unless it is renewed, ms.
LEASE_MS = 15_000

log = structlog.get_logger()


class Reconciler:
    """The reconciler of one process. `lease` creates its leader lease for a Redis key."""

    def __init__(self, jobs: Jobs, wake_ups: WakeUps, lease: Callable[[str], LeaderLease]) -> None:
        self._jobs = jobs
        self._rows = jobs.store.jobs
        self._attempts = jobs.store.attempts
        self._wake_ups = wake_ups
        self._lease = lease
        self._tasks: dict[str, tuple[Target, asyncio.Task[None]]] = {}
        #: Targets with no job that waits or runs, by the last look.
        self.idle: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, runs, or is removed soon."""
        return all(
            target.name in self.idle and not target.settings.delete_after_read
            for target in self._jobs.targets
        )

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._refresh_forever())
                group.create_task(self._reconcile_forever())
                group.create_task(self._clean_forever())
        finally:
            for _, task in self._tasks.values():
                task.cancel()

    async def _refresh_forever(self) -> None:
        """Keep a task for each target, also for those that are created at run time."""
        while True:
            self._wake_ups.settings_changed.clear()
            with contextlib.suppress(DatabaseError):
                for name in await self._jobs.targets.refresh():
                    self._wake_ups.wake(name)
            targets = {target.name: target for target in self._jobs.targets}
            for name, (target, task) in list(self._tasks.items()):
                if targets.get(name) is not target or task.done():
                    task.cancel()
                    self.idle.discard(name)
                    self._jobs.metrics.targets.forget(name)
                    del self._tasks[name]
            for name in targets.keys() - self._tasks.keys():
                task = asyncio.create_task(self._keep_forever(targets[name]))
                self._tasks[name] = targets[name], task
            await wait_for(self._wake_ups.settings_changed, REFRESH_S)

    # One target -------------------------------------------------------------------------------

    async def _keep_forever(self, target: Target) -> None:
        listener = self._wake_ups.listen(target.name)
        while True:
            rest_s = LOOK_S
            listener.woken.clear()
            with _logged("queue_not_kept", target=target.name):
                rest_s = await self._look_after(target)
            if rest_s == LOOK_S and "online" not in target.settings.kinds:
                await asyncio.sleep(rest_s)  # soon enough: workers make the calls
            else:
                await wait_for(listener.woken, rest_s)

    async def _look_after(self, target: Target) -> float:
        """Look after a target's queue. Return how long to rest, in seconds."""
        claimed = await target.store.claim(0, target.settings)
        if not claimed.is_ready:
            if not await self._leads(target, "rebuilding"):
                return LOOK_S
            await self.rebuild(target, born_us=claimed.born_us)
            return 0.05
        await self._jobs.called(target, claimed.claims)
        ended = await target.store.ended()
        for id_, why, at_ms in ended:
            await self._end(target, id_, why, at_ms)
        await target.store.forget(ended)
        state, _ = await target.store.look([], target.settings)
        self._jobs.metrics.targets.update(target.name, target.settings, state)
        if claimed.next_s is None and state.is_idle:
            self.idle.add(target.name)
            return GAUGES_S if state.calls_in_window or state.breaker == "open" else IDLE_S
        self.idle.discard(target.name)
        if claimed.next_s is None or "online" not in target.settings.kinds:
            return LOOK_S
        return min(LOOK_S, max(0.005, claimed.next_s))

    async def _end(self, target: Target, id_: str, why: str, at_ms: int) -> None:
        """End an online job whose permit was not used, or whose call took too long."""
        job = await self._rows.find(id_)
        if job is None or job.is_ended:
            return
        state, error = State.COMPLETED, "it did not say when it was over"
        if why == "unused":
            state, error = State.EXPIRED, "nobody used the permit"
        kept_ms = at_ms + ms(target.settings.result_ttl)
        await self._attempts.finish(Ending(id_, job.fence, state, at_ms, kept_ms, error))
        self._jobs.metrics.jobs.labels(target.name, state).inc()

    async def rebuild(self, target: Target, *, born_us: int) -> None:
        """Rebuild a queue after Redis was emptied, or before its first use: the jobs that wait, in
        their order, and those that are being called, whose workers may live. Until that is done
        nothing is called, and then nothing for as long as the rate may be used up."""
        began = time.monotonic()
        settings = target.settings
        running = await self._attempts.running(target.name)
        if running or await self._attempts.waiting(target.name, None, 1):
            await asyncio.sleep(SETTLE_S)
        held = await self._hold_calls(target, await self._attempts.running(target.name))
        count = await self._enqueue(target)
        last_ms = await self._attempts.last_started_ms(target.name)
        held |= await self._hold_calls(
            target, await self._attempts.running(target.name)
        )  # begun since
        wait_ms = 0
        if last_ms is not None and settings.rate is not None:
            wait_ms = max(0, last_ms + ms(settings.window) - target.clock.now_ms())
        is_ready = await target.store.ready(min(wait_ms, ms(settings.window)) * 1000, born_us)
        if is_ready and (count or held):
            seconds = round(time.monotonic() - began, 3)
            counts = {"waiting": count, "running": len(held)}
            log.info("queue_rebuilt", target=target.name, **counts, seconds=seconds)

    async def _hold_calls(self, target: Target, jobs: Sequence[Job]) -> set[str]:
        """Make Redis count jobs as called from now on. Return their ids."""
        await target.store.hold(jobs, target.settings)
        # Some may have ended since they were read: nothing else would release them.
        rows = await self._rows.find_many(job.id for job in jobs)
        over = [(job.id, job.fence) for job in jobs if job.id not in rows or rows[job.id].is_ended]
        await target.store.drop(over, target.settings, wakes=True)
        return {job.id for job in jobs}

    async def _enqueue(self, target: Target, *, before_ms: int | None = None) -> int:
        """Put the jobs that wait in the queue; those that are in it stay. Return their number."""
        after, count = None, 0
        while True:
            rows = await self._attempts.waiting(target.name, after, PAGE, before_ms=before_ms)
            for start in range(0, len(rows), BATCH):
                await target.store.add(rows[start : start + BATCH])
            count += len(rows)
            if len(rows) < PAGE:
                return count
            after = rows[-1].order, rows[-1].id
            await self._leads(target, "rebuilding")

    # All targets ------------------------------------------------------------------------------

    async def _reconcile_forever(self) -> None:
        """Compare the queues of targets where something waits or runs, by Redis or by SQL."""
        while True:
            await asyncio.sleep(RECONCILE_S)
            with _logged("queues_not_reconciled"):
                active = await self._attempts.unended(self.idle)
                for target in self._jobs.targets:
                    if target.name in active or target.name not in self.idle:
                        await self._reconcile(target)

    async def _reconcile(self, target: Target) -> None:
        if not await self._leads(target, "reconciling"):
            return
        before_ms = target.clock.now_ms() - ms(RECONCILE_S)
        running = await self._attempts.running(target.name)
        late = [job for job in running if (job.started_ms or job.called_ms or 0) < before_ms]
        state, places = await target.store.look([job.id for job in late], target.settings)
        if not state.is_ready:
            return
        lost = [job for job, place in zip(late, places, strict=True) if place.where == "gone"]
        await self._hold_calls(target, lost)
        counts = await self._rows.counts(target.name, [State.PENDING])
        waiting = sum(counts.values())
        if waiting > state.waiting + state.later:
            await self._enqueue(target, before_ms=before_ms)
        elif waiting < state.waiting + state.later:
            await self._dequeue_ended(target)

    async def _dequeue_ended(self, target: Target) -> None:
        """Take jobs out of the queue that ended while Redis was unavailable."""
        async for ids in target.store.waiting_ids():
            rows = await self._rows.find_many(ids)
            for id_ in ids:
                job = rows.get(id_)
                if job is None or job.is_ended:
                    await target.store.remove(id_)

    async def _clean_forever(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CLEAN_S if self.is_idle else CLEAN_S)
            with _logged("jobs_not_cleaned"):
                await self.clean()

    async def clean(self) -> tuple[int, int]:
        """Expire and remove old jobs, in small batches. Return the numbers of both."""
        # By the clock of any target's Redis; all are about the same.
        clocks = (target.clock.now_ms() for target in self._jobs.targets)
        now_ms = next(clocks, int(time.time() * 1000))
        kept = {target.name: ms(target.settings.result_ttl) for target in self._jobs.targets}
        expired, removed, endings = 0, 0, self._jobs.store.endings
        while batch := await endings.expire(now_ms, BATCH, kept):
            for id_, name in batch:
                if target := self._jobs.targets.find(name):
                    with contextlib.suppress(StoreError):  # done later, as it has ended
                        await target.store.remove(id_)
                    self._jobs.metrics.jobs.labels(name, State.EXPIRED).inc()
            expired += len(batch)
            if len(batch) < BATCH:
                break
        while count := await endings.delete_old(now_ms, BATCH):
            removed += count
        if expired or removed:
            log.info("jobs_cleaned", expired=expired, removed=removed)
        return expired, removed

    def _leads(self, target: Target, work: str) -> Awaitable[bool]:
        return self._lease(target_key(target.name, work)).hold(milliseconds=LEASE_MS)


@contextlib.contextmanager
def _logged(event: str, **about: str) -> Iterator[None]:
    """Log errors: a reconciler goes on, whatever happens."""
    try:
        yield
    except (StoreError, DatabaseError) as error:
        log.debug(event, error=str(error), **about)
    except Exception:
        log.exception("reconciler_failed", **about)
