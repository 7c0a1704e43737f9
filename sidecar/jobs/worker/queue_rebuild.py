"""Rebuilds a target's queue from SQL: after Redis was emptied, or where Redis and SQL differ."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import structlog

from sidecar.jobs.model import Job, State, to_ms
from sidecar.jobs.service import Jobs
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import LOCK_S, Row
from sidecar.jobs.targets import Target

#: The pause before a rebuild, in seconds, so that workers can write to SQL which jobs they claimed.
SETTLE_S = 0.5
#: How many rows are read at a time, and how many jobs are added to the queue at a time.
PAGE_SIZE = 1000
BATCH_SIZE = 500

log = structlog.get_logger()


def make_restored_call(job: Job, settings: TargetSettings) -> Row:
    """Return the arguments with which jobs/lua/hold.lua makes the call of a running job active
    again. The call counts as active for as long as a new lock, permit or call lasts, because its
    worker or client may still make it."""
    call_state, active_s = "u", settings.timeout
    if job.kind == "offline":
        call_state, active_s = "r", LOCK_S
    elif job.state is State.CALLED:
        call_state, active_s = "c", settings.claim_window
    return job.id, job.fence, job.queue_order, round(active_s * 1e6), call_state


class QueueRebuild:
    """Rebuilds queues. `renew_lease` renews the leader lease, which only one process can hold."""

    def __init__(self, jobs: Jobs, renew_lease: Callable[[Target], Awaitable[bool]]) -> None:
        self._rows = jobs.store.jobs
        self._attempts = jobs.store.attempts
        self._renew_lease = renew_lease

    async def rebuild(self, target: Target, *, detected_us: int) -> None:
        """Rebuild a queue after Redis was emptied, or before its first use. Restores the waiting
        jobs in their order, and the running jobs, because their workers may still be alive. No call
        starts before the queue is rebuilt, or while earlier calls may have used up the rate."""
        began = time.monotonic()
        settings, name = target.settings, target.name
        if await self._attempts.list_running_jobs(name) or await self._attempts.list_waiting_jobs(
            name, None, 1
        ):
            await asyncio.sleep(SETTLE_S)
        restored = await self.restore_calls(target, await self._attempts.list_running_jobs(name))
        count = await self.add_waiting_jobs(target)
        last_ms = await self._attempts.find_last_start_ms(name)
        # Restore the calls that began meanwhile.
        restored |= await self.restore_calls(target, await self._attempts.list_running_jobs(name))
        wait_ms = 0
        if last_ms is not None and settings.rate is not None:
            wait_ms = max(0, last_ms + to_ms(settings.counted_window) - target.clock.now_ms())
        is_ready = await target.store.mark_ready(
            min(wait_ms, to_ms(settings.counted_window)) * 1000, detected_us
        )
        if is_ready and (count or restored):
            seconds = round(time.monotonic() - began, 3)
            counts = {"waiting": count, "running": len(restored)}
            log.info("queue_rebuilt", target=name, **counts, seconds=seconds)

    async def restore_calls(self, target: Target, jobs: Sequence[Job]) -> set[str]:
        """Make the calls of running jobs active in Redis again. Return the jobs' ids."""
        await target.store.restore([make_restored_call(job, target.settings) for job in jobs])
        # Release the jobs that have ended since they were read, because nothing else does.
        rows = await self._rows.find_many(job.id for job in jobs)
        ended = [(job.id, job.fence) for job in jobs if job.id not in rows or rows[job.id].is_ended]
        await target.store.drop(ended, target.settings, wake_others=True)
        return {job.id for job in jobs}

    async def add_waiting_jobs(self, target: Target, *, before_ms: int | None = None) -> int:
        """Add the waiting jobs that the queue lacks. Return the number of waiting jobs. `before_ms`
        leaves out jobs that were submitted later."""
        after, count = None, 0
        while True:
            rows = await self._attempts.list_waiting_jobs(
                target.name, after, PAGE_SIZE, before_ms=before_ms
            )
            for start in range(0, len(rows), BATCH_SIZE):
                await target.store.add(rows[start : start + BATCH_SIZE], target.settings)
            count += len(rows)
            if len(rows) < PAGE_SIZE:
                return count
            after = rows[-1].order, rows[-1].id
            await self._renew_lease(target)

    async def remove_ended_jobs(self, target: Target) -> None:
        """Remove from the queue the jobs that ended while Redis was unavailable."""
        async for ids in target.store.scan_waiting_jobs():
            rows = await self._rows.find_many(ids)
            for id_ in ids:
                if id_ not in rows or rows[id_].is_ended:
                    await target.store.remove(id_)
