"""An HTTP server on loopback that receives webhooks."""

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator

from aiohttp import web
from aiohttp.test_utils import TestServer


class Receiver:
    """A server that collects deliveries, as pairs of headers and JSON body, in `came`. It responds
    with the next of `answers`, and with status 200 if none is left."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], dict]] = []
        #: The bodies of the deliveries in `came`, unchanged.
        self.bodies: list[bytes] = []
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

    def find_genuine(self, secret: str) -> list[bool]:
        """Return for each delivery whether the library of Standard Webhooks accepts it."""
        from standardwebhooks import Webhook, WebhookVerificationError

        def is_genuine(body: bytes, headers: dict[str, str]) -> bool:
            try:
                return Webhook(secret).verify(body, headers) == json.loads(body)
            except WebhookVerificationError:
                return False

        came = zip(self.bodies, self.came, strict=True)
        return [is_genuine(body, headers) for body, (headers, _) in came]

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.bodies.append(body)
        self.came.append((dict(request.headers), json.loads(body)))
        answer = self.answers.pop(0) if self.answers else 200
        if answer is None:
            await self._stopping.wait()
            return web.Response()
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        return web.Response(status=status, headers=headers)


class TwiceReceiver:
    """A server on raw sockets that answers each request with 200, and again on the same connection
    when the test wants it. `ids` has the ids of the deliveries that came."""

    ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> "TwiceReceiver":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def answer_again(self) -> None:
        """Answer once more on each connection, and return when the clients have received it."""
        for writer in self._writers:
            writer.write(self.ANSWER)
        for _ in range(3):  # each takes the loop through a look at all its sockets
            _, writer = await asyncio.open_connection(*self._server.sockets[0].getsockname())
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                await reader.readexactly(int(re.search(r"(?i)content-length: (\d+)", head)[1]))
                self.ids.append(re.search(r"(?i)x-waitroom-delivery: (\S+)", head)[1])
                if writer not in self._writers:
                    self._writers.append(writer)
                writer.write(self.ANSWER)
        writer.close()


@contextlib.contextmanager
def run_flood(part: bytes, *, first: bytes = b"") -> Iterator[str]:
    """Run a server that answers each connection's request with `first`, then `part` without end, as
    fast as the client reads. Yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def flood(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.recv(65_536)
                client.sendall(first)
                while True:
                    client.sendall(part * (262_144 // len(part) + 1))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=flood, args=server.accept()[:1], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        server.shutdown(socket.SHUT_RDWR)


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until `true()` is True, for 15 s at most. `what` is named in the error message."""
    try:
        async with asyncio.timeout(15):
            while not true():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come") from None
