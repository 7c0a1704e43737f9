"""Runs a command while holding a lease, for `waitroom leases run`."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from types import FrameType

import click

from sidecar.cli.replica_api import Client

#: The exit status if the lease was not granted in time.
NOT_GRANTED = 4
#: The exit statuses of a shell for a command that is not found, or cannot be executed.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
#: How long a command whose lease was lost may take to end after SIGTERM, in seconds.
KILL_AFTER_S = 10.0
#: The time between two checks whether the lease was lost, in seconds.
_CHECK_S = 0.5
#: The signals that a terminal itself also sends to the command.
_TERMINAL_SIGNALS = {signal.SIGINT, signal.SIGQUIT}
_SIGNALS = {*_TERMINAL_SIGNALS, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}


class _Child:
    """A command to run. Until it starts, a signal ends this process, which then leaves the queue of
    the lease. Afterwards, signals are passed on to the command."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        self._pending: list[int] = []
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup makes its command ignore it
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._process is not None:
            if number not in _TERMINAL_SIGNALS:
                self._process.send_signal(number)
        elif self._is_starting:
            self._pending.append(number)
        else:
            raise SystemExit(128 + number)

    def start(self, fence: int) -> subprocess.Popen[bytes]:
        """Start the command. Raises OSError."""
        self._is_starting = True
        process = self._process = subprocess.Popen(  # noqa: S603 - the caller's own command
            self._command, env={**os.environ, "LEASE_FENCE": str(fence)}
        )
        for number in self._pending:
            process.send_signal(number)
        return process


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Return True if the command ends within `timeout_s` seconds."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM and, if the command does not end within KILL_AFTER_S, SIGKILL."""
    process.terminate()
    if not _wait(process, KILL_AFTER_S):
        process.kill()
        process.wait()


def run_with_lease(  # noqa: PLR0913 - the options of the command
    client: Client,
    template: str,
    resource: str,
    *,
    command: Sequence[str],
    wait: float | None,
    holder: str,
    on_loss: str,
    conflict_exit_code: int,
) -> int:
    """Run a command while holding a lease. Return its exit status. If the lease was lost before the
    command ended, return 1 instead of 0. Raises WaitroomError."""
    from waitroom import LeaseLost, Queued, Refused  # noqa: PLC0415 - the other commands start faster

    name = f"{template}/{resource}"
    if shutil.which(command[0]) is None:
        return _report_unstartable(command[0])
    child, status, is_lost = _Child(command), 0, False
    try:
        waits = True if wait is None else wait
        with client.lease(template, resource, holder=holder, wait=waits, renew=True) as lease:
            try:
                process = child.start(lease.fence)
            except OSError as error:
                click.echo(f"{command[0]}: {error.strerror}", err=True)
                return _NOT_EXECUTABLE
            while not _wait(process, _CHECK_S):
                if not is_lost and not lease.left_seconds:
                    is_lost = True
                    _warn(name, "is ended" if on_loss == "kill" else "goes on")
                    if on_loss == "kill":
                        _end(process)
            status = process.returncode
            status = status if status >= 0 else 128 - status
    except (Queued, Refused) as error:
        click.echo(str(error), err=True)
        return conflict_exit_code
    except LeaseLost:
        if not is_lost:
            _warn(name, "has ended since")
        return status or 1
    return status


def _warn(name: str, outcome: str) -> None:
    click.echo(f"the lease {name} is lost: others may hold it; the command {outcome}", err=True)


def _report_unstartable(program: str) -> int:
    is_there = os.path.exists(program)  # noqa: PTH110
    reason = "cannot be executed" if is_there else "no such command"
    click.echo(f"{program}: {reason}; the lease was not asked for", err=True)
    return _NOT_EXECUTABLE if is_there else _NOT_FOUND
