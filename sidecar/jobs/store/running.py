"""The jobs in SQL, for those who run them: begun, used, ended. Of a job that runs, only who has
its latest `fence` writes.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, bindparam, case, delete, or_, select, update

from sidecar.jobs.model import ENDED, Ending, Job, State
from sidecar.jobs.store.tables import FIND_WHOLE, chunks, job_of, jobs, laid_over, written_map
from sidecar.jobs.store.transactions import AT_ONCE, RUNS, JobDatabase, apart
from sidecar.kit.batch import Batcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

#: Characters of an error that are kept.
_ERROR_LENGTH = 1000
#: What is looked at before an ending is written, and what is written.
_STANDS = [
    jobs.c[name]
    for name in ("id", "state", "fence", "attempts", "failures", "expires_ms", "callback_url")
]
_WRITTEN = (
    "state", "expires_ms", "not_before_ms", "ended_ms", "failures", "error", "status",
    "result_headers", "result_size", "callback_ms",
)  # fmt: skip
_IDS = jobs.c.id.in_(bindparam("ids", expanding=True))
_LOCK_WHOLE = FIND_WHOLE.where(_IDS).order_by(jobs.c.id).with_for_update()
_LOCK_STANDS = select(*_STANDS).where(_IDS).order_by(jobs.c.id).with_for_update()
_WRITE_ENDING = update(jobs).where(jobs.c.id == bindparam("which"))
_DELETE_STALE = delete(chunks).where(
    chunks.c.job == bindparam("which"), chunks.c.fence != bindparam("mine")
)


class JobRunning(JobDatabase):
    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._put_chunk = laid_over(engine.dialect.name, chunks)
        self._endings = Batcher(partial(apart, self._finish), limit=AT_ONCE)

    async def start(self, claims: Sequence[tuple[str, int]], *, at_ms: int) -> list[Job]:
        """Begins jobs that were claimed, each with its fence: those that are pending and not
        overdue, and those that somebody had before, which counts as a failure. The jobs that are
        this claim's now, with their bodies; doing it twice equals once."""
        fences = dict(claims)
        if not fences:
            return []

        async def work(connection: AsyncConnection) -> list[Job]:
            rows = await connection.execute(_LOCK_WHOLE, {"ids": list(fences)})
            told, begun, lost = list[Job](), list[Job](), list[str]()
            for job in map(job_of, rows.mappings()):
                fence = fences[job.id]
                is_free = job.state is State.PENDING and job.expires_ms > at_ms
                is_lost = job.state in RUNS and job.fence < fence
                if is_free or is_lost:
                    job.state, job.fence, job.started_ms = State.PROCESSING, fence, at_ms
                    job.attempts, job.not_before_ms = job.attempts + 1, None
                    job.failures += is_lost
                    begun.append(job)
                    lost += [job.id] * is_lost
                if job.state is State.PROCESSING and job.fence == fence:
                    told.append(job)
            if begun:
                values: dict[str, Any] = {"at_ms": at_ms, "lost": lost}
                for n, job in enumerate(begun):
                    values |= {f"id{n}": job.id, f"fence{n}": job.fence}
                await connection.execute(_begin(len(begun)), values)
            return told

        return await self._write(work)

    async def finish(self, ending: Ending) -> bool:
        """Writes how an attempt ended, while the job is still its own. Whether it is written; a
        second time equals once."""
        return await self._endings.submit(ending)

    async def _finish(self, batch: Sequence[Ending]) -> list[bool]:
        ids = [ending.id for ending in batch]

        async def work(connection: AsyncConnection) -> list[bool]:
            rows = (await connection.execute(_LOCK_STANDS, {"ids": ids})).mappings()
            stands = {row["id"]: dict(row) for row in rows}
            told, written, bodies, stale = [], [], [], []
            for ending in batch:
                row = stands.get(ending.id)
                if row is None or row["fence"] != ending.fence:
                    told.append(False)
                    continue
                told.append(row["state"] in RUNS or row["state"] == ending.state)
                if row["state"] not in RUNS:
                    continue
                row |= _ended(ending, row)
                written.append({"which": ending.id, **{name: row[name] for name in _WRITTEN}})
                part = {"job": ending.id, "fence": ending.fence, "number": 0, "data": ending.body}
                if ending.body:
                    bodies.append(part)
                if row["attempts"] > 1 and ending.state in ENDED:
                    stale.append({"which": ending.id, "mine": ending.fence})
            for statement, many in (
                (_WRITE_ENDING, written), (self._put_chunk, bodies), (_DELETE_STALE, stale),
            ):  # fmt: skip
                if many:
                    await connection.execute(statement, many)
            return told

        return await self._write(work)

    async def add_chunk(self, id_: str, fence: int, number: int, data: bytes) -> bool:
        """A part of the body of an answer, counted from 0. False: the job is somebody else's by
        now, and nothing was written."""
        mine = and_(jobs.c.id == id_, jobs.c.fence == fence, jobs.c.state == State.PROCESSING.value)
        part = {"job": id_, "fence": fence, "number": number, "data": data}

        async def work(connection: AsyncConnection) -> bool:
            found = await connection.execute(select(jobs.c.id).where(mine).with_for_update())
            if found.first() is None:
                return False
            await connection.execute(self._put_chunk, part)
            return True

        return await self._write(work)

    # Online -----------------------------------------------------------------------------------

    async def set_called(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """The job's permit is there. False: it is overdue, or something else by now."""
        free = and_(jobs.c.state == State.PENDING.value, jobs.c.expires_ms > at_ms)
        again = and_(jobs.c.state == State.CALLED.value, jobs.c.fence <= fence)
        called = update(jobs).where(jobs.c.id == id_, or_(free, again))
        return await self._change(
            called.values(
                state=State.CALLED.value, called_ms=at_ms, fence=fence, not_before_ms=None
            )
        )

    async def set_used(self, id_: str, fence: int, *, at_ms: int) -> bool:
        """The permit was used: the call has begun. A second time equals once."""
        free = jobs.c.state == State.PENDING.value
        called = and_(jobs.c.state == State.CALLED.value, jobs.c.fence <= fence)
        used = update(jobs).where(jobs.c.id == id_, or_(free, called))
        if await self._change(
            used.values(
                state=State.PROCESSING.value, started_ms=at_ms, fence=fence,
                attempts=jobs.c.attempts + 1, not_before_ms=None,
            )
        ):  # fmt: skip
            return True
        mine = (jobs.c.state == State.PROCESSING.value, jobs.c.fence == fence)
        return bool(await self._read(select(jobs.c.id).where(jobs.c.id == id_, *mine)))


@cache
def _begin(number: int) -> Any:
    """Begins so many jobs. To make it takes longer than to send it."""
    ids = [bindparam(f"id{n}", type_=jobs.c.id.type) for n in range(number)]
    fences = [bindparam(f"fence{n}", type_=BigInteger) for n in range(number)]
    is_lost = jobs.c.id.in_(bindparam("lost", expanding=True))
    return (
        update(jobs)
        .where(jobs.c.id.in_(ids))
        .values(
            state=State.PROCESSING.value,
            fence=case(*((jobs.c.id == id_, f) for id_, f in zip(ids, fences, strict=True))),
            started_ms=bindparam("at_ms"),
            attempts=jobs.c.attempts + 1,
            failures=jobs.c.failures + case((is_lost, 1), else_=0),
            not_before_ms=None,
        )
    )


def _ended(ending: Ending, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns _WRITTEN of a job that stood so."""
    is_over = ending.state in ENDED
    return {
        "state": ending.state.value,
        "expires_ms": row["expires_ms"] if ending.expires_ms is None else ending.expires_ms,
        "not_before_ms": None if is_over else ending.not_before_ms,
        "ended_ms": ending.at_ms if is_over else None,
        "failures": row["failures"] + ending.is_counted,
        # It may say what a target has sent, and no text may have some of that.
        "error": ending.error[:_ERROR_LENGTH].replace("\0", "").encode(errors="replace").decode(),
        "status": ending.status,
        "result_headers": written_map(ending.headers if is_over else {}),
        "result_size": ending.size if is_over else 0,
        "callback_ms": ending.at_ms if is_over and row["callback_url"] is not None else None,
    }
