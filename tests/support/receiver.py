"""An HTTP server on loopback that receives webhooks."""

import asyncio
import json
from collections.abc import Callable

from aiohttp import web
from aiohttp.test_utils import TestServer


class Receiver:
    """A server that collects deliveries, as pairs of headers and JSON body, in `came`. It responds
    with the next of `answers`, and with status 200 if none is left."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], dict]] = []
        #: The next responses: a status, or a status with headers. None delays the response until
        #: let_go() is called.
        self.answers: list[int | tuple[int, dict[str, str]] | None] = []
        self._stopping = asyncio.Event()
        app = web.Application()
        app.router.add_post("/{path:.*}", self._take)
        self._server = TestServer(app, host="127.0.0.1")

    async def start(self) -> "Receiver":
        await self._server.start_server()
        return self

    def let_go(self) -> None:
        """Respond to all delayed deliveries."""
        self._stopping.set()

    async def stop(self) -> None:
        self.let_go()
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("/hook/token-that-nobody-sees"))

    @property
    def events(self) -> list[str]:
        return [headers["X-Waitroom-Event"] for headers, _ in self.came]

    @property
    def ids(self) -> list[str]:
        return [headers["X-Waitroom-Delivery"] for headers, _ in self.came]

    async def _take(self, request: web.Request) -> web.Response:
        self.came.append((dict(request.headers), json.loads(await request.read())))
        answer = self.answers.pop(0) if self.answers else 200
        if answer is None:
            await self._stopping.wait()
            return web.Response()
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        return web.Response(status=status, headers=headers)


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until `true()` is True, for 15 s at most. `what` is named in the error message."""
    try:
        async with asyncio.timeout(15):
            while not true():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come") from None
