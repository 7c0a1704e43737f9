"""Jobs in SQL, for their clients: submitted, looked up, searched, counted, cancelled, retried."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
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

from sidecar.jobs.model import ENDED, ID_LENGTH, WAITS, Job, JobPage, JobQuery, State
from sidecar.jobs.store.tables import FIND, WORD, chunks, ended_values, job_of, jobs, row_of
from sidecar.kit.batch import CallBatcher
from sidecar.kit.errors import DatabaseError
from sidecar.storage.sql.transactions import Transactions, separately

#: Jobs in one transaction.
BATCH_LIMIT = 200

#: Ids in one IN (…).
_NAMES = 500
#: Parts of a body that are read at a time.
_PARTS = 4
#: Tries to insert a job while the earlier one of its key is being removed.
_TRIES = 3
#: What a job that is retried begins with.
_FRESH: dict[str, Any] = {
    **dict.fromkeys(("status", "ended_ms", "called_ms", "not_before_ms", "read_ms", "callback_ms")),
    **dict.fromkeys(("failures", "result_size", "callback_tries"), 0),
    "result_headers": {},
    "error": "",
}
#: Jobs that are looked through for one page of a narrow query.
WINDOW = 5000
#: Jobs are counted up to here.
MOST_COUNTED = 10_000

_NEWEST = (jobs.c.created_ms.desc(), jobs.c.id.desc())
_AT = (jobs.c.created_ms, jobs.c.id)


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """The jobs that ended from `at_ms` on, until the next step. Means are in ms, of the jobs that
    were started; None: none was."""

    at_ms: int
    completed: int
    failed: int
    #: Cancelled and expired.
    other: int
    #: From the submission until the last attempt began, and from there to the end.
    mean_wait_ms: int | None
    mean_ms: int | None


class JobRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._add_job = transactions.insert_ignore(jobs)
        self._inserts = CallBatcher(partial(separately, self._insert), limit=BATCH_LIMIT)

    async def insert(self, job: Job) -> Job:
        """Write a new job and return it, or return the one that its owner submitted before under
        the same key."""
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
        taken_keys = select(*columns).where(or_(false(), *of_owners))

        async def work(connection: AsyncConnection) -> list[Job | None]:
            await connection.execute(self._add_job, rows)
            jobs_by_id = {job.id: job for job in batch}
            ids: dict[tuple[str, str], str] = {}
            if keys:
                ids = {
                    (owner, key): id_ for owner, key, id_ in await connection.execute(taken_keys)
                }
            if others := ids.values() - jobs_by_id.keys():
                earlier = await connection.execute(FIND.where(jobs.c.id.in_(others)))
                jobs_by_id |= {row.id: job_of(row) for row in earlier}
            named = (ids.get(_key(job), "") if job.idempotency_key else job.id for job in batch)
            return [jobs_by_id.get(id_) for id_ in named]

        for _ in range(_TRIES):
            replies = await self._transactions.write(work)
            if None not in replies:
                return cast("list[Job]", replies)
        raise DatabaseError("the job that has this idempotency_key was removed meanwhile")

    # Looking up -------------------------------------------------------------------------------

    async def find(self, id_: str) -> Job | None:
        """Return a job without its body."""
        return (await self.find_many([id_])).get(id_)

    async def find_by_key(self, owner: str, key: str) -> Job | None:
        """Return the job that an owner submitted under a key, without its body."""
        mine = (jobs.c.owner == owner, jobs.c.idempotency_key == key)
        rows = await self._transactions.read(FIND.where(*mine))
        return job_of(rows[0]) if rows else None

    async def find_many(self, ids: Iterable[str]) -> dict[str, Job]:
        """Return jobs by their ids, without their bodies."""
        jobs_by_id: dict[str, Job] = {}
        valid_ids = [id_ for id_ in ids if WORD.match(id_)]
        for start in range(0, len(valid_ids), _NAMES):
            part = jobs.c.id.in_(valid_ids[start : start + _NAMES])
            rows = await self._transactions.read(FIND.where(part))
            jobs_by_id |= {row.id: job_of(row) for row in rows}
        return jobs_by_id

    async def chunks(self, id_: str) -> AsyncIterator[bytes]:
        """Iterate over the body of an ended job's result. It ends early if the job is removed
        meanwhile."""
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
        """Count jobs by target and state, which takes about a second for a million."""
        query = select(jobs.c.target, jobs.c.state, func.count())
        if target is not None:
            query = query.where(jobs.c.target == target)
        if (wanted_states := frozenset(states)) < frozenset(State):
            query = query.where(jobs.c.state.in_(wanted_states))
        rows = await self._transactions.read(query.group_by(jobs.c.target, jobs.c.state))
        return {(name, state): number for name, state, number in rows}

    async def steps(
        self, target: str, since_ms: int, until_ms: int, step_ms: int
    ) -> list[EndedJobs]:
        """Count a target's jobs that ended in a period, by steps; steps without any are left
        out."""
        # Written out: a parameter would be another one in GROUP BY, for all that PostgreSQL knows.
        since: Any = literal_column(str(int(since_ms)))
        step: Any = literal_column(str(int(step_ms)))
        begins = jobs.c.ended_ms - (jobs.c.ended_ms - since) % step
        query = (
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
        rows = sorted(await self._transactions.read(query), key=lambda row: row.at_ms)
        return [
            EndedJobs(
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
        """Cancel a job. Return False if it neither waits nor is called."""
        waits = update(jobs).where(jobs.c.id == id_, jobs.c.state.in_(WAITS))
        values = ended_values(State.CANCELLED, at_ms, expires_ms)
        return await self._transactions.change(waits.values(values))

    async def retry(self, id_: str, *, order: int, at_ms: int, expires_ms: int) -> bool:
        """Set an ended job back to pending, with all of its tries and without its result. Return
        False if the job has not ended or is being deleted."""
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
        """Note when a result was read first, and have it removed at `expires_ms`."""
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
    """Return the mean, at least 0: the clocks of two processes may differ."""
    return max(0, round(total / count)) if count else None


class JobSearch:
    """Jobs a page at a time, newest first, and counted.

    Owner, target and time are in indexes. The last response's status and the beginning of an id are
    not, and are looked for among WINDOW jobs at a time: no search reads all of a large table.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def page(self, query: JobQuery) -> JobPage:
        """Return a page of jobs, without their bodies."""
        end = await self._end(query)
        conditions = [*_base(query), *_rest(query), *_until(end)]
        # The ids alone are in the index: MariaDB would read all rows of earlier pages.
        ids = select(jobs.c.id).where(*conditions).order_by(*_NEWEST).limit(query.limit).subquery()
        rows = await self._transactions.read(
            FIND.join(ids, ids.c.id == jobs.c.id).order_by(*_NEWEST)
        )
        page = [job_of(row) for row in rows]
        if len(page) == query.limit:
            end = (page[-1].created_ms, page[-1].id)
        return JobPage(page, end)

    async def count(self, query: JobQuery) -> tuple[int, tuple[int, str] | None]:
        """Count jobs, MOST_COUNTED at most, and those of a narrow query within its WINDOW. Return
        also the last job that was looked at, if others follow."""
        conditions = [*_base(query), *_rest(query)]
        end = await self._end(query)
        if not query.is_narrow:
            end = await self._nth(conditions, MOST_COUNTED)
        [row] = await self._transactions.read(
            select(func.count()).select_from(jobs).where(*conditions, *_until(end))
        )
        return int(row[0]), end

    async def _end(self, query: JobQuery) -> tuple[int, str] | None:
        """Return the last job that a narrow query looks at; None: it looks at all."""
        return await self._nth(_base(query), WINDOW) if query.is_narrow else None

    async def _nth(self, conditions: list[ColumnElement[bool]], n: int) -> tuple[int, str] | None:
        query = select(*_AT).where(*conditions).order_by(*_NEWEST).offset(n - 1).limit(1)
        rows = await self._transactions.read(query)
        return (rows[0].created_ms, rows[0].id) if rows else None


def _base(query: JobQuery) -> list[ColumnElement[bool]]:
    """Return the conditions that indexes cover."""
    columns: dict[str, Any] = {"owner": query.owner, "target": query.target}
    if len(query.id) == ID_LENGTH:
        columns["id"] = query.id
    equals = {name: value for name, value in columns.items() if value is not None}
    ms, last = query.after or (0, "-")
    words = (*equals.values(), *query.states, last, query.id or "-")
    if not all(WORD.match(value) for value in words):
        return [false()]
    conditions: list[ColumnElement[bool]] = [
        jobs.c[name] == value for name, value in equals.items()
    ]
    if query.from_ms is not None:
        conditions.append(jobs.c.created_ms >= query.from_ms)
    if query.to_ms is not None:
        conditions.append(jobs.c.created_ms < query.to_ms)
    if query.after is not None:
        conditions += [jobs.c.created_ms <= ms, or_(jobs.c.created_ms < ms, jobs.c.id < last)]
    return conditions


def _rest(query: JobQuery) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if query.states:
        conditions.append(jobs.c.state.in_(sorted(query.states)))
    if query.statuses is not None:
        conditions.append(jobs.c.status.between(*query.statuses))
    if 0 < len(query.id) < ID_LENGTH:
        # Not LIKE, for which SQLite takes A for a.
        conditions.append(func.substr(jobs.c.id, 1, len(query.id)) == query.id)
    return conditions


def _until(end: tuple[int, str] | None) -> list[ColumnElement[bool]]:
    if end is None:
        return []
    ms, last = end
    return [jobs.c.created_ms >= ms, or_(jobs.c.created_ms > ms, jobs.c.id >= last)]
