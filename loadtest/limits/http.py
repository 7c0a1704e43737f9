"""Decisions over HTTP: by the Python client, and by one that costs next to nothing and so shows
what the replica itself can do."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import cycle
from typing import Any

from loadtest.connection import Connection, prepare
from loadtest.limits.cases import KEYS, LIST, LISTS, TASKS, Asking, Case, Counts, keep_asking
from loadtest.report import count
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
PATH = "limits/bench/acquire"
CONNECTIONS = 64
SMALL_LIST, SMALL_LISTS = 100, 16


@asynccontextmanager
async def of_replica(store: str) -> AsyncIterator[tuple[list[Case], Connection]]:
    """Start a replica. Yield its cases, and an idle connection."""
    async with AsyncExitStack() as stack:
        service = Service(RULES, replicas=1, store=store)
        await asyncio.to_thread(stack.enter_context, service)
        [url] = service.urls
        connections = [await Connection.open(url) for _ in range(CONNECTIONS)]
        async with AsyncClient(url, token=TOKEN) as room:
            by_client = partial(_ask_by_client, room, cycle(KEYS["granted"]))
            ways: dict[str, tuple[Asking, int]] = {
                **{f"its client, {count(n, 'task')}": (by_client, n) for n in TASKS},
                f"lists of {LIST:,}": (_by_lists(connections, LIST), LISTS),
                f"lists of {SMALL_LIST}": (_by_lists(connections, SMALL_LIST), SMALL_LISTS),
                f"{CONNECTIONS} connections": (_by_lists(connections, 1), CONNECTIONS),
            }
            pids = [replica.pid for replica in service.replicas]
            cases = []
            for way, (ask, tasks) in ways.items():
                run = partial(keep_asking, ask, tasks)
                cases.append(Case("Waitroom", f"HTTP, {way}", ALGORITHM, "granted", run, pids))
            yield cases, connections[0]
        for connection in connections:
            connection.close()


async def _ask_by_client(room: AsyncClient, keys: Iterator[str]) -> Counts:
    return 1, (await room.acquire("bench", customer=next(keys))).allowed


def _by_lists(connections: list[Connection], length: int) -> Asking:
    """Send lists of `length` calls, or single calls. Responses are counted, and read no further,
    as callers share that work."""
    calls = [{"fields": {"customer": key}} for key in KEYS["granted"]]
    lists = [calls[start : start + length] for start in range(0, len(calls), length)]
    requests = cycle(prepare("POST", PATH, calls if length > 1 else calls[0]) for calls in lists)
    free = list(connections)

    async def ask() -> Counts:
        connection = free.pop()
        answer = await connection.ask(next(requests))
        free.append(connection)
        return length, answer.count(b'"allowed":true')

    return ask


def single(connection: Connection) -> Any:
    """Ask for one decision on an idle connection."""
    return connection.ask(prepare("POST", PATH, {"fields": {"customer": KEYS["granted"][0]}}))
