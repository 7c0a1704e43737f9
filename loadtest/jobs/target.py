"""The targets of both systems: an nginx that answers 200 and counts its calls, and a bell that
records when it was called."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from loadtest.callers import Connection
from tests.support.processes import free_port, wait_until
from tests.support.site import Servers, answers, make_folder, origin_command

_LOCATIONS = 'location / { return 200 "ok"; } location = /count { stub_status; }'
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class CountingNginx(Servers):
    """An nginx that is called at `url`."""

    def _start(self) -> None:
        self.folder, self._port = make_folder(self._stack), free_port()
        self.url = f"http://127.0.0.1:{self._port}/"
        nginx = self._run("nginx", origin_command(self.folder, self._port, _LOCATIONS))
        wait_until(lambda: answers(self.url), "nginx", of=nginx)

    @asynccontextmanager
    async def counter(self) -> "AsyncIterator[Counter]":
        connection = await Connection.open(self.url)
        try:
            yield Counter(connection)
        finally:
            connection.close()


class Counter:
    """Counts the calls of the target since `start`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        #: The target's requests before the counted calls: earlier ones, and those of this counter.
        self._others = 0

    async def start(self) -> None:
        self._others = await self._count_requests()

    async def count_calls(self) -> int:
        self._others += 1
        return await self._count_requests() - self._others

    async def _count_requests(self) -> int:
        body = await self._connection.ask(b"GET /count HTTP/1.1\r\nHost: target\r\n\r\n")
        return int(body.split(b"requests\n")[1].split()[2])


class Bell:
    """A target that is called by one job at a time."""

    #: When the bell was called last, by the monotonic clock.
    rung_s = 0.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        port = free_port()
        server = await asyncio.start_server(self._answer, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{port}/"
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.rung_s = time.monotonic()
                found = re.search(rb"(?i)content-length: (\d+)", head)
                await reader.readexactly(int(found[1]) if found else 0)
                writer.write(_OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
