"""Callers with little cost of their own: their client sends prepared requests to a replica, and
parses almost nothing of the responses."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from tests.support.service import TOKEN

#: Numbers of decisions, and of those that let a call through.
Counts: TypeAlias = tuple[int, int]
Asking: TypeAlias = Callable[[], Awaitable[Counts]]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Connection:
    """Keep-alive connection to a replica."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        host, _, port = urlsplit(url).netloc.partition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**20))

    async def ask(self, request: bytes) -> bytes:
        """Send a request and return the body of the response."""
        self.send(request)
        return await self.read()

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def read(self) -> bytes:
        """Return the body of the next response. Raises RuntimeError if the status is not 20x."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"the replica responded {head[:40]!r} {body[:400]!r}")
        return body

    def close(self) -> None:
        self._writer.close()


class Connections:
    """Connections to a replica, which are opened when they are needed."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: list[Connection] = []

    async def ask(self, request: bytes) -> bytes:
        connection = self._free.pop() if self._free else await Connection.open(self._url)
        body = await connection.ask(request)
        self._free.append(connection)
        return body

    async def open(self, number: int) -> None:
        """Open connections, so that there are so many."""
        while len(self._free) < number:
            self._free.append(await Connection.open(self._url))

    def close(self) -> None:
        for connection in self._free:
            connection.close()


def prepare(method: str, path: str, body: object = None) -> bytes:
    """Return the bytes of a request to the service API."""
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} /v1/{path} HTTP/1.1\r\nHost: replica\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def keep_asking(ask: Asking, tasks: int, seconds: float) -> Counts:
    """Let `tasks` tasks ask, each again as soon as it is answered. Each asks once at least, so that
    all connections are open after the warming."""
    ends = time.perf_counter() + seconds
    counts = [0, 0]

    async def work() -> None:
        is_over = False
        while not is_over:
            decisions, granted = await ask()
            counts[0] += decisions
            counts[1] += granted
            is_over = time.perf_counter() >= ends

    await asyncio.gather(*(work() for _ in range(tasks)))
    return counts[0], counts[1]


async def ask_each(
    ask: Callable[[Item], Awaitable[Answer]], items: Iterable[Item], tasks: int
) -> list[Answer]:
    """Return an answer for each item, in any order. `tasks` tasks ask at the same time."""
    answers: list[Answer] = []
    left = iter(items)

    async def work() -> None:
        answers.extend([await ask(item) for item in left])

    await asyncio.gather(*(work() for _ in range(tasks)))
    return answers
