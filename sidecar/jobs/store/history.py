"""What became of the jobs, in SQL: how many ended how, and how long they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import case, func, literal_column, select

from sidecar.jobs.model import State
from sidecar.jobs.store.tables import jobs

if TYPE_CHECKING:
    from sidecar.kit.sql.transactions import Transactions


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


class HistoryRepository:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

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
        return [
            Step(
                int(at_ms), int(completed), int(failed), int(other),
                _mean(wait_ms, started), _mean(duration_ms, started),
            )
            for at_ms, completed, failed, other, started, wait_ms, duration_ms in sorted(
                await self._transactions.read(found), key=lambda row: row.at_ms
            )
        ]  # fmt: skip


def _count(*states: State) -> Any:
    return func.sum(case((jobs.c.state.in_(states), 1), else_=0))


def _mean(total: Any, count: int) -> int | None:
    """Not below 0, where the clocks of two processes would have it so."""
    return max(0, round(total / count)) if count else None
