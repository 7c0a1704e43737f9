"""Attempts at jobs in SQL: started, called, used, ended. Only the latest `fence` of a job writes:
who has an older one was slow, and the job is somebody else's by now."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, delete, or_, select, update

from sidecar.jobs.model import ENDED, RUNS, Ending, Job, State
from sidecar.jobs.store.tables import FIND_WHOLE, chunks, job_of, jobs, lock_jobs
from sidecar.kit.batch import Batcher
from sidecar.kit.sql.transactions import separately

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from sidecar.kit.sql.transactions import Transactions

#: Jobs in one transaction.
BATCH_LIMIT = 200
#: Characters of an error that are kept.
_ERROR_LENGTH = 1000
_UPDATE = update(jobs).where(jobs.c.id == bindparam("which"))
_DELETE_STALE = delete(chunks).where(
    chunks.c.job == bindparam("which"), chunks.c.fence != bindparam("mine")
)


class AttemptRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._put_chunk = transactions.upsert(chunks)
        self._endings = Batcher(partial(separately, self._finish), limit=BATCH_LIMIT)

    async def start(self, claims: Sequence[tuple[str, int]], *, at_ms: int) -> list[Job]:
        """Starts jobs that were claimed, each with its fence: those that are pending and not
        overdue, and those that another runner had, which counts as a failure. The jobs that are
        this claim's now, with their bodies. Idempotent."""
        fences = dict(claims)
        if not fences:
            return []
        found = FIND_WHOLE.where(jobs.c.id.in_(fences)).order_by(jobs.c.id).with_for_update()

        async def work(connection: AsyncConnection) -> list[Job]:
            ours, started = list[Job](), list[dict[str, Any]]()
            for job in map(job_of, await connection.execute(found)):
                fence = fences[job.id]
                is_lost = job.state in RUNS and job.fence < fence
                if is_lost or (job.state is State.PENDING and job.expires_ms > at_ms):
                    job.state, job.fence, job.started_ms = State.PROCESSING, fence, at_ms
                    job.attempts, job.failures = job.attempts + 1, job.failures + is_lost
                    job.not_before_ms = None
                    started.append({
                        "which": job.id, "state": job.state, "fence": fence, "started_ms": at_ms,
                        "attempts": job.attempts, "failures": job.failures, "not_before_ms": None,
                    })  # fmt: skip
                if job.state is State.PROCESSING and job.fence == fence:
                    ours.append(job)
            if started:
                await connection.execute(_UPDATE, started)
            return ours

        return await self._transactions.write(work)

    async def finish(self, ending: Ending) -> bool:
        """Writes how an attempt ended, while the job is still its own. Whether it is written.
        Idempotent."""
        return await self._endings.submit(ending)

    async def _finish(self, batch: Sequence[Ending]) -> list[bool]:
        async def work(connection: AsyncConnection) -> list[bool]:
            found = {job.id: job for job in await lock_jobs(connection, [one.id for one in batch])}
            replies, written, bodies, stale = list[bool](), [], [], []
            for ending in batch:
                job = found.get(ending.id)
                if job is None or job.fence != ending.fence:
                    replies.append(False)
                    continue
                replies.append(job.state in RUNS or job.state is ending.state)
                if job.state not in RUNS:
                    continue
                job.state = ending.state
                written.append({"which": job.id, **_ended(ending, job)})
                if ending.body:
                    bodies.append(
                        {"job": job.id, "fence": job.fence, "number": 0, "data": ending.body}
                    )
                if job.attempts > 1 and job.is_ended:
                    stale.append({"which": job.id, "mine": job.fence})
            statements = (_UPDATE, written), (self._put_chunk, bodies), (_DELETE_STALE, stale)
            for statement, rows in statements:
                if rows:
                    await connection.execute(statement, rows)
            return replies

        return await self._transactions.write(work)

    async def add_chunk(self, id_: str, fence: int, number: int, data: bytes) -> bool:
        """A part of the body of an answer, counted from 0. False: the job is somebody else's by
        now, and nothing was written."""
        mine = (jobs.c.id == id_, jobs.c.fence == fence, jobs.c.state == State.PROCESSING)
        part = {"job": id_, "fence": fence, "number": number, "data": data}

        async def work(connection: AsyncConnection) -> bool:
            found = await connection.execute(select(jobs.c.id).where(*mine).with_for_update())
            if found.first() is None:
                return False
            await connection.execute(self._put_chunk, part)
            return True

        return await self._transactions.write(work)

    # Online -----------------------------------------------------------------------------------

    async def set_called(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """The job has its permit. False: it is overdue, or something else by now."""
        free = and_(jobs.c.state == State.PENDING, jobs.c.expires_ms > at_ms)
        again = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        called = update(jobs).where(jobs.c.id == id_, or_(free, again))
        return await self._transactions.change(
            called.values(state=State.CALLED, called_ms=at_ms, fence=fence, not_before_ms=None)
        )

    async def set_used(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """The permit was used: the call has begun. Idempotent."""
        called = and_(jobs.c.state == State.CALLED, jobs.c.fence <= fence)
        used = update(jobs).where(jobs.c.id == id_, or_(jobs.c.state == State.PENDING, called))
        if await self._transactions.change(
            used.values(
                state=State.PROCESSING, started_ms=at_ms, fence=fence,
                attempts=jobs.c.attempts + 1, not_before_ms=None,
            )
        ):  # fmt: skip
            return True
        mine = (jobs.c.id == id_, jobs.c.state == State.PROCESSING, jobs.c.fence == fence)
        return bool(await self._transactions.read(select(jobs.c.id).where(*mine)))


def _ended(ending: Ending, job: Job) -> dict[str, Any]:
    """What is written to the job."""
    is_over = ending.state in ENDED
    return {
        "state": ending.state,
        "expires_ms": job.expires_ms if ending.expires_ms is None else ending.expires_ms,
        "not_before_ms": None if is_over else ending.not_before_ms,
        "ended_ms": ending.at_ms if is_over else None,
        "failures": job.failures + ending.is_counted,
        # It may quote what a target has sent, and no text column takes all of that.
        "error": ending.error[:_ERROR_LENGTH].replace("\0", "").encode(errors="replace").decode(),
        "status": ending.status,
        "result_headers": ending.headers if is_over else {},
        "result_size": ending.size if is_over else 0,
        "callback_ms": ending.at_ms if is_over and job.callback_url is not None else None,
    }
