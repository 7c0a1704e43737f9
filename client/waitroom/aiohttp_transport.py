"""Sends the requests of AsyncClient with aiohttp, which needs a third of httpx2's CPU time."""

import functools
import os
import socket
import ssl
from collections.abc import AsyncGenerator

import aiohttp
from yarl import URL

from waitroom.errors import UnavailableError
from waitroom.wire import KEEPALIVE_S, OpenResponse, Replica, Request, Response, Wire


class AiohttpTransport:
    """Sends requests with aiohttp. All requests must come from one event loop."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sessions: dict[Replica, aiohttp.ClientSession] = {}

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        session = self._sessions.get(replica) or self._open_session(replica)
        read_timeout_s = self._wire.get_read_timeout_s(request)
        try:
            response = await session.request(
                request.method,
                URL(replica.get_url(request), encoded=True),
                data=request.content,
                timeout=_make_timeout(self._wire.timeout_s, read_timeout_s),
                allow_redirects=False,
            )
            if request.is_streamed and 200 <= response.status < 300:
                return OpenResponse(response.status, self._iterate_body(response, request, replica))
            # Reading the body releases the connection. A context manager would be slower.
            content = await response.read()
        except aiohttp.ClientError as error:
            raise self._make_error(error, request, replica) from error
        return replica.parse(request, response.status, content)

    async def _iterate_body(
        self, response: aiohttp.ClientResponse, request: Request, replica: Replica
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except aiohttp.ClientError as error:
            raise self._make_error(error, request, replica) from error
        finally:
            response.close()

    def _make_error(
        self, error: aiohttp.ClientError, request: Request, replica: Replica
    ) -> UnavailableError:
        # Only the first two errors mean that the request was never sent.
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return replica.make_unreachable_error("")
        if isinstance(error, aiohttp.ClientConnectorError):
            return replica.make_unreachable_error(_get_reason(error))
        if isinstance(error, aiohttp.ServerTimeoutError):
            return replica.make_timeout_error(self._wire.get_read_timeout_s(request))
        return replica.make_closed_error(error)

    def _open_session(self, replica: Replica) -> aiohttp.ClientSession:
        connector: aiohttp.BaseConnector
        if replica.socket is None:
            tls = self._wire.make_tls_context()
            connector = aiohttp.TCPConnector(limit=0, ssl=tls, keepalive_timeout=KEEPALIVE_S)
        else:
            connector = aiohttp.UnixConnector(
                replica.socket, limit=0, keepalive_timeout=KEEPALIVE_S
            )
        session = aiohttp.ClientSession(
            connector=connector,
            headers=self._wire.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers={"Accept-Encoding"},
        )
        self._sessions[replica] = session
        return session

    async def aclose(self) -> None:
        for session in self._sessions.values():
            await session.close()


@functools.lru_cache
def _make_timeout(connect_s: float, read_s: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(sock_connect=connect_s, sock_read=read_s)


def _get_reason(error: aiohttp.ClientConnectorError) -> str:
    """Return the reason why the connection failed, as the system describes it."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    cause = error.os_error
    if isinstance(cause, socket.gaierror | ssl.SSLError) or not cause.errno:
        return str(cause)
    return os.strerror(cause.errno)
