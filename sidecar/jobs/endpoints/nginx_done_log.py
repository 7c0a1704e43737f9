"""nginx says here that calls with a permit are over: each in a datagram of its own, as its access
log writes them to syslog (docs/nginx.md).

    <190>Nov 22 04:33:00 waitroom: PERMIT STATUS

Whoever can reach the socket may say anything. Only a permit that we signed ends a call, and only
its own. A datagram that is lost costs nothing but time: the call ends by its term.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from sidecar.jobs.permits import PermitError, target_of
from sidecar.kit.errors import ConfigError, DatabaseError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.jobs.permits import Permit
    from sidecar.jobs.service import Jobs
    from sidecar.jobs.targets import Target

#: Ends that wait to be written; beyond it they are lost.
MOST = 10_000
#: Of those, how many are written at a time: many, for the database takes them together.
AT_ONCE = 128
#: For how long an end is tried while the store or the database is away, and how often, seconds.
TRIED_S = 60.0
AGAIN_S = 1.0
#: Datagrams that are read before others have their turn.
_READ_AT_ONCE = 256
#: No line is longer; what would be is cut off, and none.
_MAX_BYTES = 2048
#: What the kernel keeps for us, bytes, where it lets us.
_BUFFER = 1 << 20
#: What is written when the replica stops may take, seconds.
_DRAIN_S = 2.0

#: The first part is syslog's: priority, time, perhaps the host.
_LINE = re.compile(rb"<[0-9]{1,3}>[!-~][ -~]{0,300} waitroom: ([\w.~-]{1,512}) ([0-9]{3})\n?")

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Ended:
    """A line: the permit as it was sent, and the status that the caller was answered; None: it was
    answered none."""

    permit: str
    status: int | None


def parse(data: bytes) -> Ended | None:
    """None for whatever nginx does not write."""
    match = _LINE.fullmatch(data)
    if match is None:
        return None
    return Ended(match[1].decode("ascii"), int(match[2]) or None)


class DoneLog:
    """Reads the datagrams of a socket, and ends the calls that they tell of."""

    def __init__(self, jobs: Jobs, listener: socket.socket) -> None:
        self._jobs = jobs
        self._listener = listener
        self._ends: asyncio.Queue[tuple[Target, Permit, int | None]] = asyncio.Queue(MOST)
        self._has_lost = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._read)
        workers = [asyncio.create_task(self._work()) for _ in range(AT_ONCE)]
        try:
            yield
        finally:
            loop.remove_reader(self._listener)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._ends.join()
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)

    def _read(self) -> None:
        # All that there are: a kernel may keep ten at most for us (net.unix.max_dgram_qlen).
        with contextlib.suppress(BlockingIOError, InterruptedError):
            for _ in range(_READ_AT_ONCE):
                self._take(self._listener.recv(_MAX_BYTES))

    def _take(self, data: bytes) -> None:
        ended = parse(data)
        if ended is None:
            log.debug("unreadable_end", bytes=len(data))
            return
        target = self._jobs.targets.find(target_of(ended.permit))
        if target is None:
            return
        try:
            permit = target.permits.verify(ended.permit)
        except PermitError as error:
            log.debug("unbelieved_end", target=target.name, reason=error.word)
            return
        try:
            self._ends.put_nowait((target, permit, ended.status))
        except asyncio.QueueFull:
            if not self._has_lost:
                self._has_lost = True
                log.warning("ends_lost", waiting=MOST, hint="calls end by their target's timeout")

    async def _work(self) -> None:
        while True:
            target, permit, status = await self._ends.get()
            try:
                await self._end(target, permit, status)
            except Exception:
                log.exception("end_failed", target=target.name, job=permit.job)
            finally:
                self._ends.task_done()

    async def _end(self, target: Target, permit: Permit, status: int | None) -> None:
        """Tries again while the store or the database is away: the slot would be taken until the
        term is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + TRIED_S
        while True:
            try:
                await self._jobs.end(target, permit.job, permit.fence, status=status)
            except (StoreError, DatabaseError) as error:
                if loop.time() >= until:
                    log.warning("end_lost", target=target.name, job=permit.job, error=str(error))
                    return
                await asyncio.sleep(AGAIN_S)
            else:
                self._has_lost = False
                return


@contextlib.asynccontextmanager
async def listening(address: str, jobs: Jobs) -> AsyncIterator[None]:
    """Within the block calls end when nginx says so at `unix:/path` or `host:port` (UDP).

    Raises ConfigError when the address cannot be listened on.
    """
    try:
        listener = _listener(address)
    except OSError as error:
        raise ConfigError(
            [f"done_listen: cannot listen on {address}: {error.strerror or error}"]
        ) from None
    with listener:
        async with DoneLog(jobs, listener).running():
            yield


def _listener(address: str) -> socket.socket:
    with contextlib.ExitStack() as undo:
        if address.startswith("unix:"):
            path = Path(address.removeprefix("unix:"))
            if path.is_socket():  # what a replica that was killed has left behind
                path.unlink()
            listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            listener.bind(str(path))
            # For this user and its group, which nginx is of.
            path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP)
        else:
            host, _, port = address.rpartition(":")
            [(family, kind, number, _, name), *_] = socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )
            listener = undo.enter_context(socket.socket(family, kind, number))
            listener.bind(name)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.setblocking(False)
        undo.pop_all()
    return listener
