"""The target of both systems: an nginx that answers 200 and counts its calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loadtest.callers import Connection
from tests.support.processes import free_port, wait_until
from tests.support.site import Servers, answers, make_folder, origin_command

_LOCATIONS = 'location / { return 200 "ok"; } location = /count { stub_status; }'


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
