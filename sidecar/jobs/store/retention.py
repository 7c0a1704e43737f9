"""The end of jobs in SQL: those that waited too long, and those that were kept long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import and_, delete, func, or_, select, update

from sidecar.jobs.model import ENDED, WAITS, State
from sidecar.jobs.store.tables import chunks, ended_values, jobs, lock_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.ext.asyncio import AsyncConnection

    from sidecar.kit.sql.transactions import Transactions

#: The longest claim_window, ms.
PERMIT_MS = 3_600_000
#: Of results that are removed in one transaction.
BYTES_AT_ONCE = 16 << 20
#: How long the end of a job is kept whose target is unknown by now, ms.
DEFAULT_TTL_MS = 3 * 86_400_000


class RetentionRepository:
    """What is found is locked and looked at again: of two reconcilers one does the work."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def expire(
        self,
        now_ms: int,
        limit: int,
        result_ttl_ms: Mapping[str, int],
        default_ms: int = DEFAULT_TTL_MS,
    ) -> list[tuple[str, str]]:
        """Ends jobs that waited too long; they are kept for as long as their target's results. At
        most `limit`; the ids and targets of those that this call ended."""
        # What was called has a permit, and until that ends it may be used.
        before_ms = {State.PENDING: now_ms, State.CALLED: now_ms - PERMIT_MS}
        overdue = or_(
            *(
                and_(jobs.c.state == state, jobs.c.expires_ms <= ms)
                for state, ms in before_ms.items()
            )
        )
        ids = await self._transactions.read(select(jobs.c.id).where(overdue).limit(limit))

        async def work(connection: AsyncConnection) -> list[tuple[str, str]]:
            locked = await lock_jobs(connection, [row.id for row in ids])
            ended = [
                (job.id, job.target)
                for job in locked
                if job.state in WAITS and job.expires_ms <= before_ms[job.state]
            ]
            for target in {target for _, target in ended}:
                gone_ms = now_ms + result_ttl_ms.get(target, default_ms)
                of_target = jobs.c.id.in_([id_ for id_, other in ended if other == target])
                values = ended_values(State.EXPIRED, now_ms, gone_ms)
                await connection.execute(update(jobs).where(of_target).values(values))
            return ended

        return await self._transactions.write(work) if ids else []

    async def delete_old(self, now_ms: int, limit: int) -> int:
        """Removes jobs that ended and were kept long enough, except those whose callback is still
        due. At most `limit`; how many this call removed."""
        # As an expression: by the index of callback_ms nearly all jobs would be found.
        is_told = func.coalesce(jobs.c.callback_ms, 0) == 0
        old = (jobs.c.state.in_(ENDED), jobs.c.expires_ms <= now_ms, is_told)
        ids, size = list[str](), 0
        found = select(jobs.c.id, jobs.c.result_size).where(*old).limit(limit)
        for id_, result_size in await self._transactions.read(found):
            if ids and size + result_size > BYTES_AT_ONCE:
                break
            size += result_size
            ids.append(id_)

        async def work(connection: AsyncConnection) -> int:
            gone = [
                job.id
                for job in await lock_jobs(connection, ids)
                if job.is_ended and job.expires_ms <= now_ms and job.callback_ms is None
            ]
            if gone:
                await connection.execute(delete(chunks).where(chunks.c.job.in_(gone)))
                await connection.execute(delete(jobs).where(jobs.c.id.in_(gone)))
            return len(gone)

        return await self._transactions.write(work) if ids else 0
