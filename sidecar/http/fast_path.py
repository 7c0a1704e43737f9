"""Answers the most frequent requests without aiohttp's routes, middlewares and writers.

aiohttp parses every request. The fast path passes a request to its handler at once if its method
and target are in FAST, if it is complete and has no body, and if no other request of its connection
is pending. aiohttp handles all other requests.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from types import NoneType
from typing import Any, cast

import aiohttp
import structlog
from aiohttp import HttpVersion11, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.typedefs import Handler
from multidict import istr

from sidecar.http.problems import problems
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.library_parts import PartKind, has_part

#: The key of a dict that maps a method and a target, such as ("GET", "/check"), to the handler on
#: the fast path. A target with a query does not match.
FAST = web.AppKey("fast", dict[tuple[str, str], Handler])

_EXPECT = istr("Expect")

log = structlog.get_logger()

#: The private attributes of aiohttp that this file and quick_response.py use, and the kind of value
#: that each has on an idle connection.
PARTS: dict[str, PartKind] = {
    "runner._kwargs": dict,
    "server._kwargs": dict,
    "server._loop": asyncio.AbstractEventLoop,
    "server.request_factory": ["message", "payload", "protocol", "writer", "task", "_cls"],
    "connection._close": bool,
    "connection._force_close": bool,
    "connection._handler_waiter": NoneType,
    "connection._keepalive_timeout": (int, float),
    "connection._loop": asyncio.AbstractEventLoop,
    "connection._messages": deque,
    "connection._next_keepalive_close_time": (int, float),
    "connection._parser": object,
    "connection._paused": bool,
    "connection._process_keepalive": [],
    "connection._request_in_progress": bool,
    "connection._task_handler": NoneType,
    "connection._waiter": NoneType,
    "connection.connection_lost": ["exc"],
    "connection.data_received": ["data"],
    "connection.finish_response": ["request", "resp", "start_time"],
    "connection.force_close": [],
    "connection.log_exception": ["args", "kw"],
    "connection.shutdown": ["timeout"],
    "response._eof_sent": bool,
    "response._keep_alive": NoneType,
}


class FastRunner(web.AppRunner):
    """A runner whose connections have the fast path. If aiohttp lacks any of PARTS, the runner logs
    a warning and behaves as aiohttp's own."""

    async def setup(self) -> None:
        self._unknown_parts = ["runner._make_server"]
        await super().setup()
        QuickResponse.is_direct = not self._unknown_parts
        if self._unknown_parts:
            hint = f"aiohttp {aiohttp.__version__} is unknown to the fast path; polls cost more CPU"
            log.warning("fast_path_off", parts=self._unknown_parts, hint=hint)

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        response = web.StreamResponse
        owners = {"runner": self, "server": server, "connection": server(), "response": response}
        self._unknown_parts = [
            name
            for name, kind in PARTS.items()
            if not has_part(owners[name.partition(".")[0]], name.partition(".")[2], kind)
        ]
        if self._unknown_parts:
            return server
        return _Server(
            self.app, server.request_handler, request_factory=server.request_factory, **self._kwargs
        )


class _Server(web.Server):
    def __init__(self, app: web.Application, *handling: Any, **options: Any) -> None:
        super().__init__(*handling, **options)
        self.app = app

    def __call__(self) -> web.RequestHandler:
        return FastConnection(self, loop=self._loop, **self._kwargs)


class FastRequest:
    """A request with the attributes that handlers read most often. All others come from aiohttp's
    request, which is created when a handler first reads one of them."""

    __slots__ = ("_full_request", "_message", "_protocol", "app", "headers", "method", "raw_path")

    can_read_body = False

    def __init__(
        self, message: RawRequestMessage, app: Mapping[Any, Any], protocol: "FastConnection"
    ) -> None:
        self.app = app
        self.headers, self.method, self.raw_path = message.headers, message.method, message.path
        self._message = message
        self._protocol = protocol
        self._full_request: web.Request | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._protocol.transport

    @property
    def full_request(self) -> web.Request:
        if self._full_request is None:
            self._full_request = self._protocol.make_full_request(self._message)
        return self._full_request

    def __getattr__(self, name: str) -> Any:
        return getattr(self.full_request, name)


class FastConnection(web.RequestHandler):
    """A connection of aiohttp that answers FAST requests without waking aiohttp's task.

    aiohttp still parses requests, and pauses, times out and closes the connection. While aiohttp
    answers a request, `_waiter` is None. While this class answers one, `_answering` is set.
    """

    __slots__ = ("_answering", "_app", "_consume_message", "_fast", "_make_request")

    def __init__(self, manager: _Server, **options: Any) -> None:
        super().__init__(manager, **options)
        #: A copy of the application's values, because its own look-ups are slower.
        self._app: Mapping[Any, Any] = dict(manager.app.items())
        self._fast = manager.app[FAST]
        self._make_request = manager.request_factory
        #: Tells the parser that a message was consumed. Older parsers do not count messages.
        self._consume_message = getattr(self._parser, "message_consumed", lambda: None)
        self._answering: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            super().data_received(data)
            return
        self._waiter = None  # otherwise aiohttp's task would wake up for this data
        try:
            super().data_received(data)
        finally:
            self._waiter = waiter
        if self._answering is None and self._messages:
            self._answer_next(waiter)

    def _answer_next(self, waiter: asyncio.Future[None]) -> None:
        """Answer the next request if it is the only one and has a FAST handler. Otherwise wake
        aiohttp's task, which waits for `waiter`."""
        message, payload = self._messages[0]
        is_only_one = len(self._messages) == 1 and payload is EMPTY_PAYLOAD
        handler = self._find_handler(message) if is_only_one else None
        if handler is None:
            waiter.set_result(None)
            return
        self._messages.clear()
        self._consume_message()
        self._request_in_progress = True
        request = FastRequest(cast("RawRequestMessage", message), self._app, self)
        self._answering = self._loop.create_task(self._answer(request, handler))

    def _find_handler(self, message: object) -> Handler | None:
        """Return the FAST handler for a message, or None if aiohttp has to answer the message."""
        if not isinstance(message, RawRequestMessage):  # a parser's error
            return None
        handler = self._fast.get((message.method, message.path))
        if handler is None or message.should_close or message.upgrade:
            return None
        is_plain = message.version == HttpVersion11 and _EXPECT not in message.headers
        return handler if is_plain else None

    async def _answer(self, request: FastRequest, handler: Handler) -> None:
        try:
            try:
                response = await handler(cast("web.Request", request))
            except Exception as error:  # noqa: BLE001 - any error becomes a response
                response = await _convert_error(request.full_request, error)
            if self.transport is None:
                return  # the client is gone
            if isinstance(response, QuickResponse) and not self._paused:
                self.transport.write(response.to_bytes())
            else:
                await self.finish_response(request.full_request, response, None)
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:  # noqa: BLE001 - logged, as aiohttp logs it
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        finally:
            self._finish_answer()

    def _finish_answer(self) -> None:
        self._answering = None
        self._request_in_progress = False
        if self._handler_waiter is not None:  # a shutdown waits until this request is answered
            self._handler_waiter.set_result(None)
        if self.transport is None:
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._close or self._force_close:
            self.transport.close()
        elif self._messages and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _process_keepalive(self) -> None:
        if self._answering is not None:  # otherwise aiohttp would close the connection as idle
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def make_full_request(self, message: RawRequestMessage) -> web.Request:
        writer, task = StreamWriter(self, self._loop), cast("asyncio.Task[None]", self._answering)
        return cast("web.Request", self._make_request(message, EMPTY_PAYLOAD, self, writer, task))

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._answering is not None:
            self._task_handler = self._answering  # a shutdown waits for this task
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        await super().shutdown(timeout)
        if self._answering is not None:
            self._answering.cancel()


async def _convert_error(request: web.Request, error: Exception) -> web.StreamResponse:
    async def fail(_request: web.Request) -> web.StreamResponse:
        raise error

    try:
        return await problems(request, fail)
    except web.HTTPException as response:  # such as a redirect
        return response
