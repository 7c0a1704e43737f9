"""The jobs in SQL, for those who keep them: what waits and runs, what is over, whom to call back,
the targets that were changed at run time, and the history. jobs/store/jobs.py has the rest.

Every method raises DatabaseError when the database does not answer, or refuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, case, delete, func, literal_column, not_, or_, select, update

from sidecar.jobs.model import ENDED, Job, State, receiver_of
from sidecar.jobs.store.tables import FIND, chunks, job_of, jobs, laid_over, targets
from sidecar.jobs.store.transactions import RUNS, WAITS, JobDatabase, ended_values, is_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

#: The longest claim_window, ms.
PERMIT_MS = 3_600_000
#: Of results that are removed in one transaction.
BYTES_AT_ONCE = 16 << 20
#: Callbacks that are looked at to find those that may be made.
CANDIDATES = 1000
NONE: Mapping[str, int] = MappingProxyType({})
#: How long the end of a job is kept whose target is unknown by now, ms.
DEFAULT_TTL_MS = 3 * 86_400_000


class Waits(NamedTuple):
    """A job that is pending. It is not tried again before `not_before_ms`."""

    id: str
    queue_order: int
    is_online: bool
    not_before_ms: int | None
    created_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """The jobs that ended from `at_ms` on, until the next step. Means are ms, of those that were
    begun (None: none was): from the submission until the last attempt began, and from there to the
    end."""

    at_ms: int
    completed: int
    failed: int
    #: Cancelled and expired.
    other: int
    mean_wait_ms: int | None
    mean_ms: int | None


class JobKeeping(JobDatabase):
    # The line ---------------------------------------------------------------------------------

    async def waiting(self, target: str, after: tuple[int, str] | None, limit: int) -> list[Waits]:
        """Jobs of a target that are pending, in their order; `after` the order and the id of the
        last one that is known."""
        found = select(
            jobs.c.id, jobs.c.queue_order, jobs.c.kind, jobs.c.not_before_ms, jobs.c.created_ms
        ).where(jobs.c.target == target, jobs.c.state == State.PENDING.value)
        if after is not None:
            order, id_ = after
            found = found.where(
                jobs.c.queue_order >= order, (jobs.c.queue_order > order) | (jobs.c.id > id_)
            )
        rows = await self._read(found.order_by(jobs.c.queue_order, jobs.c.id).limit(limit))
        return [
            Waits(r["id"], r["queue_order"], r["kind"] == "online", r["not_before_ms"],
                  r["created_ms"])
            for r in rows
        ]  # fmt: skip

    async def running(self, target: str) -> list[Job]:
        """Jobs of a target that are called (online) or processing."""
        found = FIND.where(jobs.c.target == target, is_any(jobs.c.state, RUNS))
        return [job_of(row) for row in await self._read(found.order_by(jobs.c.queue_order))]

    async def last_started_ms(self, target: str) -> int | None:
        """When a call to the target was begun last; None: never, or nothing is known of it."""
        of_target = jobs.c.target == target
        going = select(func.max(jobs.c.started_ms).label("ms")).where(
            of_target, jobs.c.ended_ms.is_(None)
        )
        ended = select(jobs.c.started_ms.label("ms")).where(
            of_target, jobs.c.ended_ms.is_not(None), jobs.c.started_ms.is_not(None)
        )
        latest = ended.order_by(jobs.c.ended_ms.desc()).limit(1)
        known = [row["ms"] for row in [*await self._read(going), *await self._read(latest)]]
        last_ms: int | None = max((ms for ms in known if ms is not None), default=None)
        if last_ms is None:
            return None
        # A call that began later than this one ended later, too: there are few of these.
        later = select(func.max(jobs.c.started_ms).label("ms")).where(
            of_target, jobs.c.ended_ms >= last_ms
        )
        (row,) = await self._read(later)
        return max(last_ms, int(row["ms"] or 0))

    async def counts(
        self, target: str | None = None, states: Iterable[State] = State
    ) -> dict[tuple[str, str], int]:
        """How many jobs there are, by target and state. Each is counted: of all targets and states
        that takes about a second for a million."""
        found = select(jobs.c.target, jobs.c.state, func.count().label("number"))
        if target is not None:
            found = found.where(jobs.c.target == target)
        if (asked := frozenset(states)) < frozenset(State):
            found = found.where(is_any(jobs.c.state, asked))
        rows = await self._read(found.group_by(jobs.c.target, jobs.c.state))
        return {(row["target"], row["state"]): row["number"] for row in rows}

    async def unended(self, targets: Iterable[str]) -> set[str]:
        """Those of these targets that have jobs which wait or run."""
        if not (names := list(targets)):
            return set()
        of_some = (jobs.c.target.in_(names), is_any(jobs.c.state, WAITS + RUNS))
        rows = await self._read(select(jobs.c.target).where(*of_some).distinct())
        return {row["target"] for row in rows}

    # What is over -----------------------------------------------------------------------------

    async def expire(
        self,
        now_ms: int,
        limit: int,
        result_ttl_ms: Mapping[str, int],
        default_ms: int = DEFAULT_TTL_MS,
    ) -> list[tuple[str, str]]:
        """Ends jobs that waited too long; that is known for as long as results of their target are
        kept. At most `limit`; the ids and targets of those that this call ended."""
        # What was called has a permit, and until that ends it may be used.
        overdue = (
            or_(
                and_(jobs.c.state == State.PENDING.value, jobs.c.expires_ms <= now_ms),
                and_(jobs.c.state == State.CALLED.value, jobs.c.expires_ms <= now_ms - PERMIT_MS),
            ),
        )
        ids = await self._ids(select(jobs.c.id).where(*overdue).limit(limit))

        async def work(connection: AsyncConnection) -> list[tuple[str, str]]:
            rows = await _lock(connection, ids)
            ended = [
                (row["id"], row["target"])
                for row in rows
                if row["expires_ms"] <= now_ms - (PERMIT_MS if row["state"] == State.CALLED else 0)
                and row["state"] in WAITS
            ]
            for target in {target for _, target in ended}:
                gone_ms = now_ms + result_ttl_ms.get(target, default_ms)
                of_target = jobs.c.id.in_([id_ for id_, other in ended if other == target])
                values = ended_values(State.EXPIRED, now_ms)
                await connection.execute(
                    update(jobs).where(of_target).values(**values, expires_ms=gone_ms)
                )
            return ended

        return await self._write(work) if ids else []

    async def delete_old(self, now_ms: int, limit: int) -> int:
        """Removes jobs that ended and were kept long enough, but not those whose callers are still
        to be told. At most `limit`; how many this call removed."""
        # As an expression: by the index of callback_ms nearly all jobs would be found.
        is_told = func.coalesce(jobs.c.callback_ms, 0) == 0
        old = (is_any(jobs.c.state, ENDED), jobs.c.expires_ms <= now_ms, is_told)
        found = select(jobs.c.id, jobs.c.result_size).where(*old).limit(limit)
        ids, size = list[str](), 0
        for row in await self._read(found):
            if ids and size + row["result_size"] > BYTES_AT_ONCE:
                break
            size += row["result_size"]
            ids.append(row["id"])

        async def work(connection: AsyncConnection) -> int:
            gone = [
                row["id"]
                for row in await _lock(connection, ids)
                if row["state"] in ENDED
                and row["expires_ms"] <= now_ms
                and row["callback_ms"] is None
            ]
            if gone:
                await connection.execute(delete(chunks).where(chunks.c.job.in_(gone)))
                await connection.execute(delete(jobs).where(jobs.c.id.in_(gone)))
            return len(gone)

        return await self._write(work) if ids else 0

    async def _ids(self, statement: Any) -> list[str]:
        """Jobs that are worth a transaction, which locks them and looks at them again: two keepers
        that find the same do the work once."""
        return [row["id"] for row in await self._read(statement)]

    # Callbacks --------------------------------------------------------------------------------

    async def due_callbacks(
        self,
        now_ms: int,
        limit: int,
        *,
        hold_ms: int,
        each: int = CANDIDATES,
        under_way: Mapping[str, int] = NONE,
    ) -> list[Job]:
        """Jobs whose callers are to be told now, those who wait longest first; `each` to one
        receiver at most, those `under_way` to it included. Nobody else gets them for `hold_ms`."""
        # Those of a slow receiver would hide all others.
        full = [name for name, number in under_way.items() if number >= each]
        url = func.lower(jobs.c.callback_url)
        longest = select(jobs.c.id, jobs.c.callback_url).where(
            jobs.c.callback_ms <= now_ms,
            *(not_(url.startswith(f"{name}/", autoescape=True)) for name in full),
        )
        ids, counts = list[str](), Counter(under_way)
        for row in await self._read(longest.order_by(jobs.c.callback_ms).limit(CANDIDATES)):
            name = receiver_of(row["callback_url"])
            if counts[name] < each and len(ids) < limit:
                counts[name] += 1
                ids.append(row["id"])

        async def work(connection: AsyncConnection) -> list[Job]:
            rows = await _lock(connection, ids)
            due = [row for row in rows if row["callback_ms"] and row["callback_ms"] <= now_ms]
            if due:
                mine = jobs.c.id.in_([row["id"] for row in due])
                held_ms = now_ms + hold_ms
                await connection.execute(update(jobs).where(mine).values(callback_ms=held_ms))
            return [job_of(row) for row in sorted(due, key=lambda row: row["callback_ms"])]

        return await self._write(work) if ids else []

    async def called_back(
        self, id_: str, *, ended_ms: int | None, next_ms: int | None, tries: int
    ) -> None:
        """`tries` so far, of this end of the job; None: that was the last one. A job that was tried
        again since has nothing to tell yet, or another end."""
        still = (
            jobs.c.id == id_, jobs.c.callback_ms.is_not(None), jobs.c.ended_ms == ended_ms,
        )  # fmt: skip
        told = update(jobs).where(*still).values(callback_ms=next_ms, callback_tries=tries)
        await self._write(lambda connection: connection.execute(told))

    # Targets ----------------------------------------------------------------------------------

    async def targets(self) -> dict[str, str]:
        """The settings of those that were changed at run time, as they were put."""
        rows = await self._read(select(targets.c.name, targets.c.settings))
        return {row["name"]: row["settings"] for row in rows}

    async def put_target(self, name: str, text: str, at_ms: int) -> None:
        put = laid_over(self._engine.dialect.name, targets)
        row = {"name": name, "settings": text, "changed_ms": at_ms}
        await self._write(lambda connection: connection.execute(put, row))

    async def delete_target(self, name: str) -> bool:
        """Whether there was one."""
        gone = delete(targets).where(targets.c.name == name)
        done = await self._write(lambda connection: connection.execute(gone))
        return bool(done.rowcount)

    # History ----------------------------------------------------------------------------------

    async def history(self, target: str, since_ms: int, until_ms: int, step_ms: int) -> list[Step]:
        """The jobs of a target that ended in a period, in steps; where none ended there is none."""
        # Written out: a parameter would be another one in GROUP BY, for all that PostgreSQL knows.
        since: Any = literal_column(str(int(since_ms)))
        step: Any = literal_column(str(int(step_ms)))
        begins = jobs.c.ended_ms - (jobs.c.ended_ms - since) % step

        def number(*states: State) -> Any:
            return func.sum(case((is_any(jobs.c.state, states), 1), else_=0))

        found = (
            select(
                begins.label("at_ms"),
                number(State.COMPLETED).label("completed"),
                number(State.FAILED).label("failed"),
                number(State.CANCELLED, State.EXPIRED).label("other"),
                func.count(jobs.c.started_ms).label("begun"),
                func.sum(jobs.c.started_ms - jobs.c.created_ms).label("wait_ms"),
                func.sum(jobs.c.ended_ms - jobs.c.started_ms).label("duration_ms"),
            )
            .where(
                and_(
                    jobs.c.target == target,
                    jobs.c.ended_ms >= since_ms,
                    jobs.c.ended_ms < until_ms,
                )
            )
            .group_by(begins)
        )
        rows = sorted(await self._read(found), key=lambda row: row["at_ms"])
        return [
            Step(
                int(r["at_ms"]), int(r["completed"]), int(r["failed"]), int(r["other"]),
                _mean(r["wait_ms"], r["begun"]), _mean(r["duration_ms"], r["begun"]),
            )
            for r in rows
        ]  # fmt: skip


async def _lock(connection: AsyncConnection, ids: list[str]) -> Sequence[Any]:
    """These jobs without their bodies, in the order in which all who lock several do it."""
    found = FIND.where(jobs.c.id.in_(ids)).order_by(jobs.c.id).with_for_update()
    return (await connection.execute(found)).mappings().all()


def _mean(total: Any, count: int) -> int | None:
    return round(total / count) if count else None
