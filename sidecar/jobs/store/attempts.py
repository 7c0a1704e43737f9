"""Records attempts of jobs in SQL, for workers and reconcilers. Only the attempt with a job's
latest `fence` may write: an older attempt was too slow, and another worker has the job by now."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import (
    ACTIVE_STATES,
    ENDED_STATES,
    WAITING_STATES,
    AttemptEnd,
    Job,
    QueueEntry,
    State,
)
from sidecar.jobs.store.tables import FIND, FIND_WITH_BODY, chunks, jobs, lock_jobs, to_job
from sidecar.kit.batch import CallBatcher
from sidecar.storage.sql.transactions import Transactions, isolate_errors

#: The maximum number of jobs in one transaction.
BATCH_LIMIT = 200
#: The maximum length of an error text in the database, in characters.
_MAX_ERROR_LENGTH = 1000
_UPDATE_JOB = update(jobs).where(jobs.c.id == bindparam("job_id"))
_DELETE_STALE = delete(chunks).where(
    chunks.c.job == bindparam("job_id"), chunks.c.fence != bindparam("latest_fence")
)
_SELECT_ENTRIES = select(
    jobs.c.id, jobs.c.queue_order, jobs.c.kind == "online", jobs.c.not_before_ms
).order_by(jobs.c.queue_order, jobs.c.id)


class AttemptRepository:
    """Records the attempts of jobs, and lists the jobs from which a target's queue is rebuilt."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._upsert_chunk = transactions.upsert(chunks)
        self._endings = CallBatcher(partial(isolate_errors, self._finish), limit=BATCH_LIMIT)

    async def list_waiting_jobs(
        self,
        target: str,
        after: tuple[int, str] | None,
        limit: int,
        *,
        before_ms: int | None = None,
    ) -> list[QueueEntry]:
        """Return a page of a target's pending jobs (submitted before `before_ms`, if given), in
        queue order. `after` is the order and id of the last job on the previous page."""
        query = _SELECT_ENTRIES.where(jobs.c.target == target, jobs.c.state == State.PENDING)
        if after is not None:
            order, id_ = after
            later = (jobs.c.queue_order > order) | (jobs.c.id > id_)
            query = query.where(jobs.c.queue_order >= order, later)
        if before_ms is not None:
            query = query.where(jobs.c.created_ms < before_ms)
        return [QueueEntry(*row) for row in await self._transactions.read(query.limit(limit))]

    async def list_running_jobs(self, target: str) -> list[Job]:
        """Return a target's jobs that are called or processing, without their bodies."""
        query = FIND.where(jobs.c.target == target, jobs.c.state.in_(ACTIVE_STATES))
        rows = await self._transactions.read(query.order_by(jobs.c.queue_order))
        return [to_job(row) for row in rows]

    async def find_busy_targets(self, targets: Iterable[str]) -> set[str]:
        """Return which of the targets have waiting or running jobs."""
        if not (names := list(targets)):
            return set()
        states = WAITING_STATES | ACTIVE_STATES
        conditions = (jobs.c.target.in_(names), jobs.c.state.in_(states))
        query = select(jobs.c.target).where(*conditions).distinct()
        return {name for (name,) in await self._transactions.read(query)}

    async def find_last_start_ms(self, target: str) -> int | None:
        """Return when the target's latest call began. None if the database has no such call."""
        of_target = jobs.c.target == target
        running = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms.is_(None))
        ended = (
            select(jobs.c.started_ms)
            .where(of_target, jobs.c.ended_ms.is_not(None), jobs.c.started_ms.is_not(None))
            .order_by(jobs.c.ended_ms.desc())
            .limit(1)
        )
        rows = [*await self._transactions.read(running), *await self._transactions.read(ended)]
        last_ms: int | None = max((ms for (ms,) in rows if ms is not None), default=None)
        if last_ms is None:
            return None
        # Calls that began later must also have ended later, so this query reads few rows.
        later = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms >= last_ms)
        [(latest_ms,)] = await self._transactions.read(later)
        return max(last_ms, int(latest_ms or 0))

    async def start(self, claims: Sequence[tuple[str, int]], *, at_ms: int) -> list[Job]:
        """Start claimed jobs, given as (id, fence), and return the started jobs with their bodies.
        Skips jobs that have expired or ended, or that another transaction has locked. If the
        previous worker of a job was lost, that counts as a failure of the job. Idempotent."""
        fences = dict(claims)
        if not fences:
            return []
        query = FIND_WITH_BODY.where(jobs.c.id.in_(fences)).order_by(jobs.c.id)
        query = query.with_for_update(skip_locked=True)

        async def work(connection: AsyncConnection) -> list[Job]:
            claimed, started = list[Job](), list[dict[str, Any]]()
            for job in map(to_job, await connection.execute(query)):
                fence, current = fences[job.id], job
                is_lost = job.state in ACTIVE_STATES and job.fence < fence
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
                    started.append({"job_id": job.id, **changes})
                if current.state is State.PROCESSING and current.fence == fence:
                    claimed.append(current)
            if started:
                await connection.execute(_UPDATE_JOB, started)
            return claimed

        return await self._transactions.write(work)

    async def finish(self, ending: AttemptEnd) -> bool:
        """Write an attempt's ending. Return False if another attempt has the job. Idempotent."""
        is_written = await self._endings.submit(ending)
        if is_written is None:  # locked: wait for it in a separate transaction
            write = partial(self._write_endings, batch=[ending], waits=True)
            [is_written] = await self._transactions.write(write)
        return bool(is_written)

    async def _finish(self, batch: Sequence[AttemptEnd]) -> list[bool | None]:
        return await self._transactions.write(partial(self._write_endings, batch=batch))

    async def _write_endings(
        self, connection: AsyncConnection, batch: Sequence[AttemptEnd], *, waits: bool = False
    ) -> list[bool | None]:
        """Write the endings of attempts. For each, return True, False if another attempt has the
        job, or None if another transaction has locked the job and `waits` is False."""
        ids = {ending.id for ending in batch}
        jobs_by_id = {job.id: job for job in await lock_jobs(connection, [*ids], waits=waits)}
        locked_ids: set[str] = set()
        if missing_ids := ids - jobs_by_id.keys():
            find = select(jobs.c.id).where(jobs.c.id.in_(missing_ids))
            locked_ids = {row.id for row in await connection.execute(find)}
        replies, written, bodies, stale = list[bool | None](), [], [], []
        for ending in batch:
            job = jobs_by_id.get(ending.id)
            if job is None or job.fence != ending.fence:
                replies.append(None if ending.id in locked_ids else False)
                continue
            replies.append(job.state in ACTIVE_STATES or job.state is ending.state)
            if job.state not in ACTIVE_STATES:
                continue
            job.state = ending.state
            written.append({"job_id": job.id, **_make_ending_values(ending, job)})
            if ending.body:
                bodies.append(_make_chunk_row(job.id, job.fence, 0, ending.body))
            if job.attempts > 1 and job.is_ended:
                stale.append({"job_id": job.id, "latest_fence": job.fence})
        statements = (_UPDATE_JOB, written), (self._upsert_chunk, bodies), (_DELETE_STALE, stale)
        for statement, rows in statements:
            if rows:
                await connection.execute(statement, rows)
        return replies

    async def add_chunk(self, id_: str, fence: int, number: int, data: bytes) -> bool:
        """Write part `number` (from 0) of a body. Return False if another worker has the job."""
        is_current = (jobs.c.id == id_, jobs.c.fence == fence, jobs.c.state == State.PROCESSING)

        async def work(connection: AsyncConnection) -> bool:
            rows = await connection.execute(select(jobs.c.id).where(*is_current).with_for_update())
            if rows.first() is None:
                return False
            await connection.execute(self._upsert_chunk, _make_chunk_row(id_, fence, number, data))
            return True

        return await self._transactions.write(work)

    async def mark_called(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """Record that an online job was called. Return False if the job has expired, or is neither
        pending nor called. Idempotent."""
        is_pending = and_(jobs.c.state == State.PENDING, jobs.c.expires_ms > at_ms)
        is_called = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        change = update(jobs).where(jobs.c.id == id_, or_(is_pending, is_called))
        return await self._transactions.change(
            change.values(state=State.CALLED, called_ms=at_ms, fence=fence, not_before_ms=None)
        )

    async def mark_permit_used(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """Record that a permit was used, so that the call has begun. Return False if the job has
        ended, or has a later permit. Idempotent."""
        is_called = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        change = update(jobs).where(jobs.c.id == id_, or_(jobs.c.state == State.PENDING, is_called))
        values = {"state": State.PROCESSING, "started_ms": at_ms, "fence": fence}
        values |= {"attempts": jobs.c.attempts + 1, "not_before_ms": None}
        if await self._transactions.change(change.values(values)):
            return True
        is_used = (jobs.c.id == id_, jobs.c.state == State.PROCESSING, jobs.c.fence == fence)
        return bool(await self._transactions.read(select(jobs.c.id).where(*is_used)))


def _make_chunk_row(id_: str, fence: int, number: int, data: bytes) -> dict[str, Any]:
    return {"job": id_, "fence": fence, "number": number, "data": data}


def _make_ending_values(ending: AttemptEnd, job: Job) -> dict[str, Any]:
    """Return the columns that an ending changes in its job's row."""
    has_ended = ending.state in ENDED_STATES
    # An error may quote a response, with characters that a text column refuses.
    error = ending.error[:_MAX_ERROR_LENGTH].replace("\0", "").encode(errors="replace").decode()
    return {
        "state": ending.state,
        "expires_ms": job.expires_ms if ending.expires_ms is None else ending.expires_ms,
        "not_before_ms": None if has_ended else ending.not_before_ms,
        "ended_ms": ending.at_ms if has_ended else None,
        "failures": job.failures + ending.is_counted,
        "error": error,
        "status": ending.status,
        "result_headers": ending.headers if has_ended else {},
        "result_size": ending.size if has_ended else 0,
        "callback_ms": ending.at_ms if has_ended and job.callback_url is not None else None,
    }
