"""Runs transactions on one database, and hides what differs between kinds of databases."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sidecar.kit.errors import DatabaseError
from sidecar.storage.sql import database as sql

Item = TypeVar("Item")
Reply = TypeVar("Reply")
Result = TypeVar("Result")

#: How often a transaction is begun that the database gives up because of another one.
TRIES = 5
#: Deadlocks and serialization failures: MariaDB's and MySQL's number, PostgreSQL's SQLSTATE.
_DEADLOCKS = frozenset({1213, "40001", "40P01"})


class Transactions:
    """The transactions of one database. Every method raises DatabaseError when the database does
    not answer, or refuses."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._dialect = engine.dialect.name
        #: SQLite's writers wait for one another by polling.
        self._writing = asyncio.Lock() if self._dialect == "sqlite" else nullcontext()

    async def write(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Run `work` in one transaction and return its result. Retries on deadlock, from the
        start."""
        for _ in range(TRIES - 1):
            try:
                return await self._write_once(work)
            except DatabaseError as error:
                if not _is_deadlock(error):
                    raise
        return await self._write_once(work)

    async def _write_once(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        async with self._writing, self._begin() as connection:
            if self._dialect == "sqlite":
                # SQLite refuses a transaction that reads first and writes after another has.
                await connection.exec_driver_sql("BEGIN IMMEDIATE")
            return await work(connection)

    async def change(self, statement: Any, values: Any = None) -> bool:
        """Run a statement, and return True if it changed a row."""
        done = await self.write(lambda connection: connection.execute(statement, values))
        return bool(done.rowcount)

    async def read(self, statement: Any) -> list[Any]:
        """Return the rows of a query."""
        async with self._begin() as connection:
            return list(await connection.execute(statement))

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with sql.begin(self.engine) as connection:
                yield connection
        except (ValueError, OverflowError) as error:  # text or a number that no database can hold
            raise DatabaseError(sql.reason(error)) from error

    def upsert(self, table: Table) -> Any:
        """Insert a row, or replace the one with the same primary key."""
        keys = [column.name for column in table.primary_key]
        rest = [column.name for column in table.columns if column.name not in keys]
        if self._dialect == "mysql":
            over = mysql.insert(table)
            return over.on_duplicate_key_update({name: over.inserted[name] for name in rest})
        made = self._insert(table)
        return made.on_conflict_do_update(
            index_elements=keys, set_={name: made.excluded[name] for name in rest}
        )

    def insert_ignore(self, table: Table) -> Any:
        """Insert a row, unless one of its unique keys is taken."""
        if self._dialect == "mysql":  # its IGNORE would ignore any other error too
            name = next(iter(table.primary_key)).name
            return mysql.insert(table).on_duplicate_key_update({name: table.c[name]})
        return self._insert(table).on_conflict_do_nothing()

    def _insert(self, table: Table) -> Any:
        return (postgresql if self._dialect == "postgresql" else sqlite).insert(table)


async def separately(
    run: Callable[[Sequence[Item]], Awaitable[list[Reply]]], batch: Sequence[Item]
) -> list[Reply]:
    """Return the replies to a batch. If the database refuses the batch, each item is sent alone,
    and a refused item gets the error as its reply."""
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
    """Return True if the database would refuse any statement now."""
    cause = error.__cause__
    if isinstance(cause, DBAPIError) and cause.connection_invalidated:
        return True
    return isinstance(cause, (OSError, OperationalError, InterfaceError))


def _is_deadlock(error: DatabaseError) -> bool:
    cause = error.__cause__
    if not isinstance(cause, DBAPIError) or cause.orig is None:
        return False
    codes = {getattr(cause.orig, "sqlstate", None), getattr(cause.orig, "pgcode", None)}
    return bool(_DEADLOCKS & {*codes, *cause.orig.args[:1]})
