"""Makes the calls of a target's offline jobs.

A worker claims a job (Redis), starts it (SQL), calls the target, writes the result (SQL), and
releases the job (Redis). If the worker dies meanwhile, the job's lock expires, and another worker
claims the job."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import structlog

from sidecar.jobs.call_result import CallResult
from sidecar.jobs.model import AttemptEnd, Job, State
from sidecar.jobs.retry_policy import has_lost_too_many_workers, make_ending
from sidecar.jobs.service import Jobs
from sidecar.jobs.store.target_queue import LOCK_S, Claim
from sidecar.jobs.targets import Target
from sidecar.jobs.wake_ups import IDLE_S, WakeUps
from sidecar.jobs.worker.target_call import Egress, LateCallError, SendWindow
from sidecar.kit.egress import KEEP_ALIVE_S
from sidecar.kit.errors import DatabaseError, DatabaseLockedError, StoreError
from sidecar.kit.retry import Backoff
from sidecar.kit.tasks import stop_workers, wait_for
from sidecar.kit.trace_context import log_trace

#: The maximum number of jobs that are claimed at a time.
MAX_CLAIMS = 50
#: How often locks are renewed, in seconds.
RENEW_INTERVAL_S = 2.0
#: A lock that cannot be renewed is given up this long before it expires, in seconds.
LOCK_MARGIN_S = 1.0
#: The longest pause between two claims while jobs wait or run, in seconds.
CLAIM_INTERVAL_S = 5.0
#: The pause after an error, in seconds.
ERROR_PAUSE_S = 1.0
#: If starting claimed jobs takes longer than this, in seconds, their locks are checked before the
#: calls, because Redis may have been emptied meanwhile.
SLOW_START_S = 0.1
#: For targets with `strict`: how long after its claim a call is sent, so that its preparation is
#: done, and how much later it may be sent, in s. The rest of STRICT_SPREAD_S is for the network.
STRICT_DELAY_S, STRICT_TOLERANCE_S = 0.2, 0.075
#: From this attempt of a job on, a call that is too late for `strict` is logged as a warning.
LATE_WARNING_ATTEMPT = 3
#: The pause between attempts to renew locks while Redis is unavailable, in seconds.
RENEW_RETRY_S = 0.2
#: The pauses between attempts to write a result.
WRITE_BACKOFF = Backoff(0.2, 5.0)

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _RunningCall:
    claim: Claim
    #: When this worker gives up the lock unless it is renewed, by the monotonic clock.
    until_s: float
    #: Why the task is cancelled: "abort", "lost" (the lock), or "" if the worker stops.
    reason: str = ""
    #: Whether the result has arrived, so that the call can no longer be aborted.
    is_over: bool = False
    trace_id: str | None = None
    #: When the call may be sent, or None if it may be sent at any time.
    window: SendWindow | None = None
    task: asyncio.Task[None] = field(init=False)


class TargetWorker:
    """The worker of one target in this process, which makes at most `max_calls` calls at a time."""

    def __init__(
        self, target: Target, jobs: Jobs, egress: Egress, wake_ups: WakeUps, *, max_calls: int
    ) -> None:
        self.target = target
        self._jobs = jobs
        self._egress = egress
        self._max_calls = max_calls
        self._listener = wake_ups.listen(target.name, is_worker=True)
        self._calls: dict[str, _RunningCall] = {}
        self._has_calls = asyncio.Event()
        self._is_stopping = False
        #: The number of connections to open before the next claim. It is 0 until a call of a
        #: `strict` target has been too late because its connection was opened after the claim.
        self._connection_count = 0
        #: When the last call ended, by the monotonic clock.
        self._last_end_s = float("-inf")

    def __len__(self) -> int:
        """Return the number of calls in progress."""
        return len(self._calls)

    def stop(self) -> None:
        """Start no more calls."""
        self._is_stopping = True
        self._listener.wake_event.set()

    async def run(self) -> None:
        """Make calls until `stop` is called, then wait for them. If cancelled, abort them."""
        renewing = asyncio.create_task(self._renew_forever())
        try:
            while not self._is_stopping:
                self._listener.wake_event.clear()
                try:
                    pause_s = await self._claim_jobs()
                except Exception:
                    log.exception("target_worker_failed", target=self.target.name)
                    pause_s = ERROR_PAUSE_S
                if pause_s > 0 and not self._is_stopping:
                    await wait_for(self._listener.wake_event, pause_s)
            while self._calls:
                await asyncio.wait([call.task for call in self._calls.values()])
        finally:
            tasks = [renewing, *(call.task for call in self._calls.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _claim_jobs(self) -> float:
        """Claim jobs and start their calls. Return the seconds until the next claim is due."""
        free_slots = min(MAX_CLAIMS, self._max_calls - len(self._calls))
        if free_slots <= 0:
            return CLAIM_INTERVAL_S
        try:
            if self._connection_count:
                free_slots = await self._connect_first(free_slots)
            began_s = time.monotonic()
            until_s = began_s + LOCK_S - LOCK_MARGIN_S
            reply = await self.target.store.claim(free_slots, self.target.settings)
        except StoreError as error:
            log.warning("claim_failed", target=self.target.name, error=str(error))
            return ERROR_PAUSE_S
        window = None
        if self.target.settings.strict:
            # Redis claimed the calls after began_s and before now, so no shared clock is needed.
            window = SendWindow(
                time.monotonic() + STRICT_DELAY_S, began_s + STRICT_DELAY_S + STRICT_TOLERANCE_S
            )
        if not reply.is_ready:
            return ERROR_PAUSE_S  # a reconciler rebuilds the queue
        offline = [claim for claim in reply.claims if not claim.is_online]
        online = [claim for claim in reply.claims if claim.is_online]
        is_full = len(offline) == free_slots
        if self._connection_count:
            self._connection_count = max(1, len(offline) * (2 if is_full else 1))
        try:
            await self._jobs.record_calls(self.target, online)
            started_jobs = await self._jobs.store.attempts.start(
                [(claim.id, claim.fence) for claim in offline], at_ms=self.target.clock.now_ms()
            )
        except (DatabaseError, StoreError) as error:
            log.warning("jobs_not_begun", target=self.target.name, error=str(error))
            await self._requeue(offline)
            return ERROR_PAUSE_S
        offline = await self._requeue_locked(offline, started_jobs)
        if time.monotonic() > began_s + SLOW_START_S:
            offline = await self._check_locks(offline, started_jobs, until_s=until_s)
        self._start_calls(offline, started_jobs, until_s=until_s, window=window)
        if is_full:
            return 0.0
        return IDLE_S if reply.next_s is None else min(CLAIM_INTERVAL_S, max(0.001, reply.next_s))

    async def _connect_first(self, free_slots: int) -> int:
        """Open connections for the calls of the next claim. Return how many jobs to claim: one for
        each connection, but at least one, whose call shows why there is no connection."""
        if time.monotonic() - self._last_end_s < KEEP_ALIVE_S:
            return free_slots  # connections of earlier calls are still open
        store, settings = self.target.store, self.target.settings
        reply = await store.claim(0, settings)  # queues the jobs that are due
        await self._jobs.record_calls(self.target, reply.claims)
        queue, _ = await store.inspect([], settings)
        count = min(self._connection_count, free_slots, queue.waiting)
        if not count or settings.paused or queue.open_until_ms or queue.held_until_ms:
            return free_slots
        opened = await self._egress.open_connections(settings, count)
        return 0 if self._is_stopping else max(1, opened)

    async def _requeue_locked(
        self, claims: Sequence[Claim], started_jobs: Sequence[Job]
    ) -> list[Claim]:
        """Requeue the claims whose jobs another transaction keeps locked in SQL. Return the others:
        of jobs that were started, or that have ended, expired or been removed."""
        started_ids = {job.id for job in started_jobs}
        missing_ids = [claim.id for claim in claims if claim.id not in started_ids]
        if not missing_ids:
            return list(claims)
        try:
            rows = await self._jobs.store.jobs.find_many(missing_ids)
        except DatabaseError:
            locked_ids = {*missing_ids}
        else:
            now_ms = self.target.clock.now_ms()
            locked_ids = {
                id_ for id_, job in rows.items() if not job.is_ended and job.expires_ms > now_ms
            }
        await self._requeue([claim for claim in claims if claim.id in locked_ids])
        return [claim for claim in claims if claim.id not in locked_ids]

    async def _check_locks(
        self, claims: Sequence[Claim], started_jobs: Sequence[Job], *, until_s: float
    ) -> list[Claim]:
        """Return the claims whose locks this worker still has, and release the others. Wait while
        Redis is unavailable, because a job that is given up waits until its lock expires."""
        locked: list[Claim] = []
        while time.monotonic() < until_s and not self._is_stopping:
            try:
                states = await self.target.store.renew(
                    [(claim.id, claim.fence) for claim in claims]
                )
            except StoreError:
                await asyncio.sleep(RENEW_RETRY_S)
            else:
                locked = [c for c, state in zip(claims, states, strict=True) if state != "lost"]
                break
        if time.monotonic() >= until_s:
            log.warning("jobs_begun_too_late", target=self.target.name)
            locked = []
        late = [claim for claim in claims if claim not in locked]
        for claim in late:
            if any(job.id == claim.id for job in started_jobs):
                await self._reset_to_pending(claim, "its worker was too slow")
        await self._requeue(late)
        return locked

    def _start_calls(
        self,
        claims: Sequence[Claim],
        started_jobs: Sequence[Job],
        *,
        until_s: float,
        window: SendWindow | None,
    ) -> None:
        jobs_by_id = {job.id: job for job in started_jobs}
        for claim in claims:
            job = jobs_by_id.get(claim.id)
            call = _RunningCall(
                claim, until_s, trace_id=job.trace_id if job else None, window=window
            )
            older = self._calls.get(claim.id)
            if older is not None and not older.is_over:  # the queue was rebuilt
                older.reason = "lost"
                older.task.cancel()
            if job is None:  # cancelled, expired, or ended by a worker that could not release it
                work = self._drop(claim)
            elif has_lost_too_many_workers(job, self.target.settings):
                work = self._give_up(job, claim)
            else:
                work = self._make_call(job, call)
            call.task = asyncio.create_task(work)
            self._calls[claim.id] = call
            self._has_calls.set()
            call.task.add_done_callback(partial(self._forget_call, call))

    def _forget_call(self, call: _RunningCall, _: asyncio.Task[None]) -> None:
        if self._calls.get(call.claim.id) is call:
            del self._calls[call.claim.id]
        self._listener.wake_event.set()

    async def _make_call(self, job: Job, call: _RunningCall) -> None:
        target, metrics, began_s = self.target, self._jobs.metrics, time.monotonic()
        log_trace(job.trace)
        try:
            sink = partial(self._store_chunk, call)
            result = await self._egress.call(target.settings, job, sink=sink, window=call.window)
        except asyncio.CancelledError:
            if call.reason == "abort":
                await asyncio.shield(self._abort(call.claim))
            elif call.reason != "lost":
                await asyncio.shield(self._hand_over(call.claim))
            raise
        except LateCallError:
            _log_late_call(job)
            if call.window is not None and began_s < call.window.from_s:
                self._connection_count = max(1, self._connection_count)
            await self._reset_to_pending(call.claim, "its worker was too slow for strict")
            await self._drop(call.claim, retry_ms=target.clock.now_ms())
            return
        except DatabaseError as error:
            # A large response could not be stored, so the call is made again.
            log.warning("result_lost", job=job.id, target=target.name, error=str(error))
            await self._requeue([call.claim])
            return
        except Exception as error:
            log.exception("attempt_broken", job=job.id, target=target.name)
            result = CallResult("refused", f"an error of the worker: {type(error).__name__}")
        self._last_end_s = time.monotonic()
        ending = make_ending(result, job, target.settings, call.claim, now_ms=target.clock.now_ms())
        outcome = "rejected" if ending.outcome == "rejected" else result.kind
        metrics.job_seconds.labels(target.name, outcome).observe(result.took_us / 1_000_000)
        metrics.count_response(target.name, result.status)
        # From here on, the call must not be aborted, because its result must be written.
        call.is_over = True
        await self._write(ending, is_counted=True)
        if ending.error:
            log_fields = {"job": job.id, "target": target.name, "attempt": job.attempts}
            log.info("attempt_failed", **log_fields, state=ending.state, error=ending.error)
        with contextlib.suppress(StoreError):  # the lock expires by itself
            await target.store.release([ending], target.settings, wake_others=self._is_stopping)

    async def _store_chunk(self, call: _RunningCall, number: int, data: bytes) -> None:
        """Store a part of a large response. Waits for a locked row while the job's lock is renewed,
        because otherwise the call would be made again."""
        add_chunk, claim = self._jobs.store.attempts.add_chunk, call.claim
        while True:
            try:
                is_current = await add_chunk(claim.id, claim.fence, number, data)
            except DatabaseLockedError as error:
                log.warning("result_waits", job=claim.id, error=str(error))
                await asyncio.sleep(ERROR_PAUSE_S)
            else:
                break
        if not is_current:
            call.reason = "lost"
            raise asyncio.CancelledError

    async def _give_up(self, job: Job, claim: Claim) -> None:
        """Fail a job during whose calls too many workers died: it may be the cause."""
        log_trace(job.trace)
        error = f"{job.failures} workers that took it up were gone before the call was over"
        await self._write(self.target.make_ending(claim.id, claim.fence, State.FAILED, error))
        await self._drop(claim)

    async def _abort(self, claim: Claim) -> None:
        await self._write(self.target.make_abort_ending(claim.id, claim.fence), is_counted=True)
        await self._drop(claim)

    async def _hand_over(self, claim: Claim) -> None:
        """Return a job to the queue for other workers, because this worker stops."""
        await self._reset_to_pending(claim, "its worker stopped")
        await self._requeue([claim])

    async def _write(self, ending: AttemptEnd, *, is_counted: bool = False) -> None:
        """Write an ending to SQL. Retries without limit while the lock is renewed, because
        otherwise the call would be made again."""
        failures = 0
        while True:
            try:
                is_written = await self._jobs.finish(ending)
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
        """Reset a job to pending in SQL. If this fails, the job's next start counts a failure."""
        with contextlib.suppress(DatabaseError):
            await self._jobs.store.attempts.finish(
                self.target.make_ending(claim.id, claim.fence, State.PENDING, error)
            )

    async def _requeue(self, claims: Iterable[Claim]) -> None:
        await self._drop(*claims, retry_ms=self.target.clock.now_ms() + round(ERROR_PAUSE_S * 1000))

    async def _drop(self, *claims: Claim, retry_ms: int | None = None) -> None:
        """Release the locks of calls without a result. If this fails, the locks expire."""
        calls = [(claim.id, claim.fence) for claim in claims]
        with contextlib.suppress(StoreError):
            await self.target.store.drop(
                calls, self.target.settings, retry_ms=retry_ms, wake_others=self._is_stopping
            )

    async def _renew_forever(self) -> None:
        while True:
            await self._has_calls.wait()
            self._listener.abort_event.clear()
            await wait_for(self._listener.abort_event, RENEW_INTERVAL_S)
            if self._calls:
                await self._renew(list(self._calls.values()))
            else:
                self._has_calls.clear()

    async def _renew(self, calls: Sequence[_RunningCall]) -> None:
        """Renew the locks of calls. Cancel calls that a client aborted, and calls whose lock is
        lost or could not be renewed in time."""
        states: Sequence[str]
        began_s = time.monotonic()
        try:
            states = await self.target.store.renew(
                [(call.claim.id, call.claim.fence) for call in calls]
            )
        except StoreError as error:
            log.warning("locks_not_renewed", target=self.target.name, error=str(error))
            states = ["unknown"] * len(calls)
        for call, state in zip(calls, states, strict=True):
            if state == "held":
                call.until_s = began_s + LOCK_S - LOCK_MARGIN_S
            elif call.is_over or call.task.done():
                continue
            elif state in {"abort", "lost"} or began_s >= call.until_s:
                call.reason = "abort" if state == "abort" else "lost"
                fields = {"job": call.claim.id, "target": self.target.name, "why": state}
                if call.trace_id is not None:
                    fields["trace_id"] = call.trace_id
                log.info("call_cut_off", **fields)
                call.task.cancel()


def _log_late_call(job: Job) -> None:
    fields = {"job": job.id, "target": job.target, "attempt": job.attempts}
    if job.attempts < LATE_WARNING_ATTEMPT:
        log.info("call_too_late", **fields)
    else:
        hint = "with strict, a call must be sent within 0.275 s after its claim"
        log.warning("call_too_late", **fields, hint=hint)


_PoolEntry: TypeAlias = tuple[TargetWorker, asyncio.Task[None]]


class WorkerPool:
    """The target workers of one process, one for each target that has offline jobs, including
    targets that are created at run time."""

    def __init__(self, jobs: Jobs, wake_ups: WakeUps, egress: Egress, *, max_calls: int) -> None:
        self._jobs = jobs
        self._wake_ups = wake_ups
        self._egress = egress
        self._max_calls = max_calls
        self._workers: dict[str, _PoolEntry] = {}
        #: Workers of removed or replaced targets, which finish their calls.
        self._finishing: list[_PoolEntry] = []

    async def run(self, stop: asyncio.Event, *, grace_s: float = 0.0, poll_s: float = 1.0) -> None:
        """Run until `stop` is set. Then wait up to `grace_s` for calls in progress."""
        try:
            while not stop.is_set():
                self._update_workers()
                await wait_for(stop, poll_s)
            call_count = sum(len(worker) for worker, _ in self._workers.values())
            log.info("stopping", under_way=call_count, grace_seconds=grace_s)
            for worker, _ in self._workers.values():
                worker.stop()
            if tasks := self._tasks():
                await asyncio.wait(tasks, timeout=grace_s)
        finally:
            await stop_workers(*self._tasks())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for _, task in (*self._workers.values(), *self._finishing)]

    def _update_workers(self) -> None:
        targets = {target.name: target for target in self._jobs.targets}
        self._finishing = [(worker, task) for worker, task in self._finishing if not task.done()]
        for name, (worker, task) in list(self._workers.items()):
            if worker.target is not targets.get(name):
                worker.stop()
                self._finishing.append((worker, task))
                del self._workers[name]
            elif task.done():
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.error("target_worker_failed", target=name, exc_info=error)
                del self._workers[name]
        for name, target in targets.items():
            if name not in self._workers and "offline" in target.settings.kinds:
                worker = TargetWorker(
                    target, self._jobs, self._egress, self._wake_ups, max_calls=self._max_calls
                )
                self._workers[name] = worker, asyncio.create_task(worker.run())
