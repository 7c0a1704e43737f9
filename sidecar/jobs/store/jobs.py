"""Jobs in SQL, for their clients: submitted, looked up, counted, cancelled, retried."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    and_,
    case,
    delete,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import ENDED, WAITS, Job, State
from sidecar.jobs.store.tables import FIND, WORD, chunks, ended_values, job_of, jobs, row_of
from sidecar.kit.batch import Batcher
from sidecar.kit.errors import DatabaseError
from sidecar.storage.sql.transactions import Transactions, separately

#: Jobs in one transaction.
BATCH_LIMIT = 200

#: Ids in one IN (…).
_NAMES = 500
#: Parts of a body that are read at a time.
_PARTS = 4
#: How often a repeated job is looked for that is removed at the same moment.
_TRIES = 3
#: Of a job that is retried.
_FRESH: dict[str, Any] = {
    **dict.fromkeys(("status", "ended_ms", "called_ms", "not_before_ms", "read_ms", "callback_ms")),
    **dict.fromkeys(("failures", "result_size", "callback_tries"), 0),
    "result_headers": {},
    "error": "",
}


@dataclass(frozen=True, slots=True)
class Step:
    """The jobs that ended from `at_ms` on, until the next step. Means are ms, of those that were
    started (None: none was): from the submission until the last attempt began, and from there to
    the end."""

    at_ms: int
    completed: int
    failed: int
    #: Cancelled and expired.
    other: int
    mean_wait_ms: int | None
    mean_ms: int | None


class JobRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._add_job = transactions.insert_ignore(jobs)
        self._inserts = Batcher(partial(separately, self._insert), limit=BATCH_LIMIT)

    async def insert(self, job: Job) -> Job:
        """The job; or the one that the same owner submitted before under the same key."""
        return await self._inserts.submit(job)

    async def _insert(self, batch: Sequence[Job]) -> list[Job]:
        # In the same order everywhere: of two batches with the same keys, one waits for the other.
        keys = sorted({_key(job) for job in batch if job.idempotency_key})
        rows = [row_of(job) for job in sorted(batch, key=_key)]
        # Not as pairs in one IN, for which MariaDB would read all rows.
        of_owners = (
            and_(jobs.c.owner == owner, jobs.c.idempotency_key.in_([key for _, key in pairs]))
            for owner, pairs in groupby(keys, key=itemgetter(0))
        )
        # The ids alone, which are in the index: most are of the jobs that were just inserted.
        columns = (jobs.c.owner, jobs.c.idempotency_key, jobs.c.id)
        taken = select(*columns).where(or_(false(), *of_owners))

        async def work(connection: AsyncConnection) -> list[Job | None]:
            await connection.execute(self._add_job, rows)
            known = {job.id: job for job in batch}
            ids: dict[tuple[str, str], str] = {}
            if keys:
                ids = {(owner, key): id_ for owner, key, id_ in await connection.execute(taken)}
            if others := ids.values() - known.keys():
                found = await connection.execute(FIND.where(jobs.c.id.in_(others)))
                known |= {row.id: job_of(row) for row in found}
            named = (ids.get(_key(job), "") if job.idempotency_key else job.id for job in batch)
            return [known.get(id_) for id_ in named]

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
        """By id; without their bodies."""
        found: dict[str, Job] = {}
        wanted = [id_ for id_ in ids if WORD.match(id_)]
        for start in range(0, len(wanted), _NAMES):
            part = jobs.c.id.in_(wanted[start : start + _NAMES])
            rows = await self._transactions.read(FIND.where(part))
            found |= {row.id: job_of(row) for row in rows}
        return found

    async def chunks(self, id_: str) -> AsyncIterator[bytes]:
        """The result's body of a job that has ended, in parts. It ends early when the job is
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

    # Counting ---------------------------------------------------------------------------------

    async def counts(
        self, target: str | None = None, states: Iterable[State] = State
    ) -> dict[tuple[str, str], int]:
        """How many jobs there are, by target and state. Each is counted: of all targets and states
        that takes about a second for a million."""
        found = select(jobs.c.target, jobs.c.state, func.count())
        if target is not None:
            found = found.where(jobs.c.target == target)
        if (wanted := frozenset(states)) < frozenset(State):
            found = found.where(jobs.c.state.in_(wanted))
        rows = await self._transactions.read(found.group_by(jobs.c.target, jobs.c.state))
        return {(name, state): number for name, state, number in rows}

    async def steps(self, target: str, since_ms: int, until_ms: int, step_ms: int) -> list[Step]:
        """The jobs of a target that ended in a period; a step in which none ended is left out."""
        # Written out: a parameter would be another one in GROUP BY, for all that PostgreSQL knows.
        since: Any = literal_column(str(int(since_ms)))
        step: Any = literal_column(str(int(step_ms)))
        begins = jobs.c.ended_ms - (jobs.c.ended_ms - since) % step
        found = (
            select(
                begins.label("at_ms"),
                _count(State.COMPLETED),
                _count(State.FAILED),
                _count(State.CANCELLED, State.EXPIRED),
                func.count(jobs.c.started_ms),
                func.sum(jobs.c.started_ms - jobs.c.created_ms),
                func.sum(jobs.c.ended_ms - jobs.c.started_ms),
            )
            .where(jobs.c.target == target, jobs.c.ended_ms >= since_ms, jobs.c.ended_ms < until_ms)
            .group_by(begins)
        )
        rows = sorted(await self._transactions.read(found), key=lambda row: row.at_ms)
        return [
            Step(
                int(at_ms),
                int(completed),
                int(failed),
                int(other),
                _mean(wait_ms, started),
                _mean(duration_ms, started),
            )
            for at_ms, completed, failed, other, started, wait_ms, duration_ms in rows
        ]

    # Changing ---------------------------------------------------------------------------------

    async def cancel(self, id_: str, *, at_ms: int, expires_ms: int) -> bool:
        """False: it neither waited nor was called any more."""
        waits = update(jobs).where(jobs.c.id == id_, jobs.c.state.in_(WAITS))
        values = ended_values(State.CANCELLED, at_ms, expires_ms)
        return await self._transactions.change(waits.values(values))

    async def retry(self, id_: str, *, order: int, at_ms: int, expires_ms: int) -> bool:
        """A job that has ended is pending again, with all of its tries and without its result.
        False: it is something else by now, or about to be removed."""
        ended = (jobs.c.id == id_, jobs.c.state.in_(ENDED), jobs.c.expires_ms > at_ms)
        values = {**_FRESH, "state": State.PENDING, "queue_order": order, "expires_ms": expires_ms}
        again = update(jobs).where(*ended).values(values)

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


def _count(*states: State) -> Any:
    return func.sum(case((jobs.c.state.in_(states), 1), else_=0))


def _mean(total: Any, count: int) -> int | None:
    """Not below 0, where the clocks of two processes would have it so."""
    return max(0, round(total / count)) if count else None
