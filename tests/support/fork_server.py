"""A server that starts Python programs of this project fast, because it forks them.

The server imports the project's modules only once. For each program it forks a supervisor, which
forks the program with standard streams, environment and working directory of its own. The
supervisor reports the program's pid and exit status.

Tests start a program with `Forked`. `python fork_server.py SOCKET` is the server itself.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAITROOM = str(Path(sys.executable).parent / "waitroom")
#: The options of subprocess.Popen that `Forked` supports.
FORK_OPTIONS = {"env", "cwd", "umask"}
#: Number of bytes of a length, a pid or an exit status in the protocol.
_LENGTH = 8


def can_fork(command: list[str]) -> bool:
    """Return True if the command is `waitroom …`, `python FILE …` or `python -m MODULE …`."""
    if command[0] == WAITROOM:
        return True
    is_python = command[0] == sys.executable and len(command) > 1
    return is_python and (command[1].endswith(".py") or command[1] == "-m")


class Forked:
    """A program that the fork server has started, with those methods of subprocess.Popen that tests
    use.

    `stdin`, `stdout` and `stderr` are file descriptors or files. With `terminal`, the program leads
    a new session, and its standard input becomes the controlling terminal.
    """

    def __init__(
        self, command: list[str], *, stdin: Any, stdout: Any, stderr: Any,
        env: dict[str, str] | None = None, cwd: Any = None, umask: int = -1, terminal: bool = False,
    ) -> None:  # fmt: skip
        self.args = command
        self.returncode: int | None = None
        request = {
            "command": command,
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or Path.cwd()),
            "umask": umask,
            "terminal": terminal,
        }
        text = json.dumps(request).encode()
        files = (stdin, stdout, stderr)
        streams = [file if isinstance(file, int) else file.fileno() for file in files]
        self._connection = _server().connect()
        self._connection.sendmsg(
            [len(text).to_bytes(_LENGTH, "big")],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))],
        )
        self._connection.sendall(text)
        self.pid = int.from_bytes(_read(self._connection, _LENGTH), "big")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            status = int.from_bytes(_read(self._connection, _LENGTH), "big")
            self.returncode = os.waitstatus_to_exitcode(status)
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Server:
    """A running fork server."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="wr-fork-")
        self._address = f"{self._folder.name}/socket"
        # When this process ends, the server's standard input is closed, and so the server ends.
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address], stdin=subprocess.PIPE, cwd=ROOT
        )

    def connect(self) -> socket.socket:
        end = time.monotonic() + 60
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self._address)
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                if self._process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return connection


@cache
def _server() -> _Server:
    return _Server()


def _read(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = connection.recv(count - len(found))
        if not more:
            raise ConnectionError("the fork server has ended")
        found += more
    return found


#: Modules that the server imports for the programs that it forks.
_MODULES = ("uvloop", "sidecar.app.replica", "sidecar.cli", "sidecar.app.jobs", "waitroom")


def _serve(address: str) -> dict[str, Any]:
    """Fork a supervisor for each request. Return only in the process of a program, with the request
    for it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        # With SIG_IGN, the CPU time of the programs would count as that of others (quiet.py).
        signal.signal(signal.SIGCHLD, _wait_for_ended)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                sys.exit(0)
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    return _supervise(connection)


def _wait_for_ended(_signal_number: int, _frame: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(connection: socket.socket) -> dict[str, Any]:
    """Fork the program. Return only in the program's process, with the request for it. The
    supervisor reports the program's pid and exit status, and exits."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(connection, _LENGTH, 3)
    request: dict[str, Any] = json.loads(_read(connection, int.from_bytes(head, "big")))
    pid = os.fork()
    if pid == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request
    for stream in streams:
        os.close(stream)
    os.close(0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(pid.to_bytes(_LENGTH, "big"))
        _, status = os.waitpid(pid, 0)
        connection.sendall(status.to_bytes(_LENGTH, "big"))
    os._exit(0)


def _prepare(request: dict[str, Any]) -> None:
    """Set up this process as the request demands: terminal, folder, environment and streams."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["terminal"]:
        import fcntl
        import termios

        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    if request["umask"] >= 0:
        os.umask(request["umask"])
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr


def _run(command: list[str]) -> None:
    if command[0] == WAITROOM:
        sys.argv = command
        from sidecar.__main__ import main

        main()
    elif command[1] == "-c":
        sys.argv = command[1:]
        exec(command[2], {"__name__": "__main__"})
    elif command[1] == "-m":
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command[1:]
        sys.path[0] = str(Path(command[1]).parent)
        runpy.run_path(command[1], run_name="__main__")


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    for module in _MODULES:
        importlib.import_module(module)
    gc.freeze()
    program = _serve(sys.argv[1])
    _prepare(program)
    _run(program["command"])
