"""Keeps Redis consistent with SQL: calls online jobs, ends those that timed out, adds jobs that
only SQL has, removes jobs that only Redis has, expires jobs that waited too long, and deletes old
ones. Every replica and worker process has a reconciler. Only a leader rebuilds a queue."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator

import structlog

from sidecar.jobs.model import UNUSED_PERMIT, AttemptEnd, State, to_ms
from sidecar.jobs.redis_keys import target_key
from sidecar.jobs.service import Jobs
from sidecar.jobs.targets import Target
from sidecar.jobs.wake_ups import IDLE_S, WakeUps
from sidecar.jobs.worker.queue_rebuild import BATCH_SIZE, QueueRebuild
from sidecar.kit.errors import DatabaseError, DatabaseLockedError, StoreError
from sidecar.kit.tasks import wait_for
from sidecar.storage.redis.leader_lease import LeaderLease

#: How often settings are read, unless they changed, and how often a queue with jobs is checked, in
#: seconds. A due job or, if the target has online jobs, a wake-up brings the check forward.
REFRESH_S, CHECK_S = 10.0, 1.0
#: How often a queue without jobs is checked, in seconds, while its metrics still change.
GAUGES_S = 5.0
#: How often Redis is compared with SQL, in seconds. A job that only SQL has had for this long is
#: added to Redis, because the replica that stored it has died, or Redis was unavailable.
RECONCILE_S = 20.0
#: How often old jobs are deleted, and how often if no job waits or runs, in seconds.
CLEAN_S, IDLE_CLEAN_S = 5.0, 30.0
#: How long a leader lease lasts unless it is renewed, in ms.
LEASE_MS = 15_000

log = structlog.get_logger()


class Reconciler:
    """The reconciler of one process. `make_lease` creates a leader lease from a Redis key."""

    def __init__(
        self, jobs: Jobs, wake_ups: WakeUps, make_lease: Callable[[str], LeaderLease]
    ) -> None:
        self._jobs = jobs
        self._rows = jobs.store.jobs
        self._attempts = jobs.store.attempts
        self._wake_ups = wake_ups
        self._make_lease = make_lease
        self.queues = QueueRebuild(jobs, self._hold_rebuild_lease)
        self._tasks: dict[str, tuple[Target, asyncio.Task[None]]] = {}
        #: The names of the targets without waiting or running jobs, as of their last check.
        self.idle_targets: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Return True if no job waits or runs, and no target has `delete_after_read`."""
        return all(
            target.name in self.idle_targets and not target.settings.delete_after_read
            for target in self._jobs.targets
        )

    async def run(self) -> None:
        """Refresh settings, reconcile queues and clean up, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._refresh_forever())
                group.create_task(self._reconcile_forever())
                group.create_task(self._clean_forever())
        finally:
            for _, task in self._tasks.values():
                task.cancel()

    async def _refresh_forever(self) -> None:
        """Refresh the targets' settings, and run a task for each target, including new ones."""
        while True:
            self._wake_ups.settings_event.clear()
            with contextlib.suppress(DatabaseError):
                for name in await self._jobs.targets.refresh():
                    self._wake_ups.wake(name)
            targets = {target.name: target for target in self._jobs.targets}
            for name, (target, task) in list(self._tasks.items()):
                if targets.get(name) is not target or task.done():
                    task.cancel()
                    self.idle_targets.discard(name)
                    self._jobs.metrics.targets.forget(name)
                    del self._tasks[name]
            for name in targets.keys() - self._tasks.keys():
                task = asyncio.create_task(self._maintain_forever(targets[name]))
                self._tasks[name] = targets[name], task
            await wait_for(self._wake_ups.settings_event, REFRESH_S)

    async def _maintain_forever(self, target: Target) -> None:
        listener = self._wake_ups.listen(target.name)
        while True:
            pause_s = CHECK_S
            listener.wake_event.clear()
            with _log_errors("queue_not_kept", target=target.name):
                pause_s = await self._maintain(target)
            if pause_s == CHECK_S and "online" not in target.settings.kinds:
                await asyncio.sleep(pause_s)  # ignores wake-ups, which are for the workers
            else:
                await wait_for(listener.wake_event, pause_s)

    async def _maintain(self, target: Target) -> float:
        """Call online jobs, and end those that timed out. Return the seconds to the next check."""
        reply = await target.store.claim(0, target.settings)
        if not reply.is_ready:
            if not await self._hold_rebuild_lease(target):
                return CHECK_S
            await self.queues.rebuild(target, detected_us=reply.detected_us)
            return 0.05
        await self._jobs.record_calls(target, reply.claims)
        ended = []
        for call in await target.store.read_timed_out_calls():
            with contextlib.suppress(DatabaseLockedError):  # the next check retries
                await self._end_timed_out_job(target, *call)
                ended.append(call)
        await target.store.forget_timed_out_calls(ended)
        state, _ = await target.store.inspect([], target.settings)
        self._jobs.metrics.targets.update(target.name, target.settings, state)
        idle_s = GAUGES_S if state.calls_in_window or state.breaker == "open" else IDLE_S
        if reply.next_s is None and state.is_idle:
            self.idle_targets.add(target.name)
            return idle_s
        self.idle_targets.discard(target.name)
        if not (state.waiting or state.active) and (reply.next_s or 0) > CHECK_S:
            return min(idle_s, reply.next_s or 0)  # when the first job is due
        if reply.next_s is None or "online" not in target.settings.kinds:
            return CHECK_S
        return min(CHECK_S, max(0.005, reply.next_s))

    async def _end_timed_out_job(self, target: Target, id_: str, reason: str, at_ms: int) -> None:
        """End an online job that timed out: its permit was not used, or its call took too long."""
        job = await self._rows.find(id_)
        if job is None or job.is_ended:
            return
        state, error = State.COMPLETED, "it did not say when it was over"
        if reason == "unused":
            state, error = State.EXPIRED, UNUSED_PERMIT
        expires_ms = at_ms + to_ms(target.settings.result_ttl)
        await self._jobs.finish(AttemptEnd(id_, job.fence, state, at_ms, expires_ms, error))
        self._jobs.metrics.jobs.labels(target.name, state).inc()

    async def _reconcile_forever(self) -> None:
        """Compare Redis with SQL, for all targets that have jobs in either store."""
        while True:
            await asyncio.sleep(RECONCILE_S)
            with _log_errors("queues_not_reconciled"):
                unended = await self._attempts.find_busy_targets(self.idle_targets)
                for target in self._jobs.targets:
                    if target.name in unended or target.name not in self.idle_targets:
                        await self._reconcile(target)

    async def _reconcile(self, target: Target) -> None:
        if not await self._hold_lease(target, "reconciling"):
            return
        before_ms = target.clock.now_ms() - to_ms(RECONCILE_S)
        running = await self._attempts.list_running_jobs(target.name)
        older = [job for job in running if (job.started_ms or job.called_ms or 0) < before_ms]
        state, places = await target.store.inspect([job.id for job in older], target.settings)
        if not state.is_ready:
            return
        lost = [job for job, place in zip(older, places, strict=True) if place.where == "gone"]
        await self.queues.restore_calls(target, lost)
        counts = await self._rows.count_by_state(target.name, [State.PENDING])
        waiting = sum(counts.values())
        if waiting > state.waiting + state.later:
            await self.queues.add_waiting_jobs(target, before_ms=before_ms)
        elif waiting < state.waiting + state.later:
            await self.queues.remove_ended_jobs(target)

    async def _clean_forever(self) -> None:
        while True:
            await asyncio.sleep(IDLE_CLEAN_S if self.is_idle else CLEAN_S)
            with _log_errors("jobs_not_cleaned"):
                await self.clean()

    async def clean(self) -> tuple[int, int]:
        """Expire jobs that waited too long, and delete old jobs. Return the number of each."""
        # Any target's clock will do, because all follow the clock of Redis.
        clocks = (target.clock.now_ms() for target in self._jobs.targets)
        now_ms = next(clocks, int(time.time() * 1000))
        ttl_ms = {target.name: to_ms(target.settings.result_ttl) for target in self._jobs.targets}
        expired, removed, due_jobs = 0, 0, self._jobs.store.due_jobs
        while batch := await due_jobs.expire_jobs(now_ms, BATCH_SIZE, ttl_ms):
            for id_, name in batch:
                if target := self._jobs.targets.find(name):
                    with contextlib.suppress(StoreError):  # _reconcile removes it later
                        await target.store.remove(id_)
                    self._jobs.metrics.jobs.labels(name, State.EXPIRED).inc()
            self._jobs.changes.announce(*(id_ for id_, _ in batch))
            expired += len(batch)
            if len(batch) < BATCH_SIZE:
                break
        while count := await due_jobs.delete_old_jobs(now_ms, BATCH_SIZE):
            removed += count
        if expired or removed:
            log.info("jobs_cleaned", expired=expired, removed=removed)
        return expired, removed

    def _hold_rebuild_lease(self, target: Target) -> Awaitable[bool]:
        return self._hold_lease(target, "rebuilding")

    def _hold_lease(self, target: Target, work: str) -> Awaitable[bool]:
        return self._make_lease(target_key(target.name, work)).hold(milliseconds=LEASE_MS)


@contextlib.contextmanager
def _log_errors(event: str, **about: str) -> Iterator[None]:
    """Log all errors and suppress them, so that the reconciler continues."""
    try:
        yield
    except (StoreError, DatabaseError) as error:
        log.debug(event, error=str(error), **about)
    except Exception:
        log.exception("reconciler_failed", **about)
