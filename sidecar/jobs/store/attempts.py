"""Jobs in SQL, for workers and reconcilers: which of them wait and run, from which queues are
rebuilt, and their attempts. Only a job's latest `fence` writes: an attempt with an older one was
too slow, and another worker has the job by now."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import ENDED, RUNS, WAITS, Ending, Job, QueueEntry, State
from sidecar.jobs.store.tables import FIND, FIND_WHOLE, chunks, job_of, jobs, lock_jobs
from sidecar.kit.batch import CallBatcher
from sidecar.storage.sql.transactions import Transactions, separately

#: Jobs in one transaction.
BATCH_LIMIT = 200
#: Characters of an error that are kept.
_ERROR_LENGTH = 1000
_UPDATE = update(jobs).where(jobs.c.id == bindparam("which"))
_DELETE_STALE = delete(chunks).where(
    chunks.c.job == bindparam("which"), chunks.c.fence != bindparam("mine")
)
_WAITING = select(
    jobs.c.id, jobs.c.queue_order, jobs.c.kind == "online", jobs.c.not_before_ms
).order_by(jobs.c.queue_order, jobs.c.id)


class AttemptRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._put_chunk = transactions.upsert(chunks)
        self._endings = CallBatcher(partial(separately, self._finish), limit=BATCH_LIMIT)

    # What waits and runs ----------------------------------------------------------------------

    async def waiting(
        self,
        target: str,
        after: tuple[int, str] | None,
        limit: int,
        *,
        before_ms: int | None = None,
    ) -> list[QueueEntry]:
        """Return a target's pending jobs, in their order, submitted before `before_ms`. `after`:
        order and id of the previous page's last one."""
        query = _WAITING.where(jobs.c.target == target, jobs.c.state == State.PENDING)
        if after is not None:
            order, id_ = after
            later = (jobs.c.queue_order > order) | (jobs.c.id > id_)
            query = query.where(jobs.c.queue_order >= order, later)
        if before_ms is not None:
            query = query.where(jobs.c.created_ms < before_ms)
        return [QueueEntry(*row) for row in await self._transactions.read(query.limit(limit))]

    async def running(self, target: str) -> list[Job]:
        """Return a target's jobs that are called or processing."""
        query = FIND.where(jobs.c.target == target, jobs.c.state.in_(RUNS))
        rows = await self._transactions.read(query.order_by(jobs.c.queue_order))
        return [job_of(row) for row in rows]

    async def unended(self, targets: Iterable[str]) -> set[str]:
        """Return which of these targets have jobs that wait or run."""
        if not (names := list(targets)):
            return set()
        of_some = (jobs.c.target.in_(names), jobs.c.state.in_({*WAITS, *RUNS}))
        query = select(jobs.c.target).where(*of_some).distinct()
        return {name for (name,) in await self._transactions.read(query)}

    async def last_started_ms(self, target: str) -> int | None:
        """Return when the target's latest call began; None: never, or that is unknown."""
        of_target = jobs.c.target == target
        going = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms.is_(None))
        ended = (
            select(jobs.c.started_ms)
            .where(of_target, jobs.c.ended_ms.is_not(None), jobs.c.started_ms.is_not(None))
            .order_by(jobs.c.ended_ms.desc())
            .limit(1)
        )
        rows = [*await self._transactions.read(going), *await self._transactions.read(ended)]
        last_ms: int | None = max((ms for (ms,) in rows if ms is not None), default=None)
        if last_ms is None:
            return None
        # A call that began later than this one ended later, too: there are few of these.
        later = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms >= last_ms)
        [(latest_ms,)] = await self._transactions.read(later)
        return max(last_ms, int(latest_ms or 0))

    # Attempts ---------------------------------------------------------------------------------

    async def start(self, claims: Sequence[tuple[str, int]], *, at_ms: int) -> list[Job]:
        """Start jobs (id, fence) that were claimed: those that are pending and not overdue, and
        those that another worker had, which counts as a failure. Return the started jobs, with
        their bodies. Idempotent."""
        fences = dict(claims)
        if not fences:
            return []
        query = FIND_WHOLE.where(jobs.c.id.in_(fences)).order_by(jobs.c.id).with_for_update()

        async def work(connection: AsyncConnection) -> list[Job]:
            claimed, started = list[Job](), list[dict[str, Any]]()
            for job in map(job_of, await connection.execute(query)):
                fence, current = fences[job.id], job
                is_lost = job.state in RUNS and job.fence < fence
                if is_lost or (job.state is State.PENDING and job.expires_ms > at_ms):
                    changes: dict[str, Any] = {
                        "state": State.PROCESSING,
                        "fence": fence,
                        "started_ms": at_ms,
                        "attempts": job.attempts + 1,
                        "failures": job.failures + is_lost,
                        "not_before_ms": None,
                    }
                    current = replace(job, **changes)
                    started.append({"which": job.id, **changes})
                if current.state is State.PROCESSING and current.fence == fence:
                    claimed.append(current)
            if started:
                await connection.execute(_UPDATE, started)
            return claimed

        return await self._transactions.write(work)

    async def finish(self, ending: Ending) -> bool:
        """Write an ending. Return False if another attempt has the job by now. Idempotent."""
        return await self._endings.submit(ending)

    async def _finish(self, batch: Sequence[Ending]) -> list[bool]:
        async def work(connection: AsyncConnection) -> list[bool]:
            jobs_by_id = {
                job.id: job for job in await lock_jobs(connection, [one.id for one in batch])
            }
            replies, written, bodies, stale = list[bool](), [], [], []
            for ending in batch:
                job = jobs_by_id.get(ending.id)
                if job is None or job.fence != ending.fence:
                    replies.append(False)
                    continue
                replies.append(job.state in RUNS or job.state is ending.state)
                if job.state not in RUNS:
                    continue
                job.state = ending.state
                written.append({"which": job.id, **_values_of(ending, job)})
                if ending.body:
                    bodies.append(_chunk(job.id, job.fence, 0, ending.body))
                if job.attempts > 1 and job.is_ended:
                    stale.append({"which": job.id, "mine": job.fence})
            statements = (_UPDATE, written), (self._put_chunk, bodies), (_DELETE_STALE, stale)
            for statement, rows in statements:
                if rows:
                    await connection.execute(statement, rows)
            return replies

        return await self._transactions.write(work)

    async def add_chunk(self, id_: str, fence: int, number: int, data: bytes) -> bool:
        """Write a part of a response's body, counted from 0. Return False if another worker has the
        job by now."""
        mine = (jobs.c.id == id_, jobs.c.fence == fence, jobs.c.state == State.PROCESSING)

        async def work(connection: AsyncConnection) -> bool:
            rows = await connection.execute(select(jobs.c.id).where(*mine).with_for_update())
            if rows.first() is None:
                return False
            await connection.execute(self._put_chunk, _chunk(id_, fence, number, data))
            return True

        return await self._transactions.write(work)

    async def set_called(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """Write that an online job has its permit. Return False if it is overdue, or not
        pending."""
        free = and_(jobs.c.state == State.PENDING, jobs.c.expires_ms > at_ms)
        again = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        called = update(jobs).where(jobs.c.id == id_, or_(free, again))
        return await self._transactions.change(
            called.values(state=State.CALLED, called_ms=at_ms, fence=fence, not_before_ms=None)
        )

    async def set_used(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """Write that a permit was used: the call has begun. Idempotent."""
        called = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        used = update(jobs).where(jobs.c.id == id_, or_(jobs.c.state == State.PENDING, called))
        values = {"state": State.PROCESSING, "started_ms": at_ms, "fence": fence}
        values |= {"attempts": jobs.c.attempts + 1, "not_before_ms": None}
        if await self._transactions.change(used.values(values)):
            return True
        mine = (jobs.c.id == id_, jobs.c.state == State.PROCESSING, jobs.c.fence == fence)
        return bool(await self._transactions.read(select(jobs.c.id).where(*mine)))


def _chunk(id_: str, fence: int, number: int, data: bytes) -> dict[str, Any]:
    return {"job": id_, "fence": fence, "number": number, "data": data}


def _values_of(ending: Ending, job: Job) -> dict[str, Any]:
    """Return the values that an ending writes to its job."""
    is_over = ending.state in ENDED
    return {
        "state": ending.state,
        "expires_ms": job.expires_ms if ending.expires_ms is None else ending.expires_ms,
        "not_before_ms": None if is_over else ending.not_before_ms,
        "ended_ms": ending.at_ms if is_over else None,
        "failures": job.failures + ending.is_counted,
        # It may quote what a target sent, and no text column takes all of that.
        "error": ending.error[:_ERROR_LENGTH].replace("\0", "").encode(errors="replace").decode(),
        "status": ending.status,
        "result_headers": ending.headers if is_over else {},
        "result_size": ending.size if is_over else 0,
        "callback_ms": ending.at_ms if is_over and job.callback_url is not None else None,
    }
