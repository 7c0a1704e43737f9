"""Opens connections to URLs that clients have chosen, but only to public IP addresses.

The resolver returns only public addresses, and the address of each socket is checked again before
the socket connects. No request is sent twice. Cookies, proxies and decompression are off.
"""

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.tracing import Trace

from sidecar.kit.addresses import is_public

#: Seconds for which DNS results are cached and idle connections are kept. Servers close idle
#: connections after two seconds or more, and a request that is sent just then fails.
DNS_S = 2
KEEP_ALIVE_S = 1.5
#: The longest line in the head of a response, bytes.
MAX_LINE = 8190
#: The most connections that a request skips because the server has sent unrequested data on them.
MAX_SKIPPED = 20


class PrivateAddressError(OSError):
    """The host of a URL has no public address."""


class ConnectionLostError(aiohttp.ClientConnectionError):
    """The connection broke before the response."""


def open_session(resolver: AbstractResolver, *, is_private: bool) -> aiohttp.ClientSession:
    """Return a client session. It limits neither connections nor time: the caller sets timeouts.
    With `is_private` the session connects to private addresses too."""
    connector = _Connector(
        resolver=_Resolver(resolver, is_private=is_private),
        socket_factory=None if is_private else _create_public_socket,
        ttl_dns_cache=DNS_S,
        keepalive_timeout=KEEP_ALIVE_S,
        limit=0,
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=("Content-Type",),
        max_line_size=MAX_LINE,
        max_field_size=MAX_LINE,
        middlewares=(_send_once,),
    )


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
        raise ConnectionLostError from error


class _Connector(aiohttp.TCPConnector):
    """A connector that does not reuse a connection on which unrequested data came. aiohttp would
    take the data for the response to the next request, which may be another client's."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's name
    ) -> Connection:
        for _ in range(MAX_SKIPPED):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError


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
