"""Outgoing connections to addresses that clients name, which reach public ones alone.

The address that was checked is the one that is connected to: names are looked up by a resolver
that hands on public addresses alone, and each socket is checked once more before it is connected.
Nothing is sent twice, no cookie kept, no proxy asked, nothing unpacked.
"""

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.tracing import Trace

from sidecar.kit.addresses import is_public

#: How long addresses that were looked up hold, and unused connections are kept, seconds. Servers
#: close theirs after two seconds or more; one that is used just then fails a call for nothing.
DNS_S = 2
KEEP_ALIVE_S = 1.5
#: Bytes of a line of an answer's head; there are 128 at most.
MAX_LINE = 8190
#: Connections that one call skips, because something came on them unasked.
MOST_ODD = 20


class PrivateAddressError(OSError):
    """A name that leads to no public address, or such an address itself."""


class LostError(aiohttp.ClientConnectionError):
    """A connection that broke before an answer came."""


def open_session(names: AbstractResolver, *, is_private: bool) -> aiohttp.ClientSession:
    """`is_private`: whether private addresses may be called. How many calls are made at a time is
    decided elsewhere, and so is how long each may take."""
    connector = _Connector(
        resolver=_Resolver(names, is_private=is_private),
        socket_factory=None if is_private else _public_socket,
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
        middlewares=(_once,),
    )


async def _once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A client may send some requests again by itself where a connection broke. Here
    each call counts."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise LostError from error


class _Connector(aiohttp.TCPConnector):
    """Uses no connection again on which the server spoke without being asked: what it said would
    be taken for the answer to the next call, which may be somebody else's."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the client's own name
    ) -> Connection:
        for _ in range(MOST_ODD):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError


class _Resolver(AbstractResolver):
    """Hands on those addresses that may be called. Raises PrivateAddressError where there are only
    others."""

    def __init__(self, names: AbstractResolver, *, is_private: bool) -> None:
        self._names = names
        self._is_private = is_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, port, family)
        if not found:
            raise OSError(None, "no address")
        allowed = [one for one in found if self._is_private or is_public(one["host"])]
        if not allowed:
            raise PrivateAddressError
        return allowed

    async def close(self) -> None:
        await self._names.close()


def _public_socket(to: AddrInfoType) -> socket.socket:
    """For addresses that are written as such no resolver is asked."""
    family, kind, protocol, _, address = to
    if not is_public(str(address[0])):
        raise PrivateAddressError
    return socket.socket(family, kind, protocol)
