"""The jobs in SQL: submitted, looked up, cancelled, tried again. Others have what runners need
(jobs/store/running.py) and what keepers need (jobs/store/reconciling.py).

Every method raises DatabaseError when the database does not answer, or refuses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from sqlalchemy import BigInteger, and_, case, delete, literal, or_, select, update

from sidecar.jobs.model import ENDED, Job, State
from sidecar.jobs.store.reconciling import JobKeeping
from sidecar.jobs.store.running import JobRunning
from sidecar.jobs.store.tables import FIND, chunks, job_of, jobs, passed_over, row_of, written_map
from sidecar.jobs.store.transactions import AT_ONCE, WAITS, apart, ended_values, is_any
from sidecar.kit.batch import Batcher
from sidecar.kit.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

#: Ids in one IN (…).
_NAMES = 500
#: Parts of a body that are read at a time.
_PARTS = 4
#: How often a repeated job is looked for that is removed at the same moment.
_TRIES = 3
#: What may be an id or a name. Databases would refuse to look for some of the rest.
_WORD = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, newest first. `after`: created_ms and id of the last one of the page before."""

    owner: str | None = None
    target: str | None = None
    state: str | None = None
    after: tuple[int, str] | None = None
    limit: int = 100


class JobStore(JobRunning, JobKeeping):
    """All jobs of all targets."""

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(engine)
        self._add_job = passed_over(engine.dialect.name, jobs)
        self._inserts = Batcher(partial(apart, self._insert), limit=AT_ONCE)

    # Submitting -------------------------------------------------------------------------------

    async def insert(self, job: Job) -> Job:
        """The job; or the one that the same owner submitted before under the same key."""
        return await self._inserts.submit(job)

    async def _insert(self, batch: Sequence[Job]) -> list[Job]:
        # In the same order everywhere: of two who insert the same keys, one waits for the other.
        keyed = sorted({(job.owner, job.idempotency_key) for job in batch if job.idempotency_key})
        rows = [row_of(job) for job in sorted(batch, key=lambda j: _key(j) or ("", ""))]

        async def work(connection: AsyncConnection) -> list[Job | None]:
            await connection.execute(self._add_job, rows)
            there = await _ids_of(connection, keyed) if keyed else {}
            known = {job.id: job for job in batch}
            others = [id_ for id_ in there.values() if id_ not in known]
            if others:
                found = await connection.execute(FIND.where(jobs.c.id.in_(others)))
                known |= {row["id"]: job_of(row) for row in found.mappings()}
            ids = [job.id if (key := _key(job)) is None else there.get(key) for job in batch]
            return [None if id_ is None else known.get(id_) for id_ in ids]

        for _ in range(_TRIES):
            told = await self._write(work)
            if None not in told:
                return cast("list[Job]", told)
        raise DatabaseError("the job that has this idempotency_key was removed meanwhile")

    # Looking up -------------------------------------------------------------------------------

    async def find(self, id_: str) -> Job | None:
        """Without its body."""
        return (await self.find_many([id_])).get(id_)

    async def find_by_key(self, owner: str, key: str) -> Job | None:
        """The job that this owner submitted under this idempotency key; without its body."""
        mine = (jobs.c.owner == owner, jobs.c.idempotency_key == key)
        rows = await self._read(FIND.where(*mine))
        return job_of(rows[0]) if rows else None

    async def find_many(self, ids: Iterable[str]) -> dict[str, Job]:
        """Those that there are, by id; without their bodies."""
        found: dict[str, Job] = {}
        asked = [id_ for id_ in ids if _WORD.match(id_)]
        for start in range(0, len(asked), _NAMES):
            part = jobs.c.id.in_(asked[start : start + _NAMES])
            rows = await self._read(FIND.where(part))
            found |= {row["id"]: job_of(row) for row in rows}
        return found

    async def page(self, query: JobQuery) -> list[Job]:
        """Without their bodies."""
        given = {"owner": query.owner, "target": query.target, "state": query.state}
        asked = {name: str(value) for name, value in given.items() if value is not None}
        ms, last = query.after or (0, "-")
        if not all(_WORD.match(value) for value in (*asked.values(), last)):
            return []
        found = select(jobs.c.id).where(*(jobs.c[name] == value for name, value in asked.items()))
        if query.after is not None:
            older = or_(jobs.c.created_ms < ms, jobs.c.id < last)
            found = found.where(jobs.c.created_ms <= ms, older)
        newest = (jobs.c.created_ms.desc(), jobs.c.id.desc())
        # The ids alone are in the index: MariaDB would read all rows that it passes over.
        page = found.order_by(*newest).limit(query.limit).subquery()
        rows = await self._read(FIND.join(page, page.c.id == jobs.c.id).order_by(*newest))
        return [job_of(row) for row in rows]

    async def chunks(self, id_: str) -> AsyncIterator[bytes]:
        """The body of the answer of a job that has ended, in parts. It ends early when the job is
        removed meanwhile."""
        last = -1
        while True:
            rows = await self._read(
                select(chunks.c.number, chunks.c.data)
                .join(jobs, and_(jobs.c.id == chunks.c.job, jobs.c.fence == chunks.c.fence))
                .where(jobs.c.id == id_, is_any(jobs.c.state, ENDED), chunks.c.number > last)
                .order_by(chunks.c.number)
                .limit(_PARTS)
            )
            for row in rows:
                yield row["data"]
            if len(rows) < _PARTS:
                return
            last = rows[-1]["number"]

    # The caller -------------------------------------------------------------------------------

    async def cancel(self, id_: str, *, at_ms: int, expires_ms: int) -> bool:
        """False: it neither waited nor was called any more."""
        waits = update(jobs).where(jobs.c.id == id_, is_any(jobs.c.state, WAITS))
        return await self._change(
            waits.values(**ended_values(State.CANCELLED, at_ms), expires_ms=expires_ms)
        )

    async def retry(self, id_: str, *, order: int, at_ms: int, expires_ms: int) -> bool:
        """A job that has ended is pending again, with all of its tries and without its result.
        False: it is something else by now, or about to be removed."""
        again = update(jobs).where(
            jobs.c.id == id_, is_any(jobs.c.state, ENDED), jobs.c.expires_ms > at_ms
        ).values(
            state=State.PENDING.value, queue_order=order, expires_ms=expires_ms, failures=0,
            error="", status=None, result_headers=written_map({}), result_size=0, ended_ms=None,
            called_ms=None, not_before_ms=None, read_ms=None, callback_ms=None, callback_tries=0,
        )  # fmt: skip

        async def work(connection: AsyncConnection) -> bool:
            if not (await connection.execute(again)).rowcount:
                return False
            await connection.execute(delete(chunks).where(chunks.c.job == id_))
            return True

        return await self._write(work)

    async def mark_read(self, id_: str, *, at_ms: int, expires_ms: int) -> None:
        """Notes when a result was read first, and removes it sooner, at `expires_ms`."""
        sooner = case(
            (jobs.c.expires_ms < expires_ms, jobs.c.expires_ms),
            else_=literal(expires_ms, BigInteger),
        )
        read = update(jobs).where(
            jobs.c.id == id_, is_any(jobs.c.state, ENDED), jobs.c.read_ms.is_(None)
        )
        await self._change(read.values(read_ms=at_ms, expires_ms=sooner))


def _key(job: Job) -> tuple[str, str] | None:
    return (job.owner, job.idempotency_key) if job.idempotency_key else None


async def _ids_of(
    connection: AsyncConnection, keyed: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    """The ids of the jobs that have these keys, by owner and key."""
    owners = {owner for owner, _ in keyed}
    named = [
        and_(jobs.c.owner == owner, jobs.c.idempotency_key.in_([k for o, k in keyed if o == owner]))
        for owner in sorted(owners)
    ]
    found = select(jobs.c.owner, jobs.c.idempotency_key, jobs.c.id).where(or_(*named))
    return {(owner, key): id_ for owner, key, id_ in await connection.execute(found)}
