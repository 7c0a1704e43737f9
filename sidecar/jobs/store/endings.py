"""Jobs in SQL that expire, are removed, or have a callback that is due. Each method locks the rows
and checks them again, so that of two processes one does the work."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import and_, delete, func, not_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import ENDED, WAITS, Job, State, callback_origin
from sidecar.jobs.store.tables import chunks, ended_values, jobs, lock_jobs
from sidecar.storage.sql.transactions import Transactions

#: The longest claim_window, ms.
PERMIT_MS = 3_600_000
#: Bytes of results that are removed in one transaction.
BYTES_AT_ONCE = 16 << 20
#: How long a job is kept after its end if its target is unknown by then, ms.
DEFAULT_TTL_MS = 3 * 86_400_000
#: Due callbacks that are read to find those that may be made.
CANDIDATES = 1000
_NONE: Mapping[str, int] = MappingProxyType({})


class EndingRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def expire(
        self,
        now_ms: int,
        limit: int,
        result_ttl_ms: Mapping[str, int],
        default_ms: int = DEFAULT_TTL_MS,
    ) -> list[tuple[str, str]]:
        """End jobs that waited too long, at most `limit`; they are kept for as long as their
        target's results. Return their ids and targets."""
        # A called job has a permit, which may be used until that ends.
        before_ms = {State.PENDING: now_ms, State.CALLED: now_ms - PERMIT_MS}
        overdue = (
            and_(jobs.c.state == state, jobs.c.expires_ms <= ms) for state, ms in before_ms.items()
        )
        ids = await self._transactions.read(select(jobs.c.id).where(or_(*overdue)).limit(limit))

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
        """Remove jobs that were kept long enough, at most `limit`, except those whose callback is
        still due. Return how many."""
        # As an expression: by the index of callback_ms nearly all jobs would match.
        has_no_callback = func.coalesce(jobs.c.callback_ms, 0) == 0
        old = (jobs.c.state.in_(ENDED), jobs.c.expires_ms <= now_ms, has_no_callback)
        ids, size = list[str](), 0
        query = select(jobs.c.id, jobs.c.result_size).where(*old).limit(limit)
        for id_, result_size in await self._transactions.read(query):
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

    # Callbacks are columns of their jobs: no crash loses one ----------------------------------

    async def due_callbacks(
        self,
        now_ms: int,
        limit: int,
        *,
        hold_ms: int,
        each: int = CANDIDATES,
        under_way: Mapping[str, int] = _NONE,
    ) -> list[Job]:
        """Claim jobs whose callbacks are due for `hold_ms`, the longest overdue first: at most
        `each` to one receiver, the ones `under_way` included."""
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
            name = callback_origin(callback_url)
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

    async def record_callback(
        self, id_: str, *, ended_ms: int | None, next_ms: int | None, tries: int
    ) -> None:
        """Write how often a callback was tried, and when it is tried next; None: not again. Changes
        nothing if the job was retried since: its callback is of another end, `ended_ms`."""
        still = (jobs.c.id == id_, jobs.c.callback_ms.is_not(None), jobs.c.ended_ms == ended_ms)
        await self._transactions.change(
            update(jobs).where(*still).values(callback_ms=next_ms, callback_tries=tries)
        )
