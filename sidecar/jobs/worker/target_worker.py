"""Makes the calls of offline jobs: takes them from the lines, calls, writes what came of it.

A job is done in four steps, and each may be the last: claimed (the store), begun (the database),
called, written (the database) and released (the store). Whoever dies between two of them leaves a
lock that ends, and another runner takes the job up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import Outcome
from sidecar.jobs.retry import judge
from sidecar.jobs.store.target_queue import LOCK_S
from sidecar.jobs.store.target_replies import Release
from sidecar.jobs.worker.wake_ups import IDLE_S
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.jobs.model import Ending, Job
    from sidecar.jobs.service import Jobs
    from sidecar.jobs.store.target_replies import Claim
    from sidecar.jobs.targets import Target
    from sidecar.jobs.worker.target_call import Egress
    from sidecar.jobs.worker.wake_ups import News
    from sidecar.kit.metrics import Metrics

#: Jobs that are claimed at a time, of one target.
CLAIMS = 50
#: Between two renewals of the locks, seconds; and how long before its end a lock that could not be
#: renewed is given up.
RENEW_S = 2.0
MARGIN_S = 1.0
#: While there is something to do it is looked so often without news, seconds; and after something
#: failed.
LOOK_S = 5.0
REST_S = 1.0
#: Between a claim and its calls the store may have been lost, if that took longer, seconds.
SLOW_S = 0.1
#: How many runners more than `retries` a job may outlive.
LOST_MOST = 5
#: Between two tries to renew locks while the store is away, seconds.
RETRY_S = 0.2
#: Between tries to write a result.
WRITE_BACKOFF = Backoff(0.2, 5.0)

log = structlog.get_logger()


class Lane:
    """One target's jobs on this runner, `most` at a time."""

    def __init__(  # noqa: PLR0913
        self,
        target: Target,
        jobs: Jobs,
        egress: Egress,
        metrics: Metrics,
        news: News,
        *,
        most: int,
    ) -> None:
        self._target = target
        self._jobs = jobs
        self._egress = egress
        self._metrics = metrics.of(JobMetrics)
        self._most = most
        self._news = news.of(target.name, asks=True)
        self._running: dict[str, _Call] = {}
        self._has_calls = asyncio.Event()
        self._is_stopping = False

    @property
    def target(self) -> Target:
        return self._target

    def __len__(self) -> int:
        """How many calls are under way."""
        return len(self._running)

    def stop(self) -> None:
        """Begins no more calls."""
        self._is_stopping = True
        self._news.woken.set()

    async def run(self) -> None:
        """Until stopped, and then until its calls are over; cancelled, it cuts them off."""
        renewing = asyncio.create_task(self._renew_forever())
        try:
            while not self._is_stopping:
                self._news.woken.clear()
                try:
                    rest_s = await self._turn()
                except Exception:
                    log.exception("lane_failed", target=self._target.name)
                    rest_s = REST_S
                if rest_s > 0 and not self._is_stopping:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(rest_s):
                            await self._news.woken.wait()
            while self._running:
                await asyncio.wait([call.task for call in self._running.values()])
        finally:
            calls = [call.task for call in self._running.values()]
            for task in (*calls, renewing):
                task.cancel()
            await asyncio.gather(*calls, renewing, return_exceptions=True)

    async def _turn(self) -> float:
        """Begins what may be begun now. How long to wait for the next look, without news."""
        settings = self._target.settings
        free = min(CLAIMS, self._most - len(self._running))
        if free <= 0:
            return LOOK_S
        until = time.monotonic() + LOCK_S - MARGIN_S
        try:
            claimed = await self._target.store.claim(free, settings)
        except StoreError as error:
            log.warning("claim_failed", target=self._target.name, error=str(error))
            return REST_S
        if not claimed.is_ready:
            return REST_S  # the keeper is at it
        offline = [claim for claim in claimed.claims if not claim.is_online]
        online = [claim for claim in claimed.claims if claim.is_online]
        try:
            await self._jobs.called(self._target, online)
            ready = await self._jobs.store.attempts.start(
                [(claim.id, claim.fence) for claim in offline],
                at_ms=self._target.clock.now_ms(),
            ) if offline else []  # fmt: skip
        except (DatabaseError, StoreError) as error:
            log.warning("jobs_not_begun", target=self._target.name, error=str(error))
            await self._put_back(offline)
            return REST_S
        if time.monotonic() > until - LOCK_S + MARGIN_S + SLOW_S:
            # The line may be another by now, or others may have them.
            held = await self._held(offline, until=until)
            if time.monotonic() >= until:
                log.warning("jobs_begun_too_late", target=self._target.name)
                held = []
            begun, late = {job.id for job in ready}, [c for c in offline if c not in held]
            for claim in late:
                if claim.id in begun:
                    await self._write(self._unbegun(claim, "its runner was too slow"), tries=1)
            await self._put_back(late)
            offline = held
        self._begin(offline, ready, until=until)
        if len(offline) == free:
            return 0.0
        return IDLE_S if claimed.next_s is None else min(LOOK_S, max(0.001, claimed.next_s))

    async def _held(self, claims: Sequence[Claim], *, until: float) -> list[Claim]:
        """Those that are still this runner's. A store that is away is waited for: who gives them
        up leaves them to a lock that must end first, and others pass them meanwhile."""
        while time.monotonic() < until and not self._is_stopping:
            try:
                told = await self._target.store.renew([(one.id, one.fence) for one in claims])
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return [one for one, word in zip(claims, told, strict=True) if word != "lost"]
        return []

    def _begin(self, claims: Sequence[Claim], ready: Sequence[Job], *, until: float) -> None:
        by_id = {job.id: job for job in ready}
        for claim in claims:
            job = by_id.get(claim.id)
            call = _Call(claim, until)
            older = self._running.get(claim.id)
            if older is not None and not older.is_over:  # the line was lost, and has it again
                older.why = "lost"
                older.task.cancel()
            if job is None:
                work = self._drop(claim)
            elif job.failures > self._target.settings.retries + LOST_MOST:
                work = self._give_up(job, claim)
            else:
                work = self._work(job, call)
            call.task = asyncio.create_task(work)
            self._running[claim.id] = call
            self._has_calls.set()
            call.task.add_done_callback(partial(self._end, call))

    def _end(self, call: _Call, _: asyncio.Task[None]) -> None:
        if self._running.get(call.claim.id) is call:
            del self._running[call.claim.id]
        self._news.woken.set()

    async def _put_back(self, claims: Sequence[Claim]) -> None:
        again_ms = self._target.clock.now_ms() + round(REST_S * 1000)
        await self._release(
            [Release(claim.id, claim.fence, "gone", again_ms=again_ms) for claim in claims]
        )

    async def _drop(self, claim: Claim) -> None:
        """It was cancelled, has expired, or was ended by a runner that could not say so."""
        await self._release([Release(claim.id, claim.fence, "gone")])

    async def _give_up(self, job: Job, claim: Claim) -> None:
        """Whoever took it up was gone before it was over, again and again: it may be the job."""
        error = f"{job.failures} runners that took it up were gone before the call was over"
        await self._write(self._jobs.failed(self._target, job.id, claim.fence, error))
        await self._release([Release(claim.id, claim.fence, "gone")])

    async def _work(self, job: Job, call: _Call) -> None:
        target, settings = self._target, self._target.settings

        async def keep(number: int, data: bytes) -> None:
            if not await self._jobs.store.attempts.add_chunk(
                job.id, call.claim.fence, number, data
            ):
                call.why = "lost"
                raise asyncio.CancelledError

        try:
            outcome = await self._egress.call(settings, job, sink=keep)
        except asyncio.CancelledError:
            if call.why == "abort":
                await asyncio.shield(self._aborted(job, call))
            elif call.why != "lost":
                await asyncio.shield(self._stopped(call))
            raise
        except DatabaseError as error:
            # A large answer could not be kept: it is asked for again.
            log.warning("result_lost", job=job.id, target=target.name, error=str(error))
            await self._put_back([call.claim])
            return
        except Exception as error:
            log.exception("attempt_broken", job=job.id, target=target.name)
            outcome = broken(error)
        self._metrics.job_seconds.labels(target.name, outcome.kind).observe(
            outcome.took_us / 1_000_000
        )
        self._metrics.count_response(target.name, outcome.status)
        verdict = judge(outcome, job, settings, call.claim, now_ms=target.clock.now_ms())
        # The call is over, whatever comes of it: nobody cuts it off any more.
        call.is_over = True
        if await self._write(verdict.ending):
            self._metrics.jobs.labels(target.name, verdict.ending.state).inc()
        if verdict.ending.error:
            log.info("attempt_failed", job=job.id, target=target.name, attempt=job.attempts,
                     state=verdict.ending.state, error=verdict.ending.error)  # fmt: skip
        await self._release([verdict.release])

    async def _aborted(self, job: Job, call: _Call) -> None:
        ending = self._jobs.aborted(self._target, job.id, call.claim.fence)
        if await self._write(ending):
            self._metrics.jobs.labels(self._target.name, ending.state).inc()
        await self._release([Release(job.id, call.claim.fence, "gone")])

    async def _stopped(self, call: _Call) -> None:
        """This runner stops: another one makes the call again."""
        await self._write(self._unbegun(call.claim, "its runner stopped"), tries=1)
        await self._put_back([call.claim])

    def _unbegun(self, claim: Claim, why: str) -> Ending:
        return self._jobs.put_back(self._target, claim.id, claim.fence, why)

    async def _write(self, ending: Ending, *, tries: int | None = None) -> bool:
        """As often as it takes: what was called must not be called again for want of a database.
        Meanwhile the lock is renewed."""
        tried = 0
        while True:
            try:
                return await self._jobs.store.attempts.finish(ending)
            except DatabaseError as error:
                tried += 1
                if tried == tries:
                    return False
                delay_s = WRITE_BACKOFF.delay_s(tried)
                log.warning("result_waits", job=ending.id, error=str(error), again_in_s=delay_s)
                await asyncio.sleep(delay_s)

    async def _release(self, ends: Sequence[Release]) -> None:
        """What fails here ends with its lock."""
        with contextlib.suppress(StoreError):
            if ends:
                await self._target.store.release(
                    ends, self._target.settings, wakes=self._is_stopping
                )

    async def _renew_forever(self) -> None:
        while True:
            await self._has_calls.wait()
            self._news.urgent.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEW_S):
                    await self._news.urgent.wait()
            calls = list(self._running.values())
            if not calls:
                self._has_calls.clear()
                continue
            told: Sequence[str]
            began = time.monotonic()
            try:
                told = await self._target.store.renew(
                    [(call.claim.id, call.claim.fence) for call in calls]
                )
            except StoreError as error:
                log.warning("locks_not_renewed", target=self._target.name, error=str(error))
                told = ["away"] * len(calls)
            for call, word in zip(calls, told, strict=True):
                if word == "held":
                    call.until = began + LOCK_S - MARGIN_S
                elif call.is_over or call.task.done():
                    continue
                elif word in {"abort", "lost"} or began >= call.until:
                    call.why = "lost" if word == "away" else word
                    log.info("call_cut_off", job=call.claim.id, target=self._target.name, why=word)
                    call.task.cancel()


class _Call:
    """A call under way. `until`: when its lock is given up, on the monotonic clock."""

    __slots__ = ("claim", "is_over", "task", "until", "why")

    def __init__(self, claim: Claim, until: float) -> None:
        self.claim = claim
        self.until = until
        self.why = ""
        self.is_over = False
        self.task: asyncio.Task[None]


def broken(error: Exception) -> Outcome:
    """An error that nobody foresaw. Its job is not tried again."""
    return Outcome("refused", error=f"an error of the runner: {type(error).__name__}")
