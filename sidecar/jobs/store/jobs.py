"""Jobs in SQL, for their callers: submitted, looked up, cancelled, retried."""

from __future__ import annotations

import re
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from sqlalchemy import BigInteger, and_, case, delete, false, literal, or_, select, update

from sidecar.jobs.model import ENDED, WAITS, Job, JobQuery, State
from sidecar.jobs.store.tables import FIND, chunks, ended_values, job_of, jobs, row_of
from sidecar.kit.batch import Batcher
from sidecar.kit.errors import DatabaseError
from sidecar.kit.sql.transactions import separately

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from sidecar.kit.sql.transactions import Transactions

#: Jobs in one transaction.
BATCH_LIMIT = 200

#: Ids in one IN (…).
_NAMES = 500
#: Parts of a body that are read at a time.
_PARTS = 4
#: How often a repeated job is looked for that is removed at the same moment.
_TRIES = 3
#: What may be an id or a name. Databases would refuse to look for some of the rest.
_WORD = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")


class JobRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._add_job = transactions.insert_ignore(jobs)
        self._inserts = Batcher(partial(separately, self._insert), limit=BATCH_LIMIT)

    async def insert(self, job: Job) -> Job:
        """The job; or the one that the same owner submitted before under the same key."""
        return await self._inserts.submit(job)

    async def _insert(self, batch: Sequence[Job]) -> list[Job]:
        # In the same order everywhere: of two who insert the same keys, one waits for the other.
        keys = sorted({_key(job) for job in batch if job.idempotency_key})
        rows = [row_of(job) for job in sorted(batch, key=_key)]
        # Not as pairs in one IN, for which MariaDB would read all rows. The ids alone, which are
        # in the index: most are of the jobs that were just inserted.
        taken = select(jobs.c.owner, jobs.c.idempotency_key, jobs.c.id).where(
            or_(false(), *(
                and_(jobs.c.owner == owner, jobs.c.idempotency_key.in_([key for _, key in pairs]))
                for owner, pairs in groupby(keys, key=itemgetter(0))
            ))
        )  # fmt: skip

        async def work(connection: AsyncConnection) -> list[Job | None]:
            await connection.execute(self._add_job, rows)
            known = {job.id: job for job in batch}
            ids: dict[tuple[str, str], str] = {}
            if keys:
                ids = {(owner, key): id_ for owner, key, id_ in await connection.execute(taken)}
            if others := ids.values() - known.keys():
                found = await connection.execute(FIND.where(jobs.c.id.in_(others)))
                known |= {row.id: job_of(row) for row in found}
            return [known.get(ids.get(_key(job), "") if job.idempotency_key else job.id)
                    for job in batch]  # fmt: skip

        for _ in range(_TRIES):
            replies = await self._transactions.write(work)
            if None not in replies:
                return cast("list[Job]", replies)
        raise DatabaseError("the job that has this idempotency_key was removed meanwhile")

    # Looking up -------------------------------------------------------------------------------

    async def find(self, id_: str) -> Job | None:
        """Without its body."""
        return (await self.find_many([id_])).get(id_)

    async def find_by_key(self, owner: str, key: str) -> Job | None:
        """The job that this owner submitted under this idempotency key; without its body."""
        mine = (jobs.c.owner == owner, jobs.c.idempotency_key == key)
        rows = await self._transactions.read(FIND.where(*mine))
        return job_of(rows[0]) if rows else None

    async def find_many(self, ids: Iterable[str]) -> dict[str, Job]:
        """Those that there are, by id; without their bodies."""
        found: dict[str, Job] = {}
        asked = [id_ for id_ in ids if _WORD.match(id_)]
        for start in range(0, len(asked), _NAMES):
            part = jobs.c.id.in_(asked[start : start + _NAMES])
            rows = await self._transactions.read(FIND.where(part))
            found |= {row.id: job_of(row) for row in rows}
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
        rows = await self._transactions.read(
            FIND.join(page, page.c.id == jobs.c.id).order_by(*newest)
        )
        return [job_of(row) for row in rows]

    async def chunks(self, id_: str) -> AsyncIterator[bytes]:
        """The body of the answer of a job that has ended, in parts. It ends early when the job is
        removed meanwhile."""
        last = -1
        while True:
            rows = await self._transactions.read(
                select(chunks.c.number, chunks.c.data)
                .join(jobs, and_(jobs.c.id == chunks.c.job, jobs.c.fence == chunks.c.fence))
                .where(jobs.c.id == id_, jobs.c.state.in_(ENDED), chunks.c.number > last)
                .order_by(chunks.c.number)
                .limit(_PARTS)
            )
            for row in rows:
                yield row.data
            if len(rows) < _PARTS:
                return
            last = rows[-1].number

    # Changing ---------------------------------------------------------------------------------

    async def cancel(self, id_: str, *, at_ms: int, expires_ms: int) -> bool:
        """False: it neither waited nor was called any more."""
        waits = update(jobs).where(jobs.c.id == id_, jobs.c.state.in_(WAITS))
        values = ended_values(State.CANCELLED, at_ms, expires_ms)
        return await self._transactions.change(waits.values(values))

    async def retry(self, id_: str, *, order: int, at_ms: int, expires_ms: int) -> bool:
        """A job that has ended is pending again, with all of its tries and without its result.
        False: it is something else by now, or about to be removed."""
        again = update(jobs).where(
            jobs.c.id == id_, jobs.c.state.in_(ENDED), jobs.c.expires_ms > at_ms
        ).values(
            state=State.PENDING, queue_order=order, expires_ms=expires_ms, failures=0, error="",
            status=None, result_headers={}, result_size=0, ended_ms=None, called_ms=None,
            not_before_ms=None, read_ms=None, callback_ms=None, callback_tries=0,
        )  # fmt: skip

        async def work(connection: AsyncConnection) -> bool:
            if not (await connection.execute(again)).rowcount:
                return False
            await connection.execute(delete(chunks).where(chunks.c.job == id_))
            return True

        return await self._transactions.write(work)

    async def mark_read(self, id_: str, *, at_ms: int, expires_ms: int) -> None:
        """Notes when a result was read first, and removes it sooner, at `expires_ms`."""
        sooner = case(
            (jobs.c.expires_ms < expires_ms, jobs.c.expires_ms),
            else_=literal(expires_ms, BigInteger),
        )
        read = update(jobs).where(
            jobs.c.id == id_, jobs.c.state.in_(ENDED), jobs.c.read_ms.is_(None)
        )
        await self._transactions.change(read.values(read_ms=at_ms, expires_ms=sooner))


def _key(job: Job) -> tuple[str, str]:
    return (job.owner, job.idempotency_key) if job.idempotency_key else ("", "")
