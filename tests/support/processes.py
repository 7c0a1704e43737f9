"""Starts and stops processes for tests, and finds free ports."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fork_server import FORK_OPTIONS, WAITROOM, Forked, can_fork

__all__ = [
    "CLEAN", "SHIFTED", "WAITROOM", "Forked", "Process", "forget_settings", "free_port", "freeze",
    "listens", "run_command", "wait_until",
]  # fmt: skip

#: A script: `python SHIFTED SECONDS serve …` runs `waitroom serve …` with a wrong clock.
SHIFTED = Path(__file__).parent / "shifted.py"
#: This process' environment variables, without settings of Waitroom.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("WAITROOM_")}


class Process(AbstractContextManager["Process"]):
    """A process that runs within a `with` block. Its output is appended to the file `log`.

    Python programs of this project are started by the fork server (fork_server.py), which is
    faster, unless `is_forked` is False.
    """

    def __init__(
        self, command: list[str], *, log: Path, is_forked: bool = True, **options: Any
    ) -> None:
        self._command = [str(word) for word in command]
        self.log = log
        self._options = options
        is_forked = is_forked and can_fork(self._command) and options.keys() <= FORK_OPTIONS
        self._start = Forked if is_forked else subprocess.Popen
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def __enter__(self) -> "Process":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as out, open(os.devnull) as nothing:  # noqa: PTH123
            self._process = self._start(
                self._command, stdin=nothing, stdout=out, stderr=out, **self._options
            )

    def stop(self, timeout_s: float = 10) -> int | None:
        """Send SIGTERM, and SIGKILL after `timeout_s`. Return the exit status."""
        if self._process is None:
            return None
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(timeout_s)
        return self._process.returncode

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        """Send SIGSTOP. The kernel still accepts connections, but the process does not respond."""
        freeze([self.pid])

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the process within a `with` block."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def freeze(pids: list[int]) -> None:
    """Send SIGSTOP to these processes, and wait until all their threads have stopped."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: all(map(_is_frozen, pids)), "the stop of the processes")


def _is_frozen(pid: int) -> bool:
    try:
        stats = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # A thread has ended.
        return False
    return all(stat.rpartition(")")[2].split()[0] in "TZX" for stat in stats)


def run_command(
    *words: object, stdin: str = "", timeout_s: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command `waitroom WORDS…` by the fork server, and wait until it ends.

    `options` are `env` (by default CLEAN) and `cwd`, as in subprocess.run.
    """
    command = [WAITROOM, *map(str, words)]
    options = {"env": CLEAN, **options}
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        process = Forked(command, stdin=files[0], stdout=files[1], stderr=files[2], **options)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess(command, code, files[1].read(), files[2].read())


#: Ports for servers. They are below the ports that the system uses for outgoing connections.
PORTS = range(12_000, 32_000)
#: Each pytest-xdist worker uses a part of PORTS of its own, from a random port on.
_part = len(PORTS) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = itertools.count(random.randrange(_part))


def free_port() -> int:
    """Return a free port. It is not returned again until all others of this worker were."""
    while True:
        port = PORTS[_worker * _part + next(_ports) % _part]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(
    true: Callable[[], bool], what: str, timeout_s: float = 30, *, of: Process | None = None
) -> None:
    """Wait until `true()` is True. Fail after `timeout_s`, or if the process `of` has ended.

    `what` is named in the error message.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if true():
            return
        if of is not None and not of.running:
            break
        time.sleep(0.02)
    output = f": {of.output[-2000:]}" if of else ""
    raise AssertionError(f"{what} did not come within {timeout_s:g} s{output}")


def listens(path: Path) -> bool:
    """Return True if a process accepts connections on this unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove settings of Waitroom from the environment variables of this process."""
    for name in [name for name in os.environ if name.startswith("WAITROOM_")]:
        monkeypatch.delenv(name)
