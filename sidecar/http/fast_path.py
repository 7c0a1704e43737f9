"""Answers the most frequent requests without aiohttp's machinery, on aiohttp's connections.

aiohttp reads every request. One for an address of the fast path, whole, without a body, on a
connection where nothing else is under way, goes to its handler at once. All others, and all that is
odd, go on through aiohttp: tasks, routes, middlewares, a response with all it can do.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from aiohttp import HttpVersion11, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.typedefs import Handler
from multidict import istr

from sidecar.http.problems import problems
from sidecar.http.quick_response import QuickResponse

#: Handlers by method and target, such as ("GET", "/check"): exact, without a query.
FAST = web.AppKey("fast", dict[tuple[str, str], Handler])

_EXPECT = istr("Expect")


class FastRunner(web.AppRunner):
    """Serves an application whose FAST handlers are called directly."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            self.app, made.request_handler, request_factory=made.request_factory, **self._kwargs
        )


class _Server(web.Server):
    def __init__(self, app: web.Application, *handling: Any, **options: Any) -> None:
        super().__init__(*handling, **options)
        self.app = app

    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **self._kwargs)


class FastRequest:
    """What the handlers look at most. The rest of a request is aiohttp's, made where it is asked
    for."""

    __slots__ = ("_message", "_protocol", "_whole", "app", "headers", "method", "raw_path")

    can_read_body = False

    def __init__(
        self, message: RawRequestMessage, app: Mapping[Any, Any], protocol: "Connection"
    ) -> None:
        self.app = app
        self.headers = message.headers
        self.method = message.method
        self.raw_path = message.path
        self._message = message
        self._protocol = protocol
        self._whole: web.Request | None = None

    @property
    def transport(self) -> asyncio.Transport | None:
        return self._protocol.transport

    @property
    def whole(self) -> web.Request:
        if self._whole is None:
            self._whole = self._protocol.whole(self._message)
        return self._whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


class Connection(web.RequestHandler):
    """aiohttp's, which is kept from waking up for a request that is answered here.

    It stays in charge of all else: it reads, pauses, times out and closes. At a time either it
    answers (then `_waiter` is None) or we do (`_answering`).
    """

    __slots__ = ("_answering", "_app", "_consumed", "_fast", "_make_request")

    def __init__(self, manager: _Server, **options: Any) -> None:
        super().__init__(manager, **options)
        #: What handlers look up in the application, which is frozen, without its detours.
        self._app: Mapping[Any, Any] = dict(manager.app.items())
        self._fast = manager.app[FAST]
        self._make_request = manager.request_factory
        #: Of newer parsers, which count what they have read ahead.
        self._consumed = getattr(self._parser, "message_consumed", _nothing)
        self._answering: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            super().data_received(data)
            return
        self._waiter = None  # or it would wake up for what has come
        try:
            super().data_received(data)
        finally:
            self._waiter = waiter
        if self._answering is None and self._messages:
            self._answer_next(waiter)

    def _answer_next(self, waiter: asyncio.Future[None]) -> None:
        """Somebody does: we, if what has come is one request and for us."""
        message, payload = self._messages[0]
        is_one = len(self._messages) == 1 and payload is EMPTY_PAYLOAD
        handler = self._find(message) if is_one else None
        if handler is None:
            waiter.set_result(None)
            return
        self._messages.clear()
        self._consumed()
        self._request_in_progress = True
        request = FastRequest(cast("RawRequestMessage", message), self._app, self)
        self._answering = self._loop.create_task(self._answer(request, handler))

    def _find(self, message: object) -> Handler | None:
        """None: it is for aiohttp."""
        if not isinstance(message, RawRequestMessage):  # an error
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
                response = await _explained(request.whole, error)
            if self.transport is None:
                return  # the client is gone
            if isinstance(response, QuickResponse) and not self._paused:
                self.transport.write(response.written())
            else:
                await self.finish_response(request.whole, response, None)
        except asyncio.CancelledError:
            self.force_close()
            raise
        except Exception as error:  # noqa: BLE001 - as aiohttp does: it is logged
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        finally:
            self._answered()

    def _answered(self) -> None:
        self._answering = None
        self._request_in_progress = False
        if self._handler_waiter is not None:  # a shutdown waits for us
            self._handler_waiter.set_result(None)
        if self.transport is None:
            return
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._close or self._force_close:
            self.transport.close()
        elif self._messages and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _process_keepalive(self) -> None:
        if self._answering is not None:  # aiohttp thinks that nothing is asked here
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def whole(self, message: RawRequestMessage) -> web.Request:
        writer, task = StreamWriter(self, self._loop), cast("asyncio.Task[None]", self._answering)
        return cast("web.Request", self._make_request(message, EMPTY_PAYLOAD, self, writer, task))

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._answering is not None:
            self._task_handler = self._answering  # a shutdown waits for it, as for aiohttp's own
        super().connection_lost(exc)

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's
        await super().shutdown(timeout)
        if self._answering is not None:
            self._answering.cancel()


async def _explained(request: web.Request, error: Exception) -> web.StreamResponse:
    async def fail(_request: web.Request) -> web.StreamResponse:
        raise error

    try:
        return await problems(request, fail)
    except web.HTTPException as response:  # none of an error
        return response


def _nothing() -> None: ...
