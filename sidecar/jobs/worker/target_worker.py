"""Makes the calls of one target's offline jobs: claims jobs, calls the target, writes the results.

Each job is claimed (Redis), started (SQL), called, written (SQL) and released (Redis). If the
worker dies between two of these steps, the job's lock expires, and another worker claims it.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import structlog

from sidecar.jobs.call_result import CallResult
from sidecar.jobs.model import Ending, Job, State
from sidecar.jobs.retry_policy import ending_of, has_lost_too_many_workers
from sidecar.jobs.service import Jobs
from sidecar.jobs.store.target_queue import LOCK_S, Claim
from sidecar.jobs.targets import Target
from sidecar.jobs.wake_ups import IDLE_S, WakeUps
from sidecar.jobs.worker.target_call import Egress
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.retry import Backoff
from sidecar.kit.tasks import stop_workers, wait_for

#: The most jobs that are claimed at a time.
CLAIMS = 50
#: How often locks are renewed, and how long before its end a lock that could not be renewed is
#: given up, in seconds.
RENEW_S = 2.0
MARGIN_S = 1.0
#: How long to wait for a wake-up before the next claim while jobs wait or run, and the pause after
#: an error, in seconds.
CHECK_S = 5.0
REST_S = 1.0
#: If starting claimed jobs takes longer than this, in seconds, their locks are checked before the
#: calls, because Redis may have been emptied meanwhile.
SLOW_S = 0.1
#: The pause between attempts to renew locks while Redis is unavailable, in seconds.
RETRY_S = 0.2
#: The pauses between attempts to write a result.
WRITE_BACKOFF = Backoff(0.2, 5.0)

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _RunningCall:
    """A call in progress."""

    claim: Claim
    #: When this worker gives the lock up, by the monotonic clock.
    until: float
    #: Why the task is cancelled: abort, lost (the lock), or empty if the worker stops.
    reason: str = ""
    #: Whether the result has arrived, so that the call can no longer be aborted.
    is_over: bool = False
    task: asyncio.Task[None] = field(init=False)


class TargetWorker:
    """The worker of one target in this process. It makes `most` calls at a time."""

    def __init__(
        self, target: Target, jobs: Jobs, egress: Egress, wake_ups: WakeUps, *, most: int
    ) -> None:
        self.target = target
        self._jobs = jobs
        self._egress = egress
        self._most = most
        self._listener = wake_ups.listen(target.name, is_worker=True)
        self._running: dict[str, _RunningCall] = {}
        self._has_calls = asyncio.Event()
        self._is_stopping = False

    def __len__(self) -> int:
        """Count the calls in progress."""
        return len(self._running)

    def stop(self) -> None:
        """Start no more calls."""
        self._is_stopping = True
        self._listener.woken.set()

    async def run(self) -> None:
        """Make calls until stopped, and wait for their ends. If cancelled, abort them."""
        renewing = asyncio.create_task(self._renew_forever())
        try:
            while not self._is_stopping:
                self._listener.woken.clear()
                try:
                    rest_s = await self._claim_jobs()
                except Exception:
                    log.exception("target_worker_failed", target=self.target.name)
                    rest_s = REST_S
                if rest_s > 0 and not self._is_stopping:
                    await wait_for(self._listener.woken, rest_s)
            while self._running:
                await asyncio.wait([call.task for call in self._running.values()])
        finally:
            tasks = [renewing, *(call.task for call in self._running.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Claiming jobs ----------------------------------------------------------------------------

    async def _claim_jobs(self) -> float:
        """Claim jobs and start their calls. Return how long to wait for a wake-up before the next
        claim, in seconds."""
        free = min(CLAIMS, self._most - len(self._running))
        if free <= 0:
            return CHECK_S
        began = time.monotonic()
        until = began + LOCK_S - MARGIN_S
        try:
            claimed = await self.target.store.claim(free, self.target.settings)
        except StoreError as error:
            log.warning("claim_failed", target=self.target.name, error=str(error))
            return REST_S
        if not claimed.is_ready:
            return REST_S  # a reconciler rebuilds the queue
        offline = [claim for claim in claimed.claims if not claim.is_online]
        try:
            await self._jobs.record_called(
                self.target, [claim for claim in claimed.claims if claim.is_online]
            )
            started = await self._jobs.store.attempts.start(
                [(claim.id, claim.fence) for claim in offline], at_ms=self.target.clock.now_ms()
            )
        except (DatabaseError, StoreError) as error:
            log.warning("jobs_not_begun", target=self.target.name, error=str(error))
            await self._requeue(offline)
            return REST_S
        if time.monotonic() > began + SLOW_S:
            offline = await self._check_locks(offline, started, until=until)
        self._start_all(offline, started, until=until)
        if len(offline) == free:
            return 0.0
        return IDLE_S if claimed.next_s is None else min(CHECK_S, max(0.001, claimed.next_s))

    async def _check_locks(
        self, claims: Sequence[Claim], started: Sequence[Job], *, until: float
    ) -> list[Claim]:
        """Return the claims whose locks this worker still holds, and release the others. Redis may
        have been emptied, or another worker may have the job."""
        locked = await self._locked(claims, until=until)
        if time.monotonic() >= until:
            log.warning("jobs_begun_too_late", target=self.target.name)
            locked = []
        late = [claim for claim in claims if claim not in locked]
        for claim in late:
            if any(job.id == claim.id for job in started):
                await self._reset_to_pending(claim, "its worker was too slow")
        await self._requeue(late)
        return locked

    async def _locked(self, claims: Sequence[Claim], *, until: float) -> list[Claim]:
        """Return the claims whose locks this worker still holds. Waits while Redis is unavailable,
        because jobs that are given up would lose time until their locks end."""
        while time.monotonic() < until and not self._is_stopping:
            try:
                states = await self.target.store.renew([(one.id, one.fence) for one in claims])
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return [one for one, state in zip(claims, states, strict=True) if state != "lost"]
        return []

    def _start_all(self, claims: Sequence[Claim], started: Sequence[Job], *, until: float) -> None:
        by_id = {job.id: job for job in started}
        for claim in claims:
            job = by_id.get(claim.id)
            call = _RunningCall(claim, until)
            older = self._running.get(claim.id)
            if older is not None and not older.is_over:  # claimed again after a rebuild
                older.reason = "lost"
                older.task.cancel()
            if job is None:  # cancelled, expired, or ended by a worker that could not release it
                work = self._drop(claim)
            elif has_lost_too_many_workers(job, self.target.settings):
                work = self._give_up(job, claim)
            else:
                work = self._make_call(job, call)
            call.task = asyncio.create_task(work)
            self._running[claim.id] = call
            self._has_calls.set()
            call.task.add_done_callback(partial(self._end, call))

    def _end(self, call: _RunningCall, _: asyncio.Task[None]) -> None:
        if self._running.get(call.claim.id) is call:
            del self._running[call.claim.id]
        self._listener.woken.set()

    # One job ----------------------------------------------------------------------------------

    async def _make_call(self, job: Job, call: _RunningCall) -> None:
        target, metrics = self.target, self._jobs.metrics

        async def store(number: int, data: bytes) -> None:
            add_chunk = self._jobs.store.attempts.add_chunk
            if not await add_chunk(job.id, call.claim.fence, number, data):
                call.reason = "lost"
                raise asyncio.CancelledError

        try:
            result = await self._egress.call(target.settings, job, sink=store)
        except asyncio.CancelledError:
            if call.reason == "abort":
                await asyncio.shield(self._abort(call.claim))
            elif call.reason != "lost":
                await asyncio.shield(self._hand_over(call.claim))
            raise
        except DatabaseError as error:
            # A large response could not be stored, so the call is made again.
            log.warning("result_lost", job=job.id, target=target.name, error=str(error))
            await self._requeue([call.claim])
            return
        except Exception as error:
            log.exception("attempt_broken", job=job.id, target=target.name)
            result = CallResult("refused", f"an error of the worker: {type(error).__name__}")
        metrics.job_seconds.labels(target.name, result.kind).observe(result.took_us / 1_000_000)
        metrics.count_response(target.name, result.status)
        ending = ending_of(result, job, target.settings, call.claim, now_ms=target.clock.now_ms())
        # From here on the call cannot be aborted, because its result must be written.
        call.is_over = True
        await self._write(ending, is_counted=True)
        if ending.error:
            about = {"job": job.id, "target": target.name, "attempt": job.attempts}
            log.info("attempt_failed", **about, state=ending.state, error=ending.error)
        with contextlib.suppress(StoreError):  # the lock expires by itself
            await target.store.release([ending], target.settings, wakes=self._is_stopping)

    async def _give_up(self, job: Job, claim: Claim) -> None:
        """Fail a job whose workers died too often, because the job may be the cause."""
        error = f"{job.failures} workers that took it up were gone before the call was over"
        await self._write(self.target.ending(claim.id, claim.fence, State.FAILED, error))
        await self._drop(claim)

    async def _abort(self, claim: Claim) -> None:
        await self._write(self.target.abort_ending(claim.id, claim.fence), is_counted=True)
        await self._drop(claim)

    async def _hand_over(self, claim: Claim) -> None:
        """Release a call to other workers, because this one stops."""
        await self._reset_to_pending(claim, "its worker stopped")
        await self._requeue([claim])

    async def _write(self, ending: Ending, *, is_counted: bool = False) -> None:
        """Write an ending to SQL. Retries without limit, because otherwise the call would be made
        again. Meanwhile its lock is renewed."""
        failures = 0
        while True:
            try:
                is_written = await self._jobs.store.attempts.finish(ending)
            except DatabaseError as error:
                failures += 1
                delay_s = WRITE_BACKOFF.delay_s(failures)
                log.warning("result_waits", job=ending.id, error=str(error), again_in_s=delay_s)
                await asyncio.sleep(delay_s)
            else:
                if is_written and is_counted:
                    self._jobs.metrics.jobs.labels(self.target.name, ending.state).inc()
                return

    async def _reset_to_pending(self, claim: Claim, error: str) -> None:
        """Reset a job to pending. Not retried: on an error the lock expires later, and the attempt
        counts as a failure."""
        with contextlib.suppress(DatabaseError):
            await self._jobs.store.attempts.finish(
                self.target.ending(claim.id, claim.fence, State.PENDING, error)
            )

    async def _requeue(self, claims: Iterable[Claim]) -> None:
        await self._drop(*claims, again_ms=self.target.clock.now_ms() + round(REST_S * 1000))

    async def _drop(self, *claims: Claim, again_ms: int | None = None) -> None:
        """Release the locks of calls that were not made. On an error the locks expire later."""
        calls = [(claim.id, claim.fence) for claim in claims]
        with contextlib.suppress(StoreError):
            await self.target.store.drop(
                calls, self.target.settings, again_ms=again_ms, wakes=self._is_stopping
            )

    # Locks ------------------------------------------------------------------------------------

    async def _renew_forever(self) -> None:
        while True:
            await self._has_calls.wait()
            self._listener.urgent.clear()
            await wait_for(self._listener.urgent, RENEW_S)
            if self._running:
                await self._renew(list(self._running.values()))
            else:
                self._has_calls.clear()

    async def _renew(self, calls: Sequence[_RunningCall]) -> None:
        """Renew the locks of calls. Cancel the calls that a client aborted, and those whose lock is
        lost or could not be renewed for too long."""
        states: Sequence[str]
        began = time.monotonic()
        try:
            states = await self.target.store.renew(
                [(call.claim.id, call.claim.fence) for call in calls]
            )
        except StoreError as error:
            log.warning("locks_not_renewed", target=self.target.name, error=str(error))
            states = ["unknown"] * len(calls)
        for call, state in zip(calls, states, strict=True):
            if state == "held":
                call.until = began + LOCK_S - MARGIN_S
            elif call.is_over or call.task.done():
                continue
            elif state in {"abort", "lost"} or began >= call.until:
                call.reason = "abort" if state == "abort" else "lost"
                log.info("call_cut_off", job=call.claim.id, target=self.target.name, why=state)
                call.task.cancel()


_PoolEntry: TypeAlias = tuple[TargetWorker, asyncio.Task[None]]


class WorkerPool:
    """The target workers of one process, including those of targets created at run time."""

    def __init__(self, jobs: Jobs, wake_ups: WakeUps, egress: Egress, *, most: int) -> None:
        self._jobs = jobs
        self._wake_ups = wake_ups
        self._egress = egress
        self._most = most
        self._running: dict[str, _PoolEntry] = {}
        #: Workers of targets that were removed or replaced. They finish their calls.
        self._ending: list[_PoolEntry] = []

    async def run(self, stop: asyncio.Event, *, grace_s: float = 0.0, poll_s: float = 1.0) -> None:
        """Run until `stop` is set, and then wait up to `grace_s` for the ends of the calls."""
        try:
            while not stop.is_set():
                self._update()
                await wait_for(stop, poll_s)
            under_way = sum(len(worker) for worker, _ in self._running.values())
            log.info("stopping", under_way=under_way, grace_seconds=grace_s)
            for worker, _ in self._running.values():
                worker.stop()
            if tasks := self._tasks():
                await asyncio.wait(tasks, timeout=grace_s)
        finally:
            await stop_workers(*self._tasks())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in (*self._running.values(), *self._ending)]

    def _update(self) -> None:
        targets = {target.name: target for target in self._jobs.targets}
        self._ending = [(worker, task) for worker, task in self._ending if not task.done()]
        for name, (worker, task) in list(self._running.items()):
            if worker.target is not targets.get(name):
                worker.stop()
                self._ending.append((worker, task))
                del self._running[name]
            elif task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("target_worker_failed", target=name, exc_info=error)
                del self._running[name]
        for name, target in targets.items():
            if name not in self._running and "offline" in target.settings.kinds:
                worker = TargetWorker(
                    target, self._jobs, self._egress, self._wake_ups, most=self._most
                )
                self._running[name] = worker, asyncio.create_task(worker.run())
