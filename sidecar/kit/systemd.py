"""Tells systemd when the replica is ready, alive or stopping (the sd_notify protocol).

The messages are datagrams to the socket that NOTIFY_SOCKET names, for units with `Type=notify` and
`WatchdogSec=`. Without NOTIFY_SOCKET nothing is sent."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import structlog

from sidecar.kit.tasks import stop_workers

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def notify_systemd(environ: Mapping[str, str]) -> AsyncIterator[Callable[[str], None]]:
    """Send READY=1, and until the block ends WATCHDOG=1, twice in each watchdog interval. Yield a
    function that sends a line, such as STOPPING=1."""
    address = environ.get("NOTIFY_SOCKET", "")
    _send(address, "READY=1")
    interval_s = watchdog_s(environ) / 2
    task = asyncio.create_task(_feed_forever(address, interval_s)) if interval_s else None
    try:
        yield partial(_send, address)
    finally:
        if task:
            await stop_workers(task)


def watchdog_s(environ: Mapping[str, str]) -> float:
    """Return within how many seconds systemd expects a WATCHDOG=1, or 0 if it expects none."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / 1_000_000 if text.isdecimal() else 0


async def _feed_forever(address: str, interval_s: float) -> None:
    while True:
        _send(address, "WATCHDOG=1")
        await asyncio.sleep(interval_s)


def _send(address: str, line: str) -> None:
    """Send a line to systemd, and only log a failure."""
    if not address:
        return
    # "@" stands for the zero byte with which an abstract socket's name begins.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)  # a full socket buffer must not block the replica
            out.sendto(line.encode(), name)
    except OSError as error:
        log.warning("notify_failed", socket=address, said=line, error=str(error))
