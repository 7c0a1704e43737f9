"""A receiver of webhooks: a real HTTP server on loopback."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer


class Receiver:
    """Collects deliveries in `came`, and responds with the next of `answers`, then 200."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], dict]] = []
        #: A status, or status and headers, or None: no response until let_go.
        self.answers: list[int | tuple[int, dict[str, str]] | None] = []
        self._stopping = asyncio.Event()
        app = web.Application()
        app.router.add_post("/{path:.*}", self._take)
        self._server = TestServer(app, host="127.0.0.1")

    async def start(self) -> "Receiver":
        await self._server.start_server()
        return self

    def let_go(self) -> None:
        """Respond to the deliveries that still wait."""
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
    """Check every 5 ms. Fail with `what` if it does not become true."""
    try:
        async with asyncio.timeout(15):
            while not true():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come") from None


@dataclass
class Pauses:
    """The senders' time: a pause ends at once, and the clock goes forward."""

    now_s: float = 0.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await asyncio.sleep(0)

    def clock(self) -> float:
        return self.now_s
