"""Callbacks that are due, in SQL. They are columns of their jobs: no crash loses one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlalchemy import func, not_, select, update

from sidecar.jobs.model import Job, receiver_of
from sidecar.jobs.store.tables import jobs, lock_jobs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from sidecar.kit.sql.transactions import Transactions

#: Callbacks that are looked at to find those that may be made.
CANDIDATES = 1000
_NONE: Mapping[str, int] = MappingProxyType({})


class CallbackRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def due(
        self,
        now_ms: int,
        limit: int,
        *,
        hold_ms: int,
        each: int = CANDIDATES,
        under_way: Mapping[str, int] = _NONE,
    ) -> list[Job]:
        """Jobs whose callbacks are due, the longest overdue first; at most `each` to one receiver,
        those `under_way` to it included. Nobody else gets them for `hold_ms`."""
        # Those of a slow receiver would hide all others.
        full = [name for name, number in under_way.items() if number >= each]
        url = func.lower(jobs.c.callback_url)
        longest = select(jobs.c.id, jobs.c.callback_url).where(
            jobs.c.callback_ms <= now_ms,
            *(not_(url.startswith(f"{name}/", autoescape=True)) for name in full),
        )
        ids, counts = list[str](), Counter(under_way)
        for id_, callback_url in await self._transactions.read(
            longest.order_by(jobs.c.callback_ms).limit(CANDIDATES)
        ):
            name = receiver_of(callback_url)
            if counts[name] < each and len(ids) < limit:
                counts[name] += 1
                ids.append(id_)

        async def work(connection: AsyncConnection) -> list[Job]:
            locked = await lock_jobs(connection, ids)
            due = [job for job in locked if job.callback_ms and job.callback_ms <= now_ms]
            mine = jobs.c.id.in_([job.id for job in due])
            if not due:
                return []
            await connection.execute(update(jobs).where(mine).values(callback_ms=now_ms + hold_ms))
            return sorted(due, key=lambda job: job.callback_ms or 0)

        return await self._transactions.write(work) if ids else []

    async def done(
        self, id_: str, *, ended_ms: int | None, next_ms: int | None, tries: int
    ) -> None:
        """`tries` so far, of this end of the job; `next_ms` None: that was the last one. A job that
        was retried since has no callback yet, or one of another end."""
        still = (jobs.c.id == id_, jobs.c.callback_ms.is_not(None), jobs.c.ended_ms == ended_ms)
        await self._transactions.change(
            update(jobs).where(*still).values(callback_ms=next_ms, callback_tries=tries)
        )
