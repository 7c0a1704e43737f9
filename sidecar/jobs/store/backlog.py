"""What waits and runs, in SQL: from this a queue is built again, and compared with Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import func, select

from sidecar.jobs.model import RUNS, WAITS, Job, State
from sidecar.jobs.store.tables import FIND, job_of, jobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.kit.sql.transactions import Transactions


class Waits(NamedTuple):
    """A job that is pending. It is not tried again before `not_before_ms`."""

    id: str
    queue_order: int
    is_online: bool
    not_before_ms: int | None
    created_ms: int


class BacklogRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def waiting(self, target: str, after: tuple[int, str] | None, limit: int) -> list[Waits]:
        """Jobs of a target that are pending, in their order; `after` the order and the id of the
        last one that is known."""
        found = select(
            jobs.c.id, jobs.c.queue_order, jobs.c.kind == "online", jobs.c.not_before_ms,
            jobs.c.created_ms,
        ).where(jobs.c.target == target, jobs.c.state == State.PENDING)  # fmt: skip
        if after is not None:
            order, id_ = after
            found = found.where(
                jobs.c.queue_order >= order, (jobs.c.queue_order > order) | (jobs.c.id > id_)
            )
        rows = await self._transactions.read(
            found.order_by(jobs.c.queue_order, jobs.c.id).limit(limit)
        )
        return [Waits(*row) for row in rows]

    async def running(self, target: str) -> list[Job]:
        """Jobs of a target that are called (online) or processing."""
        found = FIND.where(jobs.c.target == target, jobs.c.state.in_(RUNS))
        rows = await self._transactions.read(found.order_by(jobs.c.queue_order))
        return [job_of(row) for row in rows]

    async def last_started_ms(self, target: str) -> int | None:
        """When a call to the target was begun last; None: never, or nothing is known of it."""
        of_target = jobs.c.target == target
        going = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms.is_(None))
        ended = (
            select(jobs.c.started_ms)
            .where(of_target, jobs.c.ended_ms.is_not(None), jobs.c.started_ms.is_not(None))
            .order_by(jobs.c.ended_ms.desc())
            .limit(1)
        )
        rows = [*await self._transactions.read(going), *await self._transactions.read(ended)]
        last_ms: int | None = max((ms for (ms,) in rows if ms is not None), default=None)
        if last_ms is None:
            return None
        # A call that began later than this one ended later, too: there are few of these.
        later = select(func.max(jobs.c.started_ms)).where(of_target, jobs.c.ended_ms >= last_ms)
        [(latest_ms,)] = await self._transactions.read(later)
        return max(last_ms, int(latest_ms or 0))

    async def counts(
        self, target: str | None = None, states: Iterable[State] = State
    ) -> dict[tuple[str, str], int]:
        """How many jobs there are, by target and state. Each is counted: of all targets and states
        that takes about a second for a million."""
        found = select(jobs.c.target, jobs.c.state, func.count())
        if target is not None:
            found = found.where(jobs.c.target == target)
        if (asked := frozenset(states)) < frozenset(State):
            found = found.where(jobs.c.state.in_(asked))
        rows = await self._transactions.read(found.group_by(jobs.c.target, jobs.c.state))
        return {(name, state): number for name, state, number in rows}

    async def unended(self, targets: Iterable[str]) -> set[str]:
        """Those of these targets that have jobs which wait or run."""
        if not (names := list(targets)):
            return set()
        of_some = (jobs.c.target.in_(names), jobs.c.state.in_({*WAITS, *RUNS}))
        found = select(jobs.c.target).where(*of_some).distinct()
        return {name for (name,) in await self._transactions.read(found)}
