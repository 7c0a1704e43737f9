"""What a request by AsyncClient costs, beside bare HTTP libraries: `make bench-client`.

All send the same GET to the same replica, in turn, on asyncio's own event loop.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any
from unittest import mock

import aiohttp
import httpx2

from loadtest.amount import option
from loadtest.callers import Counts, keep_asking
from loadtest.limits.cases import RULES
from loadtest.report import Report, Target
from loadtest.rounds import Rounds
from tests.support.service import TOKEN, Service
from waitroom import AsyncClient

TASKS = (1, 8, 64, 256)
PATH = "/v1/limits/bench?customer=a"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BARE, OURS, ALONE, HTTPX = "aiohttp", "AsyncClient", "AsyncClient without aiohttp", "httpx2"
_LEAST = 0.9

Send = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: float = option(2.0, "another duration of a run")


WHOLE = Amount()
QUICK = Amount(rounds=1, seconds=0.3)


@dataclass(frozen=True, slots=True)
class Run:
    """One case in one round."""

    per_second: float
    #: CPU time of the calling process per request, in µs.
    cpu_us: float


#: Runs by the name of the client and the number of tasks.
Runs = Rounds[tuple[str, int], Run]


@asynccontextmanager
async def _open_aiohttp(url: str) -> Any:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(headers=HEADERS, connector=connector) as session:

        async def send() -> Any:
            async with session.get(url + PATH) as response:
                return await response.json()

        yield send


@asynccontextmanager
async def _open_httpx(url: str) -> Any:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(headers=HEADERS, limits=limits, timeout=30) as client:

        async def send() -> Any:
            return json.loads((await client.get(url + PATH)).content)

        yield send


@asynccontextmanager
async def _open_client(url: str, hidden: Sequence[str] = ()) -> Any:
    """Open AsyncClient as if these modules were not installed."""
    with mock.patch.dict("sys.modules", dict.fromkeys(hidden)):
        client = AsyncClient(url, token=TOKEN, timeout=30)
    async with client:
        yield lambda: client.request("GET", PATH)


_WAYS: dict[str, Callable[[str], AbstractAsyncContextManager[Send]]] = {
    BARE: _open_aiohttp,
    OURS: _open_client,
    ALONE: partial(_open_client, hidden=["waitroom.aiohttp_transport"]),
    HTTPX: _open_httpx,
}


async def _measure_case(name: str, url: str, tasks: int, seconds: float) -> Run:
    async with _WAYS[name](url) as send:
        await asyncio.gather(*(send() for _ in range(tasks)))  # opens the connections

        async def ask() -> Counts:
            await send()
            return 1, 1

        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        sent, _ = await keep_asking(ask, tasks, seconds)
        lasted_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    return Run(sent / lasted_s, 1e6 * cpu_s / sent)


def measure_reports(amount: Amount) -> Iterator[Report]:
    runs = Runs(amount.rounds)
    cases = [(name, tasks) for tasks in TASKS for name in _WAYS]
    with Service(RULES, replicas=1) as service:
        for turn in runs.turns(cases):
            for name, tasks in turn:
                run = asyncio.run(_measure_case(name, service.urls[0], tasks, amount.seconds))
                runs.add((name, tasks), run)
    yield _report(amount, runs)


def _report(amount: Amount, runs: Runs) -> Report:
    worst = min(runs.ratio((OURS, tasks), (BARE, tasks), "per_second") for tasks in TASKS)
    what = "client: requests/s of AsyncClient, over bare aiohttp's ([client.md](client.md))"
    target = Target(what, f"≥ {_LEAST:g}", worst >= _LEAST, f"{worst:.2f}")
    problems = [] if target.is_reached else [f"AsyncClient reaches {worst:.2f} of bare aiohttp"]
    values = {"amount": amount, "runs": runs, "tasks": TASKS, "ways": _WAYS, "bare": BARE,
              "aiohttp": version("aiohttp"), "httpx2": version("httpx2")}  # fmt: skip
    return Report("client", values, runs, {}, problems, [target])
