"""Opens the sockets that a process listens on: for HTTP, and for nginx's reports, which are syslog
datagrams from an `access_log syslog:…` line. An address is `unix:/path` or `host:port`."""

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from sidecar.kit.errors import ListenError

#: The maximum number of connections that may wait to be accepted by a listener.
BACKLOG = 4096
#: The longest request line or header, in bytes. nginx passes URLs of up to 32 KB in a header.
MAX_FIELD_BYTES = 65_536
#: How long a stopping listener waits for requests in progress, in seconds.
DRAIN_S = 5.0
#: The maximum number of datagrams that are read before other work of the event loop continues.
_MAX_READ_AT_ONCE = 256
#: The longest report, in bytes. A longer one is truncated.
_MAX_REPORT_BYTES = 2048
#: The size of the socket's receive buffer, in bytes.
_RECEIVE_BUFFER_BYTES = 1 << 20


async def open_http_listeners(
    stack: contextlib.AsyncExitStack,
    *listeners: tuple[web.Application, type[web.AppRunner], str, str],
) -> None:
    """Open the listeners in order, each with its setting and address. `stack` closes them in the
    same order. Raises ListenError, which names the setting, if an address cannot be used."""
    runners = [
        runner_class(
            app,
            access_log=None,
            shutdown_timeout=DRAIN_S,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=256,
        )
        for app, runner_class, _, _ in listeners
    ]
    for runner in reversed(runners):
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
    for runner, (_, _, setting, address) in zip(runners, listeners, strict=True):
        try:
            await _listen_for_http(runner, address)
        except OSError as error:
            raise ListenError(setting, address, error) from None


async def _listen_for_http(runner: web.AppRunner, address: str) -> None:
    if address.startswith("unix:"):
        path = _prepare_path(address)
        await web.UnixSite(runner, str(path), backlog=BACKLOG).start()
        _restrict(path)
    else:
        await web.TCPSite(runner, *_split_address(address), backlog=BACKLOG).start()


@contextlib.asynccontextmanager
async def listen_for_reports(
    setting: str, address: str, handle: Callable[[bytes], None]
) -> AsyncIterator[None]:
    """Call `handle` with each datagram that arrives at the address within the block. The address is
    a path or a UDP port. Raises ListenError, which names the setting, if it cannot be used."""
    try:
        listener = _open_datagram_socket(address)
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


def _open_datagram_socket(address: str) -> socket.socket:
    with contextlib.ExitStack() as stack:
        if address.startswith("unix:"):
            path = _prepare_path(address)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            listener.bind(str(path))
            _restrict(path)
        else:
            [(family, _, _, _, name), *_] = socket.getaddrinfo(
                *_split_address(address), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
            )
            listener = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            # The replicas of a machine share a settings file. Each report reaches one of them.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(name)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        listener.setblocking(False)
        stack.pop_all()  # the caller closes the socket
        return listener


def _prepare_path(address: str) -> Path:
    """Return the path of a unix socket. Remove the file that a killed replica has left there."""
    path = Path(address.removeprefix("unix:"))
    if path.is_socket():
        path.unlink()
    return path


def _restrict(path: Path) -> None:
    """Let only this user and its group, to which nginx belongs, use a unix socket. The replica
    trusts its clients."""
    path.chmod(stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP)


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
