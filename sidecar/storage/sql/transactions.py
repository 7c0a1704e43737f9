"""Runs transactions in the same way on SQLite, MariaDB, MySQL and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Table
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sidecar.kit.batch import BatchItem, BatchReply
from sidecar.kit.errors import DatabaseError, DatabaseLockedError
from sidecar.storage.sql import database as sql

Result = TypeVar("Result")

#: The maximum number of attempts at a transaction that the database aborts due to another one.
TRIES = 5
#: Codes of deadlocks and serialization failures: MariaDB's and MySQL's, and PostgreSQL's SQLSTATEs.
_DEADLOCKS = frozenset({1213, "40001", "40P01"})


class Transactions:
    """Runs transactions on one database. Methods raise DatabaseError if the database does not
    answer or refuses a statement."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._dialect = engine.dialect.name
        #: Allows one writer at a time for SQLite, where writers would poll to wait for each other.
        self._write_lock = asyncio.Lock() if self._dialect == "sqlite" else nullcontext()

    async def write(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        """Run `work` in a transaction, and in a new one after a deadlock. Return the result."""
        for _ in range(TRIES - 1):
            try:
                return await self._write_once(work)
            except DatabaseError as error:
                if not _is_deadlock(error):
                    raise
        return await self._write_once(work)

    async def _write_once(self, work: Callable[[AsyncConnection], Awaitable[Result]]) -> Result:
        async with self._write_lock, self._begin() as connection:
            if self._dialect == "sqlite":
                # SQLite refuses a transaction that writes after it has read, if another transaction
                # has written in between.
                await connection.exec_driver_sql("BEGIN IMMEDIATE")
            return await work(connection)

    async def change(self, statement: Any, values: Any = None) -> bool:
        """Run a statement in its own transaction, and return True if it changed a row."""
        result = await self.write(lambda connection: connection.execute(statement, values))
        return bool(result.rowcount)

    async def read(self, statement: Any) -> list[Any]:
        async with self._begin() as connection:
            return list(await connection.execute(statement))

    @asynccontextmanager
    async def _begin(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with sql.begin(self.engine) as connection:
                yield connection
        except (ValueError, OverflowError) as error:  # text or a number that no database can hold
            raise DatabaseError(sql.describe_error(error)) from error

    def upsert(self, table: Table) -> Any:
        """Return a statement that inserts a row, or replaces the row with the same primary key."""
        keys = [column.name for column in table.primary_key]
        other_names = [column.name for column in table.columns if column.name not in keys]
        if self._dialect == "mysql":
            insert = mysql.insert(table)
            return insert.on_duplicate_key_update({n: insert.inserted[n] for n in other_names})
        statement = self._insert(table)
        values = {name: statement.excluded[name] for name in other_names}
        return statement.on_conflict_do_update(index_elements=keys, set_=values)

    def insert_ignore(self, table: Table) -> Any:
        """Return a statement that inserts a row, unless another row has the same unique key."""
        if self._dialect == "mysql":  # MySQL's INSERT IGNORE would ignore all other errors too
            name = next(iter(table.primary_key)).name
            return mysql.insert(table).on_duplicate_key_update({name: table.c[name]})
        return self._insert(table).on_conflict_do_nothing()

    def prepare_insert_ignore(self, table: Table, names: Sequence[str]) -> "PreparedInsert":
        """Return the same statement as `insert_ignore`, for these columns and any number of rows.
        It is compiled once, and takes a third of the time for each row."""
        dialect = self.engine.dialect
        compiled = self.insert_ignore(table).compile(dialect=dialect, column_keys=list(names))
        return PreparedInsert(
            str(compiled),
            [
                (name, table.c[name].type.dialect_impl(dialect).bind_processor(dialect))
                for name in compiled.positiontup
            ],
        )

    def _insert(self, table: Table) -> Any:
        return (postgresql if self._dialect == "postgresql" else sqlite).insert(table)


@dataclass(frozen=True, slots=True)
class PreparedInsert:
    """A compiled statement, and for each of its parameters the column's name and the function that
    converts a value for the driver."""

    text: str
    parameters: list[tuple[str, Callable[[Any], Any] | None]]

    async def execute(self, connection: AsyncConnection, items: Iterable[object]) -> None:
        """Insert rows. Each item has an attribute for each column."""
        rows = [
            tuple(
                getattr(item, name) if convert is None else convert(getattr(item, name))
                for name, convert in self.parameters
            )
            for item in items
        ]
        await connection.exec_driver_sql(self.text, rows)


async def isolate_errors(
    run: Callable[[Sequence[BatchItem]], Awaitable[list[BatchReply]]], batch: Sequence[BatchItem]
) -> list[BatchReply]:
    """Run a batch and return the replies. If the database refuses the batch, run each item alone,
    and return the error as the reply to each item that is refused."""
    try:
        return await run(batch)
    except DatabaseError as error:
        if len(batch) == 1 or _is_unavailable(error):
            raise
    replies: list[Any] = []
    for item in batch:
        try:
            replies += await run([item])
        except DatabaseError as error:
            replies.append(error)
    return replies


def _is_unavailable(error: DatabaseError) -> bool:
    """Return True if the database is unavailable, so that any other statement would fail too."""
    if isinstance(error, DatabaseLockedError):
        return False
    cause = error.__cause__
    is_invalidated = isinstance(cause, DBAPIError) and cause.connection_invalidated
    return is_invalidated or isinstance(cause, (OSError, OperationalError, InterfaceError))


def _is_deadlock(error: DatabaseError) -> bool:
    cause = error.__cause__
    return isinstance(cause, DBAPIError) and bool(_DEADLOCKS & sql.get_codes(cause))
