"""SQL servers of the measurement's own: temporary folders on a disk, unix sockets alone, removed at
the end. They are as durable as they are by default, other than those of the tests."""

import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support.processes import Process, listens, wait_until

#: What the measured MariaDB is given; all else is its default: each commit is on the disk.
SETTINGS = (
    "--innodb-buffer-pool-size=1G",
    # So that a restart forgets what was in memory.
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
)
#: While rows are loaded a crash would cost nothing but time.
_LOADING = (
    "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite", "--innodb-log-file-size=1G",
    "--innodb-stats-auto-recalc=OFF", "--innodb-sort-buffer-size=64M",
)  # fmt: skip
#: Ends of these servers take as long as what they have to write.
_STOP_S = 300


class Server(AbstractContextManager[Any]):
    kind: str
    url: str

    def __init__(self, home: Path | None = None) -> None:
        self._stack = ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="waitroom-sql-", dir=home))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.folder.chmod(0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """And waits until it answers."""
        raise NotImplementedError

    def size_mb(self) -> float:
        """What its files take on the disk."""
        found = (file.stat() for file in (self.folder / "data").rglob("*") if file.is_file())
        return sum(512 * each.st_blocks for each in found) / 1e6


class Mariadb(Server):
    """Started by `start`, as often as one likes."""

    kind = "mariadb"

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self.socket = self.folder / "s.sock"
        self.url = f"mariadb://root@/history?unix_socket={self.socket}"
        self._user = pwd.getpwuid(os.getuid()).pw_name
        self.client = [
            "mariadb", "--no-defaults", f"--socket={self.socket}", f"--user={self._user}",
        ]  # fmt: skip
        install = [
            "mariadb-install-db", "--no-defaults", f"--datadir={self.folder}/data",
            f"--user={self._user}", "--skip-test-db", "--auth-root-authentication-method=normal",
            f"--tmpdir={self.folder}",
        ]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True, timeout=120)
        self._process: Process | None = None

    def start(self, *, loading: bool = False) -> None:
        """Anew, where it runs."""
        self.stop()
        server = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
        if server is None:
            raise RuntimeError("mariadbd is not installed; run make bench-history")
        command = [
            server, "--no-defaults", f"--user={self._user}", f"--datadir={self.folder}/data",
            f"--socket={self.socket}", "--skip-networking", "--local-infile=ON",
            f"--pid-file={self.folder}/pid", f"--tmpdir={self.folder}",
            *SETTINGS, *(_LOADING if loading else ()),
        ]  # fmt: skip
        process = self._process = Process(command, log=self.folder / "log")
        self._stack.callback(process.stop, _STOP_S)
        process.start()
        ask = [*self.client, "-e", "CREATE DATABASE IF NOT EXISTS history"]
        wait_until(lambda: _runs(ask), f"mariadbd: {process.output}", 120)

    def stop(self) -> None:
        if self._process is not None and self._process.running:
            self._process.stop(_STOP_S)


class Postgresql(Server):
    kind = "postgresql"

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self.url = f"postgresql://postgres@/history?host={self.folder}"
        bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        if not bins:
            raise RuntimeError("postgresql is not installed; run make bench-history")
        as_user: list[str] = []
        if os.getuid() == 0:  # it refuses to run as root
            shutil.chown(self.folder, "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        data = f"{self.folder}/data"
        init = [*as_user, str(bins[-1] / "initdb"), "-D", data, "-U", "postgres", "-A", "trust"]
        subprocess.run(init, check=True, capture_output=True, timeout=120, cwd=self.folder)
        self._command = [*as_user, str(bins[-1] / "postgres"), "-D", data, "-k", str(self.folder),
                         "-c", "listen_addresses="]  # fmt: skip

    def start(self) -> None:
        process = Process(self._command, log=self.folder / "log", cwd=self.folder)
        process.start()
        self._stack.callback(process.stop, _STOP_S)
        self._stack.callback(process.signal, signal.SIGINT)  # it would wait for the connected
        ask = ["psql", "-h", str(self.folder), "-U", "postgres", "-qtc"]
        wait_until(lambda: _runs([*ask, "SELECT 1"]), f"postgres: {process.output}", 60)
        _runs([*ask, "CREATE DATABASE history"])


class RedisServer(Server):
    """Started by its `with` block."""

    def __enter__(self) -> Self:
        self.socket = self.folder / "redis.sock"
        command = [
            "redis-server", "--port", "0", "--unixsocket", str(self.socket), "--save", "",
            "--dir", str(self.folder),
        ]  # fmt: skip
        process = Process(command, log=self.folder / "log")
        self._stack.enter_context(process)
        wait_until(lambda: listens(self.socket), f"redis-server: {process.output}")
        return self


class Sqlite(Server):
    """A file."""

    kind = "sqlite"

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self.url = f"sqlite:///{self.folder}/history.db"

    def start(self) -> None:
        """There is nothing to start."""


def versions() -> list[str]:
    """Of the databases, with their names."""
    return [
        f"MariaDB {_version('mariadb')}",
        f"PostgreSQL {_version('psql')}",
        f"SQLite {sqlite3.sqlite_version}",
    ]


def _version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+|\d+\.\d+", done.stdout.partition("Distrib")[2] or done.stdout)
    return found[0] if found else "unknown"


def _runs(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, check=False, timeout=30)
    return done.returncode == 0
