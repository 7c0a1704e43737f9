"""Inserts, finds, lists, counts, cancels and retries jobs in SQL, for clients and operators."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
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

from sidecar.jobs.model import (
    ENDED_STATES,
    ID_LENGTH,
    WAITING_STATES,
    EndedJobs,
    Job,
    JobQuery,
    State,
)
from sidecar.jobs.store.tables import (
    FIND,
    ID_OR_NAME,
    SUBMITTED_COLUMNS,
    chunks,
    jobs,
    make_ended_values,
    to_job,
)
from sidecar.kit.batch import CallBatcher
from sidecar.kit.errors import DatabaseError
from sidecar.storage.sql.transactions import PreparedInsert, Transactions, isolate_errors

#: The maximum number of jobs in one transaction.
BATCH_LIMIT = 200
#: The maximum number of ids in one IN (…) of a statement.
_MAX_IDS = 500
#: How many parts of a body are read at a time.
_PARTS_PER_READ = 4
#: How often to try to insert a job while the earlier job with its key is being removed.
_MAX_INSERT_TRIES = 3
#: The values that a retried job is reset to.
_RESET_VALUES: dict[str, Any] = {
    **dict.fromkeys(("status", "ended_ms", "called_ms", "not_before_ms", "read_ms", "callback_ms")),
    **dict.fromkeys(("failures", "result_size", "callback_tries"), 0),
    "result_headers": {},
    "error": "",
}
#: The maximum number of jobs that a search without an index reads for one page.
SCAN_LIMIT = 5000
#: The maximum number of jobs that a search counts.
MAX_COUNTED_JOBS = 10_000
#: The maximum numbers of failed jobs that are grouped, and of groups.
MAX_GROUPED_JOBS, MAX_GROUPS = 1000, 50

#: Newest first.
_ORDER = (jobs.c.created_ms.desc(), jobs.c.id.desc())


class JobRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._inserts = CallBatcher(partial(isolate_errors, self._insert), limit=BATCH_LIMIT)
        self._keys = CallBatcher(partial(isolate_errors, self._find_by_keys), limit=BATCH_LIMIT)

    @cached_property
    def _add_jobs(self) -> PreparedInsert:
        # Built on first use: the statement needs the server's version, known once connected.
        return self._transactions.prepare_insert_ignore(jobs, SUBMITTED_COLUMNS)

    async def insert(self, job: Job) -> Job:
        """Insert a job and return it, or return its owner's job with the same idempotency key."""
        return await self._inserts.submit(job)

    async def _insert(self, batch: Sequence[Job]) -> list[Job]:
        # Sorted, so that two batches with the same keys do not deadlock.
        keys = sorted({_get_owner_and_key(job) for job in batch if job.idempotency_key})
        ordered = sorted(batch, key=_get_owner_and_key)
        # Reads only ids, which the index has, because most of the jobs were inserted just now.
        columns = (jobs.c.owner, jobs.c.idempotency_key, jobs.c.id)
        ids_of_keys = select(*columns).where(_has_any_key(keys))

        async def work(connection: AsyncConnection) -> list[Job | None]:
            await self._add_jobs.execute(connection, ordered)
            jobs_by_id = {job.id: job for job in batch}
            ids: dict[tuple[str, str], str] = {}
            if keys:
                rows_of_keys = await connection.execute(ids_of_keys)
                ids = {(owner, key): id_ for owner, key, id_ in rows_of_keys}
            if earlier_ids := ids.values() - jobs_by_id.keys():
                earlier = await connection.execute(FIND.where(jobs.c.id.in_(earlier_ids)))
                jobs_by_id |= {row.id: to_job(row) for row in earlier}
            reply_ids = (
                ids.get(_get_owner_and_key(job), "") if job.idempotency_key else job.id
                for job in batch
            )
            return [jobs_by_id.get(id_) for id_ in reply_ids]

        for _ in range(_MAX_INSERT_TRIES):
            replies = await self._transactions.write(work)
            if None not in replies:
                return cast("list[Job]", replies)
        raise DatabaseError("the job that has this idempotency_key was removed meanwhile")

    async def find(self, id_: str) -> Job | None:
        """Return a job without its body, or None if there is no such job."""
        return (await self.find_many([id_])).get(id_)

    async def find_by_key(self, owner: str, key: str) -> Job | None:
        """Return an owner's job with this idempotency key, without its body, or None."""
        return await self._keys.submit((owner, key))

    async def _find_by_keys(self, batch: Sequence[tuple[str, str]]) -> list[Job | None]:
        rows = await self._transactions.read(FIND.where(_has_any_key(sorted(set(batch)))))
        found = {_get_owner_and_key(job): job for job in map(to_job, rows)}
        return [found.get(pair) for pair in batch]

    async def read_request_body(self, id_: str) -> bytes:
        """Return the body of a job's request. Empty if there is no such job."""
        rows = await self._transactions.read(select(jobs.c.body).where(jobs.c.id == id_))
        return bytes(rows[0].body) if rows else b""

    async def find_many(self, ids: Iterable[str]) -> dict[str, Job]:
        """Return the existing jobs among these ids, by id and without their bodies."""
        jobs_by_id: dict[str, Job] = {}
        valid_ids = [id_ for id_ in ids if ID_OR_NAME.match(id_)]
        for start in range(0, len(valid_ids), _MAX_IDS):
            is_in_part = jobs.c.id.in_(valid_ids[start : start + _MAX_IDS])
            rows = await self._transactions.read(FIND.where(is_in_part))
            jobs_by_id |= {row.id: to_job(row) for row in rows}
        return jobs_by_id

    async def read_body(self, id_: str) -> AsyncIterator[bytes]:
        """Iterate over an ended job's response body, in parts. Ends early if the job is removed."""
        last = -1
        while True:
            rows = await self._transactions.read(
                select(chunks.c.number, chunks.c.data)
                .join(jobs, and_(jobs.c.id == chunks.c.job, jobs.c.fence == chunks.c.fence))
                .where(jobs.c.id == id_, jobs.c.state.in_(ENDED_STATES), chunks.c.number > last)
                .order_by(chunks.c.number)
                .limit(_PARTS_PER_READ)
            )
            for row in rows:
                yield row.data
            if len(rows) < _PARTS_PER_READ:
                return
            last = rows[-1].number

    async def count_by_state(
        self, target: str | None = None, states: Iterable[State] = State
    ) -> dict[tuple[str, str], int]:
        """Count jobs by target and state. This takes about a second for a million jobs."""
        query = select(jobs.c.target, jobs.c.state, func.count())
        if target is not None:
            query = query.where(jobs.c.target == target)
        if (wanted_states := frozenset(states)) < frozenset(State):
            query = query.where(jobs.c.state.in_(wanted_states))
        rows = await self._transactions.read(query.group_by(jobs.c.target, jobs.c.state))
        return {(name, state): number for name, state, number in rows}

    async def count_ended_jobs(
        self, target: str, since_ms: int, until_ms: int, step_ms: int
    ) -> list[EndedJobs]:
        """Count a target's jobs that ended in a period, by time steps. Omits steps without jobs."""
        # Literals, because PostgreSQL would not see that a parameter is the same in GROUP BY.
        since: Any = literal_column(str(int(since_ms)))
        step: Any = literal_column(str(int(step_ms)))
        begins = jobs.c.ended_ms - (jobs.c.ended_ms - since) % step
        query = (
            select(
                begins.label("at_ms"),
                _count_jobs_in_states(State.COMPLETED),
                _count_jobs_in_states(State.FAILED),
                _count_jobs_in_states(State.CANCELLED, State.EXPIRED),
                func.avg(jobs.c.started_ms - jobs.c.created_ms),
                func.avg(jobs.c.ended_ms - jobs.c.started_ms),
            )
            .where(jobs.c.target == target, jobs.c.ended_ms >= since_ms, jobs.c.ended_ms < until_ms)
            .group_by(begins)
        )
        rows = sorted(await self._transactions.read(query), key=lambda row: row.at_ms)
        return [EndedJobs(*map(_to_int, row)) for row in rows]

    async def cancel(self, id_: str, *, at_ms: int, expires_ms: int) -> bool:
        """Cancel a job. Return False if the job no longer waits for its call."""
        cancel = update(jobs).where(jobs.c.id == id_, jobs.c.state.in_(WAITING_STATES))
        values = make_ended_values(State.CANCELLED, at_ms, expires_ms)
        return await self._transactions.change(cancel.values(values))

    async def retry(self, id_: str, *, order: int, at_ms: int, expires_ms: int) -> bool:
        """Reset an ended job to pending, with all retries left and without its result. Return False
        if the job has not ended, or is due to be deleted."""
        conditions = (jobs.c.id == id_, jobs.c.state.in_(ENDED_STATES), jobs.c.expires_ms > at_ms)
        changes = {"state": State.PENDING, "queue_order": order, "expires_ms": expires_ms}
        reset = update(jobs).where(*conditions).values({**_RESET_VALUES, **changes})

        async def work(connection: AsyncConnection) -> bool:
            if not (await connection.execute(reset)).rowcount:
                return False
            await connection.execute(delete(chunks).where(chunks.c.job == id_))
            return True

        return await self._transactions.write(work)

    async def mark_read(self, id_: str, *, at_ms: int, expires_ms: int) -> None:
        """Record the first read of a result. The job then expires at `expires_ms` at the latest."""
        earlier = case(
            (jobs.c.expires_ms < expires_ms, jobs.c.expires_ms),
            else_=literal(expires_ms, BigInteger),
        )
        is_unread = (jobs.c.id == id_, jobs.c.state.in_(ENDED_STATES), jobs.c.read_ms.is_(None))
        await self._transactions.change(
            update(jobs).where(*is_unread).values(read_ms=at_ms, expires_ms=earlier)
        )


def _has_any_key(keys: Sequence[tuple[str, str]]) -> ColumnElement[bool]:
    """Return the condition that a job has one of these (owner, key) pairs, which are sorted."""
    # One IN for each owner, because MariaDB would read all rows for an IN of pairs.
    conditions = (
        and_(jobs.c.owner == owner, jobs.c.idempotency_key.in_([key for _, key in pairs]))
        for owner, pairs in groupby(keys, key=itemgetter(0))
    )
    return or_(false(), *conditions)


def _get_owner_and_key(job: Job) -> tuple[str, str]:
    return (job.owner, job.idempotency_key) if job.idempotency_key else ("", "")


def _count_jobs_in_states(*states: State) -> Any:
    return func.sum(case((jobs.c.state.in_(states), 1), else_=0))


def _to_int(value: Any) -> Any:
    """Return a number from the database, rounded, or None. A mean below 0, which two processes'
    clocks can cause, becomes 0."""
    return None if value is None else max(0, round(value))


class JobSearch:
    """Searches for jobs. Indexes cover the owner, target and time, but not the status of the last
    response or the beginning of an id. A search for such a status or id scans jobs: at most
    SCAN_LIMIT for one page, so that no search reads all of a large table."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def find_page(self, query: JobQuery) -> tuple[list[Job], tuple[int, str] | None]:
        """Return a page of jobs without bodies, and the next page's `after`, or None if it is the
        last. If a search has to scan, earlier pages may also be shorter than its limit or empty."""
        end = await self._find_scan_end(query)
        conditions = _make_conditions(query, end)
        # The subquery reads only the index. Otherwise MariaDB would read all rows of earlier pages.
        ids = select(jobs.c.id).where(*conditions).order_by(*_ORDER).limit(query.limit).subquery()
        rows = await self._transactions.read(
            FIND.join(ids, ids.c.id == jobs.c.id).order_by(*_ORDER)
        )
        page = [to_job(row) for row in rows]
        if len(page) == query.limit:
            end = (page[-1].created_ms, page[-1].id)
        return page, end

    async def count(self, query: JobQuery) -> tuple[int, tuple[int, str] | None]:
        """Count jobs: at most MAX_COUNTED_JOBS, or only among SCAN_LIMIT jobs if the search has to
        scan. Return the number, and the `after` of the next count, or None if no jobs are left."""
        if query.needs_scan:
            end = await self._find_scan_end(query)
        else:
            end = await self._find_nth_job(_make_conditions(query), MAX_COUNTED_JOBS)
        [row] = await self._transactions.read(
            select(func.count()).select_from(jobs).where(*_make_conditions(query, end))
        )
        return int(row[0]), end

    async def group_failed_jobs(self, query: JobQuery) -> list[Row[Any]]:
        """Group the newest failed jobs of a search, at most MAX_GROUPED_JOBS, by last status and
        error. Return the fields of FailureReason (schemas.py) for the MAX_GROUPS largest groups."""
        query = replace(query, states=frozenset({State.FAILED}))
        end = await self._find_scan_end(query)
        newest = (
            select(jobs.c.status, jobs.c.error, jobs.c.ended_ms)
            .where(*_make_conditions(query, end))
            .order_by(*_ORDER)
            .limit(MAX_GROUPED_JOBS)
            .subquery()
        )
        count, last_ms = func.count().label("jobs"), func.max(newest.c.ended_ms).label("last_ms")
        return await self._transactions.read(
            select(newest.c.status, newest.c.error, count, last_ms)
            .group_by(newest.c.status, newest.c.error)
            .order_by(count.desc(), last_ms.desc())
            .limit(MAX_GROUPS)
        )

    async def _find_scan_end(self, query: JobQuery) -> tuple[int, str] | None:
        """Return (created_ms, id) of the last job that a search without an index may read, or None
        if the search may read all remaining jobs, or an index covers it."""
        if not query.needs_scan:
            return None
        return await self._find_nth_job(_make_indexed_conditions(query), SCAN_LIMIT)

    async def _find_nth_job(
        self, conditions: list[ColumnElement[bool]], n: int
    ) -> tuple[int, str] | None:
        query = (
            select(jobs.c.created_ms, jobs.c.id)
            .where(*conditions)
            .order_by(*_ORDER)
            .offset(n - 1)
            .limit(1)
        )
        rows = await self._transactions.read(query)
        return (rows[0].created_ms, rows[0].id) if rows else None


def _make_indexed_conditions(query: JobQuery) -> list[ColumnElement[bool]]:
    """Return the conditions of a search that indexes cover."""
    columns: dict[str, Any] = {"owner": query.owner, "target": query.target}
    if len(query.id) == ID_LENGTH:
        columns["id"] = query.id
    equals = {name: value for name, value in columns.items() if value is not None}
    ms, last = query.after or (0, "-")
    words = (*equals.values(), *query.states, last, query.id or "-")
    if not all(ID_OR_NAME.match(value) for value in words):
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


def _make_conditions(
    query: JobQuery, end: tuple[int, str] | None = None
) -> list[ColumnElement[bool]]:
    """Return all conditions of a search that reads no job after `end`, its (created_ms, id)."""
    conditions = _make_indexed_conditions(query)
    if query.states:
        conditions.append(jobs.c.state.in_(sorted(query.states)))
    if query.statuses is not None:
        conditions.append(jobs.c.status.between(*query.statuses))
    if 0 < len(query.id) < ID_LENGTH:
        # Not LIKE, because SQLite ignores the case of its operands.
        conditions.append(func.substr(jobs.c.id, 1, len(query.id)) == query.id)
    if end is not None:
        ms, last = end
        conditions += [jobs.c.created_ms >= ms, or_(jobs.c.created_ms > ms, jobs.c.id >= last)]
    return conditions
