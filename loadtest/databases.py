"""Databases that are as durable as they are by default, unlike those of the tests."""

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from loadtest.machine import read_version
from tests.support.databases import Mariadb, Postgresql, Sqlite

Database: TypeAlias = Sqlite | Mariadb | Postgresql

#: Options of the measured MariaDB; a restart forgets what was in memory.
SETTINGS = (
    "--innodb-buffer-pool-size=1G",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--local-infile=ON",
)
#: While rows are loaded a crash would cost nothing but time.
LOADING = (
    "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite", "--innodb-log-file-size=1G",
    "--innodb-stats-auto-recalc=OFF", "--innodb-sort-buffer-size=64M",
)  # fmt: skip
#: How long a server may take to write everything before it ends, seconds.
STOP_S = 300


@contextmanager
def open_database(kind: str, home: Path | None = None) -> Iterator[Database]:
    """Yield a database in a temporary folder under `home`. The caller starts MariaDB."""
    with tempfile.TemporaryDirectory(
        prefix="waitroom-sql-", dir=home, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        folder.chmod(0o755)
        database: Database
        if kind == "mariadb":
            database = Mariadb(folder, SETTINGS)
        else:
            database = Sqlite(folder) if kind == "sqlite" else Postgresql(folder, ())
            database.start()
        try:
            yield database
        finally:
            database.close(STOP_S)


def size_mb(folder: Path) -> float:
    """Return the disk space that a server's data takes."""
    files = (file.stat() for file in (folder / "data").rglob("*") if file.is_file())
    return sum(512 * file.st_blocks for file in files) / 1e6


def versions() -> str:
    """Return the databases' names with their versions."""
    mariadb, postgresql = (
        re.search(r"\d+\.\d+(\.\d+)?", read_version(program, "--version").rpartition("Distrib")[2])
        for program in ("mariadb", "psql")
    )
    found = {"MariaDB": mariadb, "PostgreSQL": postgresql}
    names = [f"{name} {version[0] if version else 'unknown'}" for name, version in found.items()]
    return ", ".join([*names, f"SQLite {sqlite3.sqlite_version}"])
