"""A replica that is asked by HTTP: with the client of the package, and with next to none, which
shows what the replica itself can do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

from loadtest.limits.cases import KEYS, LIST, LISTS, TASKS, Asking, Case, Counts, keep_asking
from tests.support.service import TOKEN, Service
from waitroom import AsyncClient

RULES = """
[limits.bench]
key = "{customer}"
algorithm = "sliding_window"
limit = 100000
window = "1s"
"""
ALGORITHM = "sliding_window"
CONNECTIONS = 64
SMALL_LIST, SMALL_LISTS = 100, 16


class Connection:
    """A keep-alive connection. What is asked is written out before."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, url: str) -> "Connection":
        host, _, port = urlsplit(url).netloc.partition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=2**20))

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError for any other status than 200."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the replica said {head[:200]!r}")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return await self._reader.readexactly(int(length))

    def close(self) -> None:
        self._writer.close()


def request_of(body: object) -> bytes:
    content = json.dumps(body).encode()
    head = (
        "POST /v1/limits/bench/acquire HTTP/1.1\r\nHost: replica\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


@asynccontextmanager
async def of_replica(store: str) -> AsyncIterator[tuple[list[Case], Connection]]:
    """The cases, and an idle connection."""
    service = Service(RULES, replicas=1, store=store)
    await asyncio.to_thread(service.__enter__)
    try:
        [url] = service.urls
        connections = [await Connection.open(url) for _ in range(CONNECTIONS)]
        async with AsyncClient(url, token=TOKEN) as room:
            ways: dict[str, tuple[Asking, int]] = {
                f"its client, {TASKS} tasks": (_by_client(room), TASKS),
                f"lists of {LIST:,}": (_by_lists(connections, LIST), LISTS),
                f"lists of {SMALL_LIST}": (_by_lists(connections, SMALL_LIST), SMALL_LISTS),
                f"{CONNECTIONS} connections": (_singly(connections), CONNECTIONS),
            }
            pids = [replica.pid for replica in service.replicas]
            yield [_case(way, *ask, pids) for way, ask in ways.items()], connections[0]
        for connection in connections:
            connection.close()
    finally:
        await asyncio.to_thread(service.__exit__)


def _case(way: str, ask: Asking, tasks: int, pids: list[int]) -> Case:
    async def run(seconds: float) -> Counts:
        return await keep_asking(ask, tasks, seconds)

    return Case("Waitroom", f"HTTP, {way}", ALGORITHM, "granted", run, pids)


def _by_client(room: AsyncClient) -> Asking:
    keys = cycle(KEYS["granted"])

    async def ask() -> Counts:
        return 1, (await room.acquire("bench", customer=next(keys))).allowed

    return ask


def _by_lists(connections: list[Connection], length: int) -> Asking:
    """Answers are counted, and not read further: callers share that work."""
    keys = KEYS["granted"]
    starts = range(0, len(keys), length)
    requests = cycle(
        request_of([{"fields": {"customer": key}} for key in keys[start : start + length]])
        for start in starts
    )
    free = list(connections)

    async def ask() -> Counts:
        connection = free.pop()
        answer = await connection.ask(next(requests))
        free.append(connection)
        return length, answer.count(b'"allowed":true')

    return ask


def _singly(connections: list[Connection]) -> Asking:
    requests = cycle(request_of({"fields": {"customer": key}}) for key in KEYS["granted"])
    free = list(connections)

    async def ask() -> Counts:
        connection = free.pop()
        answer = await connection.ask(next(requests))
        free.append(connection)
        return 1, answer.count(b'"allowed":true')

    return ask


def single(connection: Connection) -> Any:
    """One decision on an idle connection."""
    return connection.ask(request_of({"fields": {"customer": KEYS["granted"][0]}}))
