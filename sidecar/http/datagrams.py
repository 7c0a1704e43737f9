"""Receives nginx's reports: syslog datagrams from an `access_log syslog:…` line."""

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from sidecar.kit.errors import ListenError

#: The maximum number of datagrams that are read before other work of the event loop continues.
_MAX_READ_AT_ONCE = 256
#: The longest report, in bytes. A longer one is truncated.
_MAX_REPORT_BYTES = 2048
#: The size of the socket's receive buffer, in bytes.
_RECEIVE_BUFFER_BYTES = 1 << 20


@contextlib.asynccontextmanager
async def listen(
    setting: str, address: str, handle: Callable[[bytes], None]
) -> AsyncIterator[None]:
    """Call `handle` with each datagram that comes to `unix:/path` or `host:port` (UDP) within the
    block. Raises ListenError, which names the setting, if the address cannot be used."""
    try:
        listener = _open_listener(address)
    except OSError as error:
        raise ListenError(setting, address, error) from None

    def read() -> None:
        # Empties the socket, because the kernel may queue only ten (net.unix.max_dgram_qlen).
        with contextlib.suppress(BlockingIOError, InterruptedError):
            for _ in range(_MAX_READ_AT_ONCE):
                handle(listener.recv(_MAX_REPORT_BYTES))

    loop = asyncio.get_running_loop()
    with listener:
        loop.add_reader(listener, read)
        try:
            yield
        finally:
            loop.remove_reader(listener)


def _open_listener(address: str) -> socket.socket:
    name: Any
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if path.is_socket():  # a killed replica has left it behind
            path.unlink()
        family, name = socket.AF_UNIX, str(path)
    else:
        host, _, port = address.rpartition(":")
        [(family, _, _, _, name), *_] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
    listener = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family != socket.AF_UNIX:
            # The replicas of a machine share a settings file. Each report reaches one of them.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(name)
        if family == socket.AF_UNIX:
            # Only this user and its group, to which nginx belongs, may send reports.
            Path(name).chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
