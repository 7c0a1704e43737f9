"""Keeps the lines of jobs: rebuilds what the store lost, calls online jobs, and ends what nobody
came for. Every replica and runner has one; where it matters, one of them has the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import Ending, State
from sidecar.jobs.redis_keys import target_key
from sidecar.jobs.service import ms
from sidecar.jobs.store.target_queue import LOCK_S
from sidecar.jobs.store.target_replies import Held, Release, Waiting
from sidecar.jobs.worker.wake_ups import IDLE_S
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.redis.leader_lease import Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.jobs.model import Job
    from sidecar.jobs.service import Jobs
    from sidecar.jobs.settings import TargetSettings
    from sidecar.jobs.targets import Target
    from sidecar.jobs.worker.wake_ups import News
    from sidecar.kit.metrics import Metrics
    from sidecar.kit.redis.connect import Store

#: Between two looks at the settings, where there was no news of them; at the state of a line that
#: has something to do, and of one of which only the metrics change by themselves; and at what is
#: over, where something waits or runs and where nothing does, seconds.
REFRESH_S = 10.0
LOOK_S = 1.0
GAUGES_S = 5.0
CLEAN_S, IDLE_CLEAN_S = 5.0, 30.0
#: A job that the database has and the line has not is put there after so long: who submitted it
#: has died, or the store was away.
RECONCILE_S = 20.0
#: A line that was lost is built again after so long, where jobs were called just before: a runner
#: that was given some tells the database so first.
SETTLE_S = 0.5
#: Rows at a time.
PAGE = 1000
BATCH = 500
#: For how long a turn is held without being renewed, ms.
TURN_MS = 15_000

log = structlog.get_logger()


class Keeper:
    def __init__(  # noqa: PLR0913
        self,
        jobs: Jobs,
        redis: Store,
        metrics: Metrics,
        news: News,
        *,
        replica: str,
        timeout_s: float,
    ) -> None:
        self._jobs = jobs
        self._redis = redis
        self._metrics = metrics.of(JobMetrics)
        self._news = news
        self._replica = replica
        self._timeout_s = timeout_s
        self._lines: dict[str, tuple[Target, asyncio.Task[None]]] = {}
        #: Targets of which nothing waits and nothing runs, as far as is known.
        self._idle: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._refresh_forever())
                group.create_task(self._clean_forever())
                group.create_task(self._reconcile_forever())
        finally:
            for _, task in self._lines.values():
                task.cancel()

    async def _refresh_forever(self) -> None:
        while True:
            self._news.changed.clear()
            with contextlib.suppress(DatabaseError):
                for name in await self._jobs.targets.refresh():
                    self._news.tell(name)
            known = {target.name: target for target in self._jobs.targets}
            for name, (target, task) in list(self._lines.items()):
                if known.get(name) is not target or task.done():
                    task.cancel()
                    self._idle.discard(name)
                    del self._lines[name]
            for name in known.keys() - self._lines.keys():
                task = asyncio.create_task(self._keep_forever(known[name]))
                self._lines[name] = known[name], task
            await _rest(self._news.changed, REFRESH_S)

    # One line ---------------------------------------------------------------------------------

    async def _keep_forever(self, target: Target) -> None:
        news = self._news.of(target.name)
        while True:
            rest_s = LOOK_S
            news.woken.clear()
            try:
                rest_s = await self._keep(target)
            except (StoreError, DatabaseError) as error:
                log.debug("line_not_kept", target=target.name, error=str(error))
            except Exception:
                log.exception("keeper_failed", target=target.name)
            if rest_s == LOOK_S and "online" not in target.settings.kinds:
                await asyncio.sleep(rest_s)  # it is looked soon enough: runners make the calls
            else:
                await _rest(news.woken, rest_s)

    async def _keep(self, target: Target) -> float:
        """How long to rest."""
        claimed = await target.store.claim(0, target.settings)
        if not claimed.is_ready:
            if not await self._turn(target, "rebuilding").hold(milliseconds=TURN_MS):
                return LOOK_S
            await self.rebuild(target, born_us=claimed.born_us)
            return 0.05
        await self._jobs.called(target, claimed.claims)
        over = await target.store.ended()
        for id_, why, at_ms in over:
            await self._end(target, id_, why, at_ms)
        await target.store.forget(over)
        (line, _) = await target.store.look([], target.settings)
        self._metrics.targets.learn(target.name, target.settings, line)
        if claimed.next_s is None and line.is_idle:
            self._idle.add(target.name)
            return GAUGES_S if line.calls_in_window or line.breaker == "open" else IDLE_S
        self._idle.discard(target.name)
        if claimed.next_s is None or "online" not in target.settings.kinds:
            return LOOK_S
        return min(LOOK_S, max(0.005, claimed.next_s))

    async def _end(self, target: Target, id_: str, why: str, at_ms: int) -> None:
        """An online job whose permit nobody used, or whose call took too long to say that it was
        over."""
        job = await self._jobs.store.jobs.find(id_)
        if job is None or job.is_ended:
            return
        is_unused = why == "unused"
        state = State.EXPIRED if is_unused else State.COMPLETED
        error = "nobody used the permit" if is_unused else "it did not say when it was over"
        kept_ms = at_ms + ms(target.settings.result_ttl)
        await self._jobs.store.attempts.finish(Ending(id_, job.fence, state, at_ms, kept_ms, error))
        self._metrics.jobs.labels(target.name, state).inc()

    async def rebuild(self, target: Target, *, born_us: int) -> None:
        """After the store was emptied, or before it is used for the first time: those that wait,
        in their order; those that are being called, whose runners may live. Until that is done
        nothing is called, and then nothing for as long as the rate may be used up."""
        began = time.monotonic()
        backlog = self._jobs.store.backlog
        running = await backlog.running(target.name)
        if running or await backlog.waiting(target.name, None, 1):
            await asyncio.sleep(SETTLE_S)
        held = await self._hold(target, await backlog.running(target.name))
        count = await self._line_up(target)
        last_ms = await backlog.last_started_ms(target.name)
        held |= await self._hold(target, await backlog.running(target.name))  # begun meanwhile
        wait_ms = 0
        if last_ms is not None and target.settings.rate is not None:
            wait_ms = max(0, last_ms + ms(target.settings.window) - target.clock.now_ms())
        is_ready = await target.store.ready(
            min(wait_ms, ms(target.settings.window)) * 1000, born_us
        )
        if is_ready and (count or held):
            log.info("line_rebuilt", target=target.name, waiting=count, running=len(held),
                     seconds=round(time.monotonic() - began, 3))  # fmt: skip

    async def _hold(self, target: Target, jobs: Sequence[Job]) -> set[str]:
        """They are being called, for all that the store knows from now on. Their ids."""
        now_ms = target.clock.now_ms()
        held = [_held(job, target.settings, now_ms) for job in jobs]
        for start in range(0, len(held), PAGE):
            await target.store.hold(held[start : start + PAGE])
        # Some may have ended since they were read: nobody would ever say so again.
        known = await self._jobs.store.jobs.find_many(job.id for job in jobs)
        over = [
            Release(job.id, job.fence, "gone")
            for job in jobs
            if job.id not in known or known[job.id].is_ended
        ]
        if over:
            await target.store.release(over, target.settings, wakes=True)
        return {job.id for job in jobs}

    async def _reconcile_forever(self) -> None:
        """All targets of which something waits or runs, for all that the line or the database
        knows."""
        while True:
            await asyncio.sleep(RECONCILE_S)
            try:
                known = await self._jobs.store.backlog.unended(self._idle)
                for target in self._jobs.targets:
                    if target.name in known or target.name not in self._idle:
                        await self._reconcile(target)
            except (StoreError, DatabaseError) as error:
                log.debug("lines_not_reconciled", error=str(error))
            except Exception:
                log.exception("keeper_failed")

    async def _reconcile(self, target: Target) -> None:
        """Puts into the line what the database has and the line has not."""
        if not await self._turn(target, "reconciling").hold(milliseconds=TURN_MS):
            return
        before_ms = target.clock.now_ms() - ms(RECONCILE_S)
        running = await self._jobs.store.backlog.running(target.name)
        late = [job for job in running if (job.started_ms or job.called_ms or 0) < before_ms]
        line, places = await target.store.look([job.id for job in late], target.settings)
        if not line.is_ready:
            return
        lost = [job for job, place in zip(late, places, strict=True) if place.where == "gone"]
        await self._hold(target, lost)
        counts = await self._jobs.store.backlog.counts(target.name, [State.PENDING])
        waiting = sum(counts.values())
        if waiting > line.waiting + line.later:
            await self._line_up(target, before_ms=before_ms)
        elif waiting < line.waiting + line.later:
            await self._take_out(target)

    async def _take_out(self, target: Target) -> None:
        """Out of the line what has ended: the store was away when that happened."""
        async for ids in target.store.waiting_ids():
            known = await self._jobs.store.jobs.find_many(ids)
            for id_ in ids:
                job = known.get(id_)
                if job is None or job.is_ended:
                    await target.store.remove(id_)

    async def _line_up(self, target: Target, *, before_ms: int | None = None) -> int:
        """Those that wait, in their order; whoever is in the line stays. How many there are."""
        after, count = None, 0
        while True:
            rows = await self._jobs.store.backlog.waiting(target.name, after, PAGE)
            late = [row for row in rows if before_ms is None or row.created_ms < before_ms]
            for start in range(0, len(late), BATCH):
                await target.store.add(
                    [
                        Waiting(row.id, row.queue_order, row.is_online, row.not_before_ms)
                        for row in late[start : start + BATCH]
                    ]
                )
            count += len(rows)
            if len(rows) < PAGE:
                return count
            after = rows[-1].queue_order, rows[-1].id
            await self._turn(target, "rebuilding").hold(milliseconds=TURN_MS)

    def _turn(self, target: Target, work: str) -> Turn:
        return Turn(
            self._redis, target_key(target.name, work), owner=self._replica,
            timeout_s=self._timeout_s,
        )  # fmt: skip

    # What is over -----------------------------------------------------------------------------

    async def _clean_forever(self) -> None:
        while True:
            is_idle = all(
                target.name in self._idle and not target.settings.delete_after_read
                for target in self._jobs.targets
            )
            await asyncio.sleep(IDLE_CLEAN_S if is_idle else CLEAN_S)
            try:
                await self.clean()
            except (StoreError, DatabaseError) as error:
                log.debug("jobs_not_cleaned", error=str(error))
            except Exception:
                log.exception("keeper_failed")

    async def clean(self) -> tuple[int, int]:
        """Ends what waited too long, and removes what was kept long enough, in small batches. How
        many of each. Several at once do it together."""
        now_ms = _now_ms(self._jobs)
        kept = {target.name: ms(target.settings.result_ttl) for target in self._jobs.targets}
        expired = removed = 0
        while True:
            batch = await self._jobs.store.retention.expire(now_ms, BATCH, kept)
            for id_, name in batch:
                if target := self._jobs.targets.find(name):
                    with contextlib.suppress(StoreError):  # _take_out does it later
                        await target.store.remove(id_)
                    self._metrics.jobs.labels(name, State.EXPIRED).inc()
            expired += len(batch)
            if len(batch) < BATCH:
                break
        while True:
            count = await self._jobs.store.retention.delete_old(now_ms, BATCH)
            removed += count
            if not count:
                break
        if expired or removed:
            log.info("jobs_cleaned", expired=expired, removed=removed)
        return expired, removed


def _held(job: Job, settings: TargetSettings, now_ms: int) -> Held:
    """A job that somebody has: a runner, which may live, or whoever was given a permit."""
    if job.kind == "offline":
        return Held(job.id, job.fence, job.queue_order, now_ms + ms(LOCK_S), "r")
    if job.state is State.CALLED:
        ends_ms = now_ms + ms(settings.claim_window)
        return Held(job.id, job.fence, job.queue_order, ends_ms, "c")
    return Held(job.id, job.fence, job.queue_order, now_ms + ms(settings.timeout), "u")


async def _rest(woken: asyncio.Event, seconds: float) -> None:
    """`woken` is cleared before what it may say is looked at, so that none of it is missed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await woken.wait()


def _now_ms(jobs: Jobs) -> int:
    """By the clock of any target's store; all are about the same."""
    for target in jobs.targets:
        return target.clock.now_ms()
    return int(time.time() * 1000)
