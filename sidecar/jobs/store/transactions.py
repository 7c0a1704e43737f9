"""Transactions on the tables of the jobs, on each kind of database.

Every method raises DatabaseError when the database does not answer, or refuses.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import BigInteger, case, literal
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from sidecar.jobs.model import State
from sidecar.jobs.store.tables import JOBS, jobs
from sidecar.kit.errors import DatabaseError
from sidecar.kit.sql import database as sql

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

Item = TypeVar("Item")
Reply = TypeVar("Reply")
Result = TypeVar("Result")

#: Jobs in one transaction.
AT_ONCE = 200
#: How often a transaction is begun again that the database gave up for another's sake.
_TRIES = 5
#: Deadlocks and their like: of MariaDB and MySQL, by number; of PostgreSQL, by state.
_GIVEN_UP = frozenset({1213, "40001", "40P01"})

WAITS = (State.PENDING, State.CALLED)
RUNS = (State.CALLED, State.PROCESSING)


class JobDatabase:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        #: SQLite's writers wait for one another by looking again and again.
        self._turn = asyncio.Lock() if engine.dialect.name == "sqlite" else nullcontext()

    async def check(self) -> None:
        """Raises DatabaseError unless the tables are what this version reads and writes."""
        await sql.check(self._engine, JOBS, self.migrate)

    async def migrate(self) -> tuple[str | None, str]:
        """The revisions of the tables before and after."""
        return await sql.migrate(self._engine, JOBS)

    async def close(self) -> None:
        await self._engine.dispose()

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """What `work` returns, done in one transaction. It is done again from the start when the
        database ends it because others stand in its way, and it in theirs."""
        for _ in range(_TRIES - 1):
            try:
                return await self._write_once(work)
            except DatabaseError as error:
                if not _was_given_up(error):
                    raise
        return await self._write_once(work)

    async def _write_once(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        try:
            async with self._turn, sql.begin(self._engine) as connection:
                if connection.dialect.name == "sqlite":
                    # It waits for its turn before it reads: who reads first, and then wants to
                    # write what another has changed meanwhile, is refused at once.
                    await connection.exec_driver_sql("BEGIN IMMEDIATE")
                return await work(connection)
        except (ValueError, OverflowError) as error:  # text or a number that no database can hold
            raise DatabaseError(sql.reason(error)) from error

    async def _change(self, statement: Any) -> bool:
        """Whether there was a row to change."""
        done = await self._write(lambda connection: connection.execute(statement))
        return bool(done.rowcount)

    async def _read(self, statement: Any) -> list[Any]:
        """The rows, as mappings."""
        try:
            async with sql.begin(self._engine) as connection:
                return list((await connection.execute(statement)).mappings())
        except (ValueError, OverflowError) as error:
            raise DatabaseError(sql.reason(error)) from error


def ended_values(state: State, at_ms: int) -> dict[str, Any]:
    """What is written to a job that ends without a result; its caller is told where it wishes."""
    told_ms = case((jobs.c.callback_url.is_(None), None), else_=literal(at_ms, BigInteger))
    return {"state": state.value, "ended_ms": at_ms, "callback_ms": told_ms, "not_before_ms": None}


def is_any(column: Any, states: Iterable[State]) -> Any:
    return column.in_(sorted(state.value for state in states))


async def apart(
    run: Callable[[Sequence[Item]], Awaitable[list[Reply]]], batch: Sequence[Item]
) -> list[Reply]:
    """The replies to a batch. Where the database refuses one for what it holds, each goes alone,
    and who is refused gets the error in place of a reply."""
    try:
        return await run(batch)
    except DatabaseError as error:
        if len(batch) == 1 or _is_away(error):
            raise
    replies: list[Any] = []
    for item in batch:
        try:
            replies += await run([item])
        except DatabaseError as error:
            replies.append(error)
    return replies


def _is_away(error: DatabaseError) -> bool:
    """Whether the database would refuse anything now."""
    cause = error.__cause__
    if isinstance(cause, DBAPIError) and cause.connection_invalidated:
        return True
    return isinstance(cause, (OSError, OperationalError, InterfaceError))


def _was_given_up(error: DatabaseError) -> bool:
    cause = error.__cause__
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return False
    said = {getattr(cause.orig, "sqlstate", None), getattr(cause.orig, "pgcode", None)}
    return bool(_GIVEN_UP & {*said, *cause.orig.args[:1]})
