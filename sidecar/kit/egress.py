"""Opens HTTP sessions to servers that may misbehave. Waitroom sends all requests in them.

A response that nobody asked for is not taken for the response to a later request. The head of a
response and all interim responses (1xx) before it are bounded. No request is sent twice. Cookies
are off.

A session for URLs that clients have chosen connects only to public IP addresses: the resolver
returns only public addresses, and the address of each socket is checked again before the socket
connects.
"""

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from ssl import SSLContext
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from aiohttp.tracing import Trace

from sidecar.kit.addresses import is_public

#: Seconds for which DNS results are cached and idle connections are kept. Servers close idle
#: connections after two seconds or more, and a request that is sent just then fails.
DNS_S = 2
KEEP_ALIVE_S = 1.5
#: The longest line in the head of a response, in bytes.
MAX_LINE = 8190
#: The maximum number of interim responses (1xx) before a response, their maximum size with the
#: response's head, in bytes, and how many of these bytes are parsed at a time.
MAX_INTERIM, MAX_HEAD, HEAD_PART = 200, 131_072, 4_096
#: How many connections a request skips because the server has sent unrequested data on them.
MAX_SKIPPED = 20
#: A function that the current task calls and awaits when the connection for its request is open,
#: before it sends the request. It may be called again, if the connection breaks meanwhile.
BEFORE_SEND: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar(
    "before_send", default=None
)


class PrivateAddressError(OSError):
    """The host of a URL has no public address."""


class ConnectionLostError(aiohttp.ClientConnectionError):
    """The connection broke before the response came."""


class EndlessHeadError(aiohttp.ClientError):
    """The server has sent too many interim responses, or too many bytes before a response."""

    def __init__(self) -> None:
        super().__init__("endless interim responses (1xx) or headers, and no answer")


def open_session(
    resolver: AbstractResolver | None = None,
    *,
    is_private: bool,
    verify: SSLContext | bool = True,
    **options: Any,
) -> aiohttp.ClientSession:
    """Return a client session. It limits neither connections nor time: the caller sets timeouts.
    It uses no proxy, and does not decompress.

    Args:
        is_private: Connect to private addresses too.
        verify: How certificates are verified.
        options: Other arguments of the session.
    """
    connector = _Connector(
        resolver=_Resolver(resolver or aiohttp.ThreadedResolver(), is_private=is_private),
        socket_factory=None if is_private else _create_public_socket,
        ttl_dns_cache=DNS_S,
        keepalive_timeout=KEEP_ALIVE_S,
        limit=0,
        ssl=verify,
    )
    defaults: dict[str, Any] = {
        "cookie_jar": aiohttp.DummyCookieJar(),
        "timeout": aiohttp.ClientTimeout(total=None),
        "headers": {"Accept-Encoding": "identity"},
        "auto_decompress": False,
        "skip_auto_headers": ("Content-Type",),
        "max_line_size": MAX_LINE,
        "max_field_size": MAX_LINE,
        "middlewares": (_send_once,),
    }
    return aiohttp.ClientSession(connector=connector, **(defaults | options))


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request without a retry, because each attempt counts. aiohttp itself would retry an
    idempotent request after the connection broke."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise ConnectionLostError(str(error)) from error


class _Connector(aiohttp.TCPConnector):
    """A connector that does not reuse a connection on which unrequested data came. aiohttp would
    take the data for the response to the next request, which may be another client's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        protocol: type[ResponseHandler] = _Protocol
        self._factory = functools.partial(protocol, loop=asyncio.get_running_loop())

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's name
    ) -> Connection:
        for _ in range(MAX_SKIPPED):
            connection = await super().connect(req, traces, timeout)
            if _is_usable(connection) and (wait := BEFORE_SEND.get()) is not None:
                try:
                    await wait()
                except BaseException:
                    connection.release()
                    raise
            if _is_usable(connection):
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError


def _is_usable(connection: Connection) -> bool:
    protocol = connection.protocol
    return protocol is not None and protocol.is_connected() and not protocol.should_close


class _Protocol(ResponseHandler):
    """A connection that drops interim responses, and closes if they do not end or if data comes
    that belongs to no response. aiohttp would queue interim responses for a reader that handles all
    of them without a pause, so a server could stop all other tasks of the process."""

    _head_size, _interim_count = 0, 0
    #: The body of the response, or None until its head has come.
    _body: StreamReader | None = None

    def set_response_params(self, **params: Any) -> None:
        self._head_size, self._interim_count, self._body = 0, 0, None
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        while self._body is None and self._parser is not None and len(data) > HEAD_PART:
            part, data = data[:HEAD_PART], data[HEAD_PART:]
            self._parse(part)
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        if self._exception is not None:
            return
        if data and self._body is not None and self._body.is_eof():
            self._abort()
            return
        super().data_received(data)
        if self._body is None and self._parser is not None:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD or self._interim_count > MAX_INTERIM:
                self.set_exception(EndlessHeadError())
                self._abort()

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        message, body = data
        if self._body is not None:
            self._abort()
        elif 100 <= message.code < 200 and message.code != 101:
            self._interim_count += 1
        else:
            self._body = body
            super().feed_data(data, size)

    def _abort(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.abort()


class _Resolver(AbstractResolver):
    """A resolver that returns only public addresses, or with `is_private` all addresses. It raises
    PrivateAddressError if a host has no public address."""

    def __init__(self, resolver: AbstractResolver, *, is_private: bool) -> None:
        self._resolver, self._is_private = resolver, is_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host, port, family)
        if not addresses:
            raise OSError(None, "no address")
        if self._is_private:
            return addresses
        public_addresses = [address for address in addresses if is_public(address["host"])]
        if not public_addresses:
            raise PrivateAddressError
        return public_addresses

    async def close(self) -> None:
        await self._resolver.close()


def _create_public_socket(to: AddrInfoType) -> socket.socket:
    """Create a socket, but raise PrivateAddressError if the address is not public. This check is
    needed for a URL with an IP address, for which aiohttp does not call the resolver."""
    family, kind, protocol, _, address = to
    if not is_public(str(address[0])):
        raise PrivateAddressError
    return socket.socket(family, kind, protocol)
