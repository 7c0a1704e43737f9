"""Expires waiting jobs, deletes old jobs, and claims jobs whose callbacks are due. Each method
locks the SQL rows and checks them again, so that no two processes work on the same rows."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import and_, delete, func, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import ENDED_STATES, UNUSED_PERMIT, WAITING_STATES, Job, State, get_receiver
from sidecar.jobs.store.tables import chunks, jobs, lock_jobs, make_ended_values
from sidecar.storage.sql.transactions import Transactions

#: The longest `claim_window` (the time to use a permit) that a target may have, in ms.
MAX_CLAIM_WINDOW_MS = 3_600_000
#: The maximum size in bytes of the results that one transaction deletes. One result may be larger.
BYTES_PER_DELETE = 16 << 20
#: How long an ended job is stored if its target has been removed, in ms.
DEFAULT_TTL_MS = 3 * 86_400_000
#: How many due callbacks are read to find some whose receivers have capacity.
MAX_CANDIDATES = 1000
_NO_CALLBACKS: Mapping[str, int] = MappingProxyType({})


class DueJobRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def expire_jobs(
        self, now_ms: int, limit: int, result_ttl_ms: Mapping[str, int]
    ) -> list[tuple[str, str]]:
        """Expire at most `limit` jobs that waited too long, and return their ids and targets. Their
        rows are stored until the `result_ttl` of their target is over."""
        # A called job expires later, because its client may still use the permit.
        before_ms = {State.PENDING: now_ms, State.CALLED: now_ms - MAX_CLAIM_WINDOW_MS}
        overdue = (
            and_(jobs.c.state == state, jobs.c.expires_ms <= ms) for state, ms in before_ms.items()
        )
        ids = await self._transactions.read(select(jobs.c.id).where(or_(*overdue)).limit(limit))

        async def work(connection: AsyncConnection) -> list[tuple[str, str]]:
            locked = await lock_jobs(connection, [row.id for row in ids])
            expired = [
                job
                for job in locked
                if job.state in WAITING_STATES and job.expires_ms <= before_ms[job.state]
            ]
            ids_of = dict[tuple[str, str], list[str]]()
            for job in expired:
                ids_of.setdefault((job.target, _describe_expiry(job)), []).append(job.id)
            for (target, error), same in ids_of.items():
                delete_ms = now_ms + result_ttl_ms.get(target, DEFAULT_TTL_MS)
                values = make_ended_values(State.EXPIRED, now_ms, delete_ms) | {"error": error}
                await connection.execute(update(jobs).where(jobs.c.id.in_(same)).values(values))
            return [(job.id, job.target) for job in expired]

        return await self._transactions.write(work) if ids else []

    async def delete_old_jobs(self, now_ms: int, limit: int) -> int:
        """Delete at most `limit` ended jobs that were stored long enough. Return their number. Jobs
        whose callback must still be sent are not deleted."""
        # coalesce() keeps databases from using the index of callback_ms, in which most jobs match.
        has_no_callback = func.coalesce(jobs.c.callback_ms, 0) == 0
        is_old = (jobs.c.state.in_(ENDED_STATES), jobs.c.expires_ms <= now_ms, has_no_callback)
        ids, size = list[str](), 0
        query = select(jobs.c.id, jobs.c.result_size).where(*is_old).limit(limit)
        for id_, result_size in await self._transactions.read(query):
            if ids and size + result_size > BYTES_PER_DELETE:
                break
            size += result_size
            ids.append(id_)

        async def work(connection: AsyncConnection) -> int:
            old = [
                job.id
                for job in await lock_jobs(connection, ids)
                if job.is_ended and job.expires_ms <= now_ms and job.callback_ms is None
            ]
            if old:
                await connection.execute(delete(chunks).where(chunks.c.job.in_(old)))
                await connection.execute(delete(jobs).where(jobs.c.id.in_(old)))
            return len(old)

        return await self._transactions.write(work) if ids else 0

    # Callbacks are stored in columns of their jobs, so that no crash loses a callback.

    async def claim_callbacks(
        self,
        now_ms: int,
        limit: int,
        *,
        claim_ms: int,
        max_per_receiver: int = MAX_CANDIDATES,
        in_flight: Mapping[str, int] = _NO_CALLBACKS,
    ) -> list[Job]:
        """For `claim_ms`, claim up to `limit` jobs with due callbacks, the longest overdue first.
        `in_flight` has, for each receiver, the number of callbacks that are being sent to it. They
        count towards `max_per_receiver`."""
        # Exclude these receivers: a slow one could otherwise take up all MAX_CANDIDATES.
        full = [receiver for receiver, count in in_flight.items() if count >= max_per_receiver]
        url = func.lower(jobs.c.callback_url)
        may_be_sent = (not_(url.startswith(f"{receiver}/", autoescape=True)) for receiver in full)
        candidates = (
            select(jobs.c.id, jobs.c.callback_url)
            .where(jobs.c.callback_ms <= now_ms, *may_be_sent)
            .order_by(jobs.c.callback_ms)
            .limit(MAX_CANDIDATES)
        )
        ids, counts = list[str](), Counter(in_flight)
        for id_, callback_url in await self._transactions.read(candidates):
            receiver = get_receiver(callback_url)
            if counts[receiver] < max_per_receiver and len(ids) < limit:
                counts[receiver] += 1
                ids.append(id_)

        async def work(connection: AsyncConnection) -> list[Job]:
            locked = await lock_jobs(connection, ids)
            due = [job for job in locked if job.callback_ms and job.callback_ms <= now_ms]
            if not due:
                return []
            claim = update(jobs).where(jobs.c.id.in_([job.id for job in due]))
            await connection.execute(claim.values(callback_ms=now_ms + claim_ms))
            return sorted(due, key=lambda job: job.callback_ms or 0)

        return await self._transactions.write(work) if ids else []

    async def record_callback(
        self, id_: str, *, ended_ms: int | None, next_ms: int | None, tries: int
    ) -> None:
        """Record how often a callback was tried, and when to send it next (None: never). If the job
        was retried since the callback was claimed, its `ended_ms` differs, and nothing changes."""
        is_same = (jobs.c.id == id_, jobs.c.callback_ms.is_not(None), jobs.c.ended_ms == ended_ms)
        await self._transactions.change(
            update(jobs).where(*is_same).values(callback_ms=next_ms, callback_tries=tries)
        )


def _describe_expiry(job: Job) -> str:
    """Return the error text of a job that expires."""
    if job.state is State.CALLED:
        return UNUSED_PERMIT
    text = "it waited longer than pending_ttl"
    return f"{text}; its last attempt: {job.error}" if job.error else text
