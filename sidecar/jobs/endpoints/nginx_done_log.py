"""Receives nginx' reports that calls with a permit are over: each in a datagram of its own, as its
access log writes them to syslog (docs/nginx.md).

    <190>Nov 22 04:33:00 waitroom: PERMIT STATUS

Anyone who can reach the socket may send anything: only a signed permit ends a call, its own. If a
datagram is lost, the call ends when its term is over.
"""

import asyncio
import contextlib
import re
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import structlog

from sidecar.jobs.permits import Permit, PermitError, target_of
from sidecar.jobs.service import Jobs
from sidecar.jobs.targets import Target
from sidecar.kit.errors import ConfigError, DatabaseError, StoreError
from sidecar.kit.tasks import Background

#: Reports that wait to be written; further ones are lost.
MOST = 10_000
#: Reports that are written at a time: many, for the database takes them together.
AT_ONCE = 128
#: For how long a report is tried while Redis or SQL is unavailable, and how often, seconds.
TRIED_S = 60.0
AGAIN_S = 1.0
#: Datagrams that are read before other work goes on.
_READ_AT_ONCE = 256
#: The longest line; a longer one is cut off, and does not match.
_MAX_BYTES = 2048
#: The receive buffer that the kernel is asked for, bytes.
_BUFFER = 1 << 20
#: How long writing may go on when the replica stops, seconds.
_DRAIN_S = 2.0

#: Begins with what syslog adds: priority, time, perhaps the host.
_LINE = re.compile(rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom: ([\w.~-]{1,512}) ([0-9]{3})\n?")

log = structlog.get_logger()


def parse(data: bytes) -> tuple[str, int | None] | None:
    """Return a line's permit and its response's status, None without a response; or None for a line
    that nginx does not write."""
    match = _LINE.fullmatch(data)
    return None if match is None else (match[1].decode("ascii"), int(match[2]) or None)


class DoneLog:
    """Ends the calls that the datagrams of a socket name."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._has_lost = False
        self.ends = Background()

    def read(self, listener: socket.socket) -> None:
        # All that there are: a kernel may keep ten at most for us (net.unix.max_dgram_qlen).
        with contextlib.suppress(BlockingIOError, InterruptedError):
            for _ in range(_READ_AT_ONCE):
                self._handle(listener.recv(_MAX_BYTES))

    def _handle(self, data: bytes) -> None:
        line = parse(data)
        if line is None:
            log.debug("unreadable_end", bytes=len(data))
            return
        text, status = line
        target = self._jobs.targets.find(target_of(text))
        if target is None:
            return
        try:
            permit = target.permits.verify(text)
        except PermitError as error:
            log.debug("unbelieved_end", target=target.name, reason=error.reason)
            return
        if len(self.ends) < MOST:
            self.ends.start(self._end(target, permit, status))
        elif not self._has_lost:
            self._has_lost = True
            log.warning("ends_lost", waiting=MOST, hint="calls end by their target's timeout")

    async def _end(self, target: Target, permit: Permit, status: int | None) -> None:
        """End a call. Tries again while Redis or SQL is unavailable, since the call's slot would be
        taken until its term is over."""
        loop = asyncio.get_running_loop()
        async with self._slots:
            until = loop.time() + TRIED_S
            while True:
                try:
                    await self._jobs.end(target, permit.job, permit.fence, status=status)
                except (StoreError, DatabaseError) as error:
                    if loop.time() >= until:
                        log.warning(
                            "end_lost", target=target.name, job=permit.job, error=str(error)
                        )
                        return
                    await asyncio.sleep(AGAIN_S)
                except Exception:
                    log.exception("end_failed", target=target.name, job=permit.job)
                    return
                else:
                    self._has_lost = False
                    return


@contextlib.asynccontextmanager
async def listening(address: str, jobs: Jobs) -> AsyncIterator[None]:
    """Listen for reports at `unix:/path` or `host:port` (UDP) within the block. Raises ConfigError
    if the address cannot be listened on."""
    try:
        listener = _listener(address)
    except OSError as error:
        raise ConfigError(
            [f"done_listen: cannot listen on {address}: {error.strerror or error}"]
        ) from None
    loop, done_log = asyncio.get_running_loop(), DoneLog(jobs)
    with listener:
        loop.add_reader(listener, done_log.read, listener)
        try:
            yield
        finally:
            loop.remove_reader(listener)
            await done_log.ends.finish(_DRAIN_S)


def _listener(address: str) -> socket.socket:
    name: Any
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if path.is_socket():  # what a replica that was killed has left behind
            path.unlink()
        family, name = socket.AF_UNIX, str(path)
    else:
        host, _, port = address.rpartition(":")
        [(family, _, _, _, name), *_] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
    listener = socket.socket(family, socket.SOCK_DGRAM)
    try:
        listener.bind(name)
        if family == socket.AF_UNIX:
            # For this user and its group, which nginx is of.
            Path(name).chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
