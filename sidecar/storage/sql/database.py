"""Opens the SQL database that a URL names, and migrates its tables."""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import MetaData, Table, event, inspect, make_url, select, table, text
from sqlalchemy.engine import URL, Connection, ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.schema import DropTable

from sidecar.kit.errors import (
    DatabaseError,
    DatabaseLockedError,
    DatabaseUnavailableError,
    InputError,
)
from sidecar.kit.extras import format_install

#: The folder of the package. The migrations of history and jobs are in subfolders.
PACKAGE = Path(__file__).resolve().parents[2]
#: Maps a URL's scheme to a driver, the module that it needs, and the extra that installs it.
_DRIVERS = {
    "sqlite": ("sqlite+aiosqlite", "aiosqlite", ""),
    "mysql": ("mysql+asyncmy", "asyncmy", "mysql"),
    "mariadb": ("mysql+asyncmy", "asyncmy", "mysql"),
    "postgresql": ("postgresql+asyncpg", "asyncpg", "postgresql"),
}
#: How long a writer waits for another writer in SQLite, in ms.
BUSY_MS = 10_000
#: The maximum number of attempts, 10 ms apart, to switch a new SQLite file to a write-ahead log.
_WAL_TRIES = 100
#: The time limit for connecting to the database, in seconds.
CONNECT_S = 5
#: The time limit of a transaction, in seconds. Resetting a room of a million places takes longest.
ANSWER_S = 60.0
#: How long to wait for transactions in progress before all connections are closed, in seconds.
CLOSE_S = 2.0
#: Error codes (SQLSTATEs of PostgreSQL, numbers of MariaDB and MySQL) of a server that has become
#: read-only, and of a statement that has waited for a lock for too long.
_READ_ONLY_CODES = frozenset({"25006", 1290, 1792, 1836})
_LOCKED_CODES = frozenset({"55P03", 1205})


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables and migrations of the history or of jobs, which may share a database."""

    #: "history" or "jobs": the folder that contains the migrations.
    name: str
    #: The revision of the tables that this version of Waitroom reads and writes.
    revision: str
    #: The table that stores the current revision.
    version_table: str


#: For each event loop, a lock that allows one migration at a time. alembic has global state: of two
#: migrations at the same time, one would create its tables in the other's database.
_migration_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def open_database(
    url: str, *, setting: str = "history", lock_timeout_s: int | None = None
) -> AsyncEngine:
    """Return an engine for a database's URL. Nothing is sent yet. Raises InputError, which names
    the `setting`, if the URL cannot be parsed or the driver is not installed. If `lock_timeout_s`
    is set, a statement waits no longer than that for a row that another transaction has locked."""
    try:
        parsed = make_url(url)
        driver, module, extra = _DRIVERS[parsed.drivername]
        engine = _create_engine(parsed.set(drivername=driver), setting)
    except ModuleNotFoundError:
        how = f"the driver {module} is missing; install it: {format_install(extra)}"
        raise InputError([f"{setting}: {how}"]) from None
    except (ArgumentError, KeyError, ValueError) as error:
        why = type(error).__name__
        raise InputError([f"{setting}: the address cannot be read: {why}"]) from None
    event.listen(engine.sync_engine, "handle_error", _drop_if_read_only)
    if lock_timeout_s is not None and engine.dialect.name != "sqlite":
        name, value = "lock_timeout", lock_timeout_s * 1000
        if engine.dialect.name != "postgresql":
            name, value = "innodb_lock_wait_timeout", lock_timeout_s
        run = partial(_run_on_connect, f"SET SESSION {name} = {value}")
        event.listen(engine.sync_engine, "connect", run)
    return engine


def _drop_if_read_only(context: ExceptionContext) -> None:
    """Close all connections after one led to a server that does not write, such as the former
    primary server after a failover."""
    if get_codes(context.original_exception) & _READ_ONLY_CODES:
        context.is_disconnect = True


def _run_on_connect(statement: str, connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(statement)
    cursor.close()
    connection.commit()


def _create_engine(url: URL, setting: str) -> AsyncEngine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        _check_file(Path(url.database or ""), setting)
        engine = create_async_engine(url)
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        return engine
    timeout = "timeout" if kind == "postgresql" else "connect_timeout"
    # READ COMMITTED has no gap locks, for which another writer's inserts would have to wait.
    return create_async_engine(
        url,
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=4,
        connect_args={timeout: CONNECT_S},
    )


def _check_file(file: Path, setting: str) -> None:
    """Raise InputError if SQLite cannot create or write the file."""
    folder = file.absolute().parent
    if not folder.is_dir():
        raise InputError([f"{setting}: {folder} is no folder; make it first"])
    for path in (folder, file):
        if path.exists() and not os.access(path, os.W_OK):
            raise InputError([f"{setting}: {path} cannot be written by this user"])


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Set up a connection so that writers do not block readers, and wait for other writers."""
    cursor = connection.cursor()
    for pragma in (f"busy_timeout={BUSY_MS}", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    # If two processes switch a new file at the same time, SQLite refuses one of them at once.
    for attempt in range(_WAL_TRIES):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError:
            if attempt + 1 == _WAL_TRIES:
                raise
            time.sleep(0.01)
    cursor.close()


@contextlib.asynccontextmanager
async def begin(engine: AsyncEngine, *, is_long: bool = False) -> AsyncIterator[AsyncConnection]:
    """Begin a transaction. Raises DatabaseError if the database refuses a statement, or does not
    answer within ANSWER_S. A long transaction has no time limit."""
    with _database_errors():
        async with asyncio.timeout(None if is_long else ANSWER_S), engine.begin() as connection:
            yield connection


async def close(engine: AsyncEngine) -> None:
    """Close all connections when the transactions in progress have ended, or after CLOSE_S.

    A batch is written to its end even if its callers were cancelled. If the pool were closed before
    that, the connection of the batch would stay open.
    """
    pool = cast("AsyncAdaptedQueuePool", engine.sync_engine.pool)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            while pool.checkedout():  # noqa: ASYNC110 - the pool tells nobody
                await asyncio.sleep(0.005)
    await engine.dispose()


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Convert the errors of the driver to DatabaseError."""
    try:
        yield
    except TimeoutError as error:
        raise DatabaseUnavailableError("the database did not answer in time") from error
    except OSError as error:
        raise DatabaseUnavailableError(describe_error(error)) from error
    except SQLAlchemyError as error:
        if get_codes(error) & _LOCKED_CODES:
            text = "another transaction has locked the row"
            raise DatabaseLockedError(text) from error
        if isinstance(error, OperationalError):
            raise DatabaseUnavailableError(describe_error(error)) from error
        raise DatabaseError(describe_error(error)) from error


def get_codes(error: BaseException) -> set[object]:
    """Return the codes by which the driver names an error: a SQLSTATE or a number."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return {getattr(cause, "sqlstate", None), *cause.args[:1]} - {None}


def describe_error(error: BaseException) -> str:
    """Return the driver's message on one line, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:300]


async def check_revision(
    engine: AsyncEngine, tables: Tables, create_tables: Callable[[], Awaitable[object]]
) -> None:
    """Raise DatabaseError unless the tables have the revision that this version needs. In a SQLite
    file without tables, call `create_tables`."""
    current = await read_revision(engine, tables)
    if current is None and engine.dialect.name == "sqlite":
        await create_tables()  # does nothing if another process has just created them
    elif current != tables.revision:
        has = "there are no tables" if current is None else f"they are of revision {current}"
        raise DatabaseError(f"{has}: run waitroom migrate")


async def read_revision(engine: AsyncEngine, tables: Tables) -> str | None:
    """Return the revision of the tables, or None if there are no tables. Raises DatabaseError."""

    def has_table(connection: Connection) -> bool:
        return connection.dialect.has_table(connection, tables.version_table)

    version = select(text("version_num")).select_from(text(tables.version_table))
    with _database_errors():
        async with asyncio.timeout(ANSWER_S), engine.connect() as connection:
            exists = await connection.run_sync(has_table)
            number: str | None = await connection.scalar(version) if exists else None
    return number


async def migrate(
    engine: AsyncEngine, tables: Tables, *, partitions: int = 1
) -> tuple[str | None, str]:
    """Migrate the tables, and return the revisions before and after. Tables that are up to date do
    not change. `partitions` is how many partitions new tables of the history get. Raises
    DatabaseError, for example if a later version of Waitroom has migrated the tables."""
    from alembic.util import CommandError  # noqa: PLC0415 - takes a tenth of a second to import

    before = await read_revision(engine, tables)
    lock = _migration_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    try:
        with _database_errors():
            async with lock, engine.begin() as connection:
                await connection.run_sync(_upgrade, tables, partitions)
    except CommandError as error:
        what = f"the tables are of revision {before}, unknown here: {error}"
        raise DatabaseError(what) from error
    return before, tables.revision


def drop_empty_tables(connection: Connection, names: set[str]) -> None:
    """Drop the tables that a killed first migration has left behind in MariaDB or MySQL. Raises
    DatabaseError if one of them has rows, because nothing says which revision it has."""
    existing = names.intersection(inspect(connection).get_table_names())
    for name in existing:
        if connection.execute(select(1).select_from(table(name)).limit(1)).first():
            raise DatabaseError(f"{name} is there and has rows, but nothing says its revision")
    for name in existing:
        connection.execute(DropTable(Table(name, MetaData())))


def _upgrade(connection: Connection, tables: Tables, partitions: int) -> None:
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    environment = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(environment).replace("%", "%%"))
    versions = str(PACKAGE / tables.name / "migrations").replace("%", "%%")
    config.set_main_option("version_locations", versions)
    config.set_main_option("path_separator", "os")
    config.attributes.update(
        connection=connection, partitions=partitions, version_table=tables.version_table
    )
    if connection.dialect.name == "sqlite":
        # Python would begin the transaction only with the first row. If two replicas start at the
        # same time, one has to wait from the beginning until the other has created the tables.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    command.upgrade(config, "head")
