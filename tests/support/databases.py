"""Databases for tests: SQLite files, and servers of MariaDB and PostgreSQL on unix sockets."""

import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import Process, freeze, wait_until


class Sqlite:
    """An SQLite file with the methods of a server. `stop` locks the file against writes of others,
    until `start`."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "history.db"
        self.url = f"sqlite:///{self._file}"
        self._lock: sqlite3.Connection | None = None

    def start(self) -> None:
        if self._lock is not None:
            self._lock.rollback()
            self._lock.close()
            self._lock = None

    def stop(self) -> None:
        self._lock = sqlite3.connect(self._file, isolation_level=None)
        self._lock.execute("BEGIN IMMEDIATE")

    def close(self, timeout_s: float = 0) -> None:  # noqa: ARG002 - as a server's
        self.start()


class _Server:
    """The base class of database servers, which are processes."""

    _process: Process
    folder: Path

    def freeze(self) -> None:
        """Freeze all processes of the server. PostgreSQL has a process per connection."""
        freeze(self._pids())

    def thaw(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def _pids(self) -> list[int]:
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [pid, *map(int, children.split())]


class Mariadb(_Server):
    """A MariaDB server. By default it does not sync its files to disk, to be fast."""

    kind = "mariadb"
    FAST = (
        "--skip-grant-tables", "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=O_DIRECT_NO_FSYNC",
    )  # fmt: skip

    def __init__(self, folder: Path, options: Sequence[str] = FAST) -> None:
        self.folder = folder
        socket, data = folder / "s.sock", folder / "data"
        self.url = f"mariadb://root@/history?unix_socket={socket}"
        user = pwd.getpwuid(os.getuid()).pw_name
        self.client = ["mariadb", "--no-defaults", f"--socket={socket}", f"--user={user}"]
        install = [
            "mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}",
            "--skip-test-db", "--auth-root-authentication-method=normal",
            # If servers shared a folder for temporary files, each would delete those of the others.
            f"--tmpdir={folder}",
        ]  # fmt: skip
        subprocess.run(install, check=True, capture_output=True, timeout=60)
        server = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert server, "mariadbd is not installed; run make test"
        self._command = [
            server, "--no-defaults", f"--user={user}", f"--datadir={data}", f"--socket={socket}",
            "--skip-networking", f"--pid-file={folder}/pid", f"--tmpdir={folder}", *options,
        ]  # fmt: skip
        self._process = Process(self._command, log=folder / "log")

    def start(self, *options: str) -> None:
        """Start the server. `options` apply until the server stops."""
        self._process = Process([*self._command, *options], log=self.folder / "log")
        self._process.start()
        ask = [*self.client, "-e", "CREATE DATABASE IF NOT EXISTS history"]
        wait_until(lambda: _succeeds(ask), "mariadbd", 120, of=self._process)

    def stop(self) -> None:
        self._process.kill()

    def close(self, timeout_s: float = 10) -> None:
        self._process.stop(timeout_s)


class Postgresql(_Server):
    """A PostgreSQL server. By default it does not sync its files to disk, to be fast."""

    kind = "postgresql"

    def __init__(self, folder: Path, options: Sequence[str] = ("-c", "fsync=off")) -> None:
        bins = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert bins, "postgresql is not installed; run make test"
        data, self.folder = folder / "data", folder
        self.url = f"postgresql://postgres@/history?host={folder}"
        as_user: list[str] = []
        # PostgreSQL refuses to run as root.
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        init = [*as_user, str(bins[-1] / "initdb"), "-D", str(data), "-U", "postgres",
                "-A", "trust", "--no-sync"]  # fmt: skip
        subprocess.run(init, check=True, capture_output=True, timeout=60, cwd=folder)
        command = [*as_user, str(bins[-1] / "postgres"), "-D", str(data), "-k", str(folder),
                   "-c", "listen_addresses=", *options]  # fmt: skip
        self._process = Process(command, log=folder / "log", cwd=folder)

    def start(self) -> None:
        self._process.start()
        ask = ["psql", "-h", str(self.folder), "-U", "postgres", "-qtc"]
        wait_until(lambda: _succeeds([*ask, "SELECT 1"]), "postgres", 60, of=self._process)
        _succeeds([*ask, "CREATE DATABASE history"])

    def stop(self) -> None:
        self.close()

    def close(self, timeout_s: float = 10) -> None:
        if self._process.running:
            # SIGTERM would wait for open connections.
            self._process.signal(signal.SIGINT)
        self._process.stop(timeout_s)


def _succeeds(command: list[str]) -> bool:
    done = subprocess.run(command, capture_output=True, check=False, timeout=10)
    return done.returncode == 0


#: The kinds of databases, as parameters of fixtures.
KINDS = [Sqlite, *(pytest.param(kind, marks=pytest.mark.server) for kind in (Mariadb, Postgresql))]


@pytest.fixture(scope="session")
def servers():
    """Return a function that returns the server of a kind in KINDS. The first call for a kind
    starts the server, which runs until the test session ends."""
    with ExitStack() as stack:
        started = {}

        def start(kind):
            if kind not in started:
                folder = Path(tempfile.mkdtemp(prefix="wr-sql-"))
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                folder.chmod(0o755)
                server = started[kind] = kind(folder)
                stack.callback(server.close)
                server.start()
            return started[kind]

        yield start
