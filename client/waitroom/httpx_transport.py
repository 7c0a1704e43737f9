"""Sends the requests of Client with httpx2, and those of AsyncClient if aiohttp is missing."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import httpx2

from waitroom.errors import UnavailableError
from waitroom.wire import KEEPALIVE_S, MAX_IDLE, OpenResponse, Replica, Request, Response, Wire


class _Messages:
    """Converts requests to httpx2's requests, and httpx2's errors to UnavailableError."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._headers = {name.encode(): value.encode() for name, value in wire.headers.items()}

    def make_request(self, request: Request, replica: Replica) -> httpx2.Request:
        timeout = httpx2.Timeout(self._wire.timeout_s, read=self._wire.get_read_timeout_s(request))
        return httpx2.Request(
            request.method,
            replica.get_url(request),
            headers=self._headers,
            content=request.content,
            extensions={"timeout": timeout.as_dict()},
        )

    def make_error(
        self, error: httpx2.TransportError, request: Request, replica: Replica
    ) -> UnavailableError:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return replica.make_unreachable_error(error)
        if isinstance(error, httpx2.TimeoutException):
            return replica.make_timeout_error(self._wire.get_read_timeout_s(request))
        return replica.make_closed_error(error)


class HttpxTransport:
    """Sends requests from threads. Its coroutines never suspend."""

    def __init__(self, wire: Wire) -> None:
        self._messages = _Messages(wire)
        limits = httpx2.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEPALIVE_S
        )
        tls = wire.make_tls_context()
        self._transports: Mapping[Replica, httpx2.HTTPTransport] = {
            replica: httpx2.HTTPTransport(
                verify=tls, limits=limits, uds=replica.socket, trust_env=False
            )
            for replica in wire.replicas
        }

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        message = self._messages.make_request(request, replica)
        try:
            response = self._transports[replica].handle_request(message)
            if request.is_streamed and response.is_success:
                return OpenResponse(
                    response.status_code, self._iterate_body(response, request, replica)
                )
            try:
                content = response.read()
            finally:
                response.close()
        except httpx2.TransportError as error:
            raise self._messages.make_error(error, request, replica) from error
        return replica.parse(request, response.status_code, content)

    async def _iterate_body(
        self, response: httpx2.Response, request: Request, replica: Replica
    ) -> AsyncGenerator[bytes, None]:
        try:
            for chunk in response.iter_bytes():
                yield chunk
        except httpx2.TransportError as error:
            raise self._messages.make_error(error, request, replica) from error
        finally:
            response.close()

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()


class AsyncHttpxTransport:
    """Sends requests from tasks.

    Each connection has its own transport, and the most recently used one is taken first. A single
    transport with many connections would search all of them for each request.
    """

    def __init__(self, wire: Wire) -> None:
        self._messages = _Messages(wire)
        self._tls = wire.make_tls_context()
        self._limits = httpx2.Limits(
            max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEPALIVE_S
        )
        self._idle: Mapping[Replica, list[httpx2.AsyncHTTPTransport]] = {
            replica: [] for replica in wire.replicas
        }

    async def send(self, request: Request, replica: Replica) -> Response | OpenResponse:
        message = self._messages.make_request(request, replica)
        idle = self._idle[replica]
        transport = idle.pop() if idle else self._open(replica)
        is_open = False
        try:
            response = await transport.handle_async_request(message)
            if request.is_streamed and response.is_success:
                is_open = True
                chunks = self._iterate_body(response, request, replica, transport)
                return OpenResponse(response.status_code, chunks)
            try:
                content = await response.aread()
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise self._messages.make_error(error, request, replica) from error
        finally:
            if not is_open:
                await self._keep(transport, replica)
        return replica.parse(request, response.status_code, content)

    async def _iterate_body(
        self,
        response: httpx2.Response,
        request: Request,
        replica: Replica,
        transport: httpx2.AsyncHTTPTransport,
    ) -> AsyncGenerator[bytes, None]:
        chunks: AsyncIterator[bytes] = response.aiter_bytes()
        try:
            async for chunk in chunks:
                yield chunk
        except httpx2.TransportError as error:
            raise self._messages.make_error(error, request, replica) from error
        finally:
            await response.aclose()
            await self._keep(transport, replica)

    def _open(self, replica: Replica) -> httpx2.AsyncHTTPTransport:
        return httpx2.AsyncHTTPTransport(
            verify=self._tls, limits=self._limits, uds=replica.socket, trust_env=False
        )

    async def _keep(self, transport: httpx2.AsyncHTTPTransport, replica: Replica) -> None:
        """Keep a transport, whose connection is idle or closed, for another request."""
        idle = self._idle[replica]
        idle.append(transport)
        if len(idle) > MAX_IDLE:
            await idle.pop(0).aclose()

    async def aclose(self) -> None:
        for idle in self._idle.values():
            while idle:
                await idle.pop().aclose()
