"""Keeps Redis consistent with SQL: rebuilds queues that Redis lost, calls online jobs, adds jobs
that only SQL has, removes jobs that only Redis has, expires jobs that waited too long, and deletes
old ones. Every replica and worker process has a reconciler; a leader lease picks one of them where
only one may work."""

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

#: How often settings are read without a wake-up, in seconds; how often a queue is checked that has
#: jobs; and how often a queue is checked in which only the metrics change.
REFRESH_S = 10.0
CHECK_S = 1.0
GAUGES_S = 5.0
#: How often Redis is compared with SQL, in seconds. A job that only SQL has for longer is added to
#: Redis, because the replica that stored the job has died, or Redis was unavailable.
RECONCILE_S = 20.0
#: How often old jobs are deleted, and how often if no job waits or runs, in seconds.
CLEAN_S, IDLE_CLEAN_S = 5.0, 30.0
#: The pause before a rebuild, in seconds, so that workers can write to SQL which jobs they claimed.
SETTLE_S = 0.5
#: Rows that are read at a time, and jobs that are added or removed at a time.
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
        #: The targets without jobs that wait or run, as of their last check.
        self.idle: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no job waits or runs, or will be deleted soon after it is read."""
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
        """Run a task for each target, including targets created at run time."""
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
                task = asyncio.create_task(self._maintain_forever(targets[name]))
                self._tasks[name] = targets[name], task
            await wait_for(self._wake_ups.settings_changed, REFRESH_S)

    # One target -------------------------------------------------------------------------------

    async def _maintain_forever(self, target: Target) -> None:
        listener = self._wake_ups.listen(target.name)
        while True:
            rest_s = CHECK_S
            listener.woken.clear()
            with _logged("queue_not_kept", target=target.name):
                rest_s = await self._maintain(target)
            if rest_s == CHECK_S and "online" not in target.settings.kinds:
                await asyncio.sleep(rest_s)  # without wake-ups, because workers make the calls
            else:
                await wait_for(listener.woken, rest_s)

    async def _maintain(self, target: Target) -> float:
        """Call a target's online jobs, and end those that timed out. Return how long to wait until
        the next check, in seconds."""
        claimed = await target.store.claim(0, target.settings)
        if not claimed.is_ready:
            if not await self._hold_lease(target, "rebuilding"):
                return CHECK_S
            await self.rebuild(target, born_us=claimed.born_us)
            return 0.05
        await self._jobs.record_called(target, claimed.claims)
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
            return CHECK_S
        return min(CHECK_S, max(0.005, claimed.next_s))

    async def _end(self, target: Target, id_: str, why: str, at_ms: int) -> None:
        """End an online job that timed out: its permit was not used, or its call took too long."""
        job = await self._rows.find(id_)
        if job is None or job.is_ended:
            return
        state, error = State.COMPLETED, "it did not say when it was over"
        if why == "unused":
            state, error = State.EXPIRED, "nobody used the permit"
        expires_ms = at_ms + ms(target.settings.result_ttl)
        await self._attempts.finish(Ending(id_, job.fence, state, at_ms, expires_ms, error))
        self._jobs.metrics.jobs.labels(target.name, state).inc()

    async def rebuild(self, target: Target, *, born_us: int) -> None:
        """Rebuild a queue from SQL after Redis was emptied, or before its first use: the waiting
        jobs in their order, and the running jobs, because their workers may still be alive. No
        call starts before that is done, nor while earlier calls may have used up the rate."""
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
        )  # those that began meanwhile
        wait_ms = 0
        if last_ms is not None and settings.rate is not None:
            wait_ms = max(0, last_ms + ms(settings.window) - target.clock.now_ms())
        is_ready = await target.store.ready(min(wait_ms, ms(settings.window)) * 1000, born_us)
        if is_ready and (count or held):
            seconds = round(time.monotonic() - began, 3)
            counts = {"waiting": count, "running": len(held)}
            log.info("queue_rebuilt", target=target.name, **counts, seconds=seconds)

    async def _hold_calls(self, target: Target, jobs: Sequence[Job]) -> set[str]:
        """Make Redis count jobs as active from now on. Return their ids."""
        await target.store.hold(jobs, target.settings)
        # Release those that ended since they were read, because nothing else would do that.
        rows = await self._rows.find_many(job.id for job in jobs)
        over = [(job.id, job.fence) for job in jobs if job.id not in rows or rows[job.id].is_ended]
        await target.store.drop(over, target.settings, wakes=True)
        return {job.id for job in jobs}

    async def _enqueue(self, target: Target, *, before_ms: int | None = None) -> int:
        """Add all waiting jobs that the queue does not have yet. Return how many jobs wait."""
        after, count = None, 0
        while True:
            rows = await self._attempts.waiting(target.name, after, PAGE, before_ms=before_ms)
            for start in range(0, len(rows), BATCH):
                await target.store.add(rows[start : start + BATCH])
            count += len(rows)
            if len(rows) < PAGE:
                return count
            after = rows[-1].order, rows[-1].id
            await self._hold_lease(target, "rebuilding")

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
        if not await self._hold_lease(target, "reconciling"):
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
        """Remove jobs from the queue that ended while Redis was unavailable."""
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
        """Expire overdue jobs and delete old ones, in small batches. Return the numbers of both."""
        # The clock of any target will do, because all have the time of Redis.
        clocks = (target.clock.now_ms() for target in self._jobs.targets)
        now_ms = next(clocks, int(time.time() * 1000))
        ttl_ms = {target.name: ms(target.settings.result_ttl) for target in self._jobs.targets}
        expired, removed, endings = 0, 0, self._jobs.store.endings
        while batch := await endings.expire(now_ms, BATCH, ttl_ms):
            for id_, name in batch:
                if target := self._jobs.targets.find(name):
                    with contextlib.suppress(StoreError):  # else the comparison with SQL does it
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

    def _hold_lease(self, target: Target, work: str) -> Awaitable[bool]:
        return self._lease(target_key(target.name, work)).hold(milliseconds=LEASE_MS)


@contextlib.contextmanager
def _logged(event: str, **about: str) -> Iterator[None]:
    """Log all errors and suppress them, so that the reconciler continues."""
    try:
        yield
    except (StoreError, DatabaseError) as error:
        log.debug(event, error=str(error), **about)
    except Exception:
        log.exception("reconciler_failed", **about)
