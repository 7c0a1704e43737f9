"""Opens the SQL database of a URL, and migrates the tables in it."""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event, make_url, select, text
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from sidecar.kit.errors import DatabaseError, DatabaseUnavailableError, InputError

#: The folder of the package. The migrations of a product are in PRODUCT/migrations.
PACKAGE = Path(__file__).resolve().parents[2]
#: The driver, the module that it needs, and the extra with that module, by scheme of a URL.
_DRIVERS = {
    "sqlite": ("sqlite+aiosqlite", "aiosqlite", ""),
    "mysql": ("mysql+asyncmy", "asyncmy", "mysql"),
    "mariadb": ("mysql+asyncmy", "asyncmy", "mysql"),
    "postgresql": ("postgresql+asyncpg", "asyncpg", "postgresql"),
}
#: How long a writer of SQLite waits for another writer, ms.
BUSY_MS = 10_000
#: How often, 10 ms apart, the switch of a new file of SQLite to a write-ahead log is tried.
_WAL_TRIES = 100
#: How long a connection to the database may take, seconds.
CONNECT_S = 5
#: How long a transaction may take, seconds. A reset of a million places takes especially long.
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Tables:
    """A product's tables and migrations. Several products may share a database."""

    #: The product, which has a folder of migrations.
    name: str
    #: The revision of the tables that this version of Waitroom reads and writes.
    revision: str
    #: The table that has the current revision.
    version_table: str


#: The lock of each event loop that allows one migration at a time. alembic has global state, and
#: would create the tables of a second product in the database of the first.
_migration_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class UnversionedError(RuntimeError):
    """The tables have rows, but the database does not have their revision."""


def open_database(url: str, *, setting: str = "history") -> AsyncEngine:
    """Return an engine for any URL that the `setting` allows. Nothing is sent yet. Raises
    InputError, with the setting, if the URL cannot be read or the driver is not installed."""
    try:
        parsed = make_url(url)
        driver, module, extra = _DRIVERS[parsed.drivername]
        return _create_engine(parsed.set(drivername=driver), setting)
    except ModuleNotFoundError:
        how = f'the driver {module} is missing; install it: pip install "waitroom[{extra}]"'
        raise InputError([f"{setting}: {how}"]) from None
    except (ArgumentError, KeyError, ValueError) as error:
        why = type(error).__name__
        raise InputError([f"{setting}: the address cannot be read: {why}"]) from None


def _create_engine(url: URL, setting: str) -> AsyncEngine:
    kind = url.get_backend_name()
    if kind == "sqlite":
        _check_file(Path(url.database or ""), setting)
        engine = create_async_engine(url)
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        return engine
    timeout = "timeout" if kind == "postgresql" else "connect_timeout"
    # With READ COMMITTED a writer locks no gaps for which another writer's inserts would wait.
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
    """Set up a connection so that readers continue while a batch is written, and a second writer
    waits."""
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


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Convert the errors of the driver to DatabaseError."""
    try:
        yield
    except TimeoutError as error:
        raise DatabaseUnavailableError("the database did not answer in time") from error
    except (OperationalError, OSError) as error:
        raise DatabaseUnavailableError(reason(error)) from error
    except SQLAlchemyError as error:
        raise DatabaseError(reason(error)) from error


def reason(error: BaseException) -> str:
    """Return the driver's message on one line, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(f"{type(cause).__name__}: {cause}".split())[:300]


async def check(engine: AsyncEngine, tables: Tables, make: Callable[[], Awaitable[object]]) -> None:
    """Raise DatabaseError unless the tables have the revision that this version needs. In a new
    file of SQLite call `make`, which creates the tables."""
    current = await revision(engine, tables)
    if current is None and engine.dialect.name == "sqlite":
        await make()  # does nothing if another process did it meanwhile
    elif current != tables.revision:
        has = "there are no tables" if current is None else f"they are of revision {current}"
        raise DatabaseError(f"{has}: run waitroom migrate")


async def revision(engine: AsyncEngine, tables: Tables) -> str | None:
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
    """Migrate the tables, and return the revisions before and after. Idempotent. Raises
    DatabaseError, also if a later version of Waitroom has migrated the tables."""
    from alembic.util import CommandError  # noqa: PLC0415 - takes a tenth of a second to import

    before = await revision(engine, tables)
    lock = _migration_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    try:
        with _database_errors():
            async with lock, engine.begin() as connection:
                await connection.run_sync(_upgrade, tables, partitions)
    except CommandError as error:
        what = f"the tables are of revision {before}, unknown here: {error}"
        raise DatabaseError(what) from error
    except UnversionedError as error:
        raise DatabaseError(str(error)) from error
    return before, tables.revision


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
        # Python would begin the transaction with the first row. That is too late: if two replicas
        # start at the same time, one has to wait until the other has created the tables.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    command.upgrade(config, "head")
