"""Servers that tests start: on free ports and sockets, stopped by their own pid."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

WAITROOM = str(Path(sys.executable).parent / "waitroom")
#: `python SHIFTED SECONDS serve …`: the command with a clock that is off.
SHIFTED = Path(__file__).parent / "shifted.py"
#: The environment without any setting of ours.
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("WAITROOM_")}


class Process(AbstractContextManager["Process"]):
    """A process that lives within a `with` block; its output goes to `log`."""

    def __init__(self, command: list[str], *, log: Path, **options: Any) -> None:
        self._command = command
        self.log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, **self._options,
            )  # fmt: skip

    def stop(self, timeout_s: float = 10) -> int | None:
        """SIGTERM, then SIGKILL when it does not end; its exit status."""
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


#: Below those that the system gives to connections that go out, which come and go at any time.
PORTS = range(12_000, 32_000)
#: Each worker of the tests has a part of them, and begins somewhere in it.
_part = len(PORTS) // 4
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 4
_ports = itertools.count(random.randrange(_part))


def free_port() -> int:
    """Given once, to nobody else for long: who asks has it until they listen there."""
    while True:
        port = PORTS[_worker * _part + next(_ports) % _part]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(
    true: Callable[[], bool], what: str, timeout_s: float = 30, *, of: Process | None = None
) -> None:
    """Looks every 20 ms; fails with `what` when it does not become true, or at once when the
    process that it waits for has ended."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if true():
            return
        if of is not None and not of.running:
            break
        time.sleep(0.02)
    said = f": {of.output[-2000:]}" if of else ""
    raise AssertionError(f"{what} did not come within {timeout_s:g} s{said}")


def listens(path: Path) -> bool:
    """Whether a process accepts connections on that unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a command that runs in this process."""
    for name in [name for name in os.environ if name.startswith("WAITROOM_")]:
        monkeypatch.delenv(name)
