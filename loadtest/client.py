"""What a request by AsyncClient costs, beside bare HTTP libraries: `make bench-client`.

All send the same GET to the same replica, in turn, on asyncio's own event loop.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from statistics import median
from typing import Any
from unittest import mock

import aiohttp
import httpx2

from loadtest.limits.http import RULES
from loadtest.report import Report, Target, bold, count, median_of, spread, table
from loadtest.rounds import describe_loads, rounds
from tests.support.service import TOKEN, Service
from waitroom import AsyncClient

__all__ = ["QUICK", "WHOLE", "add_options", "measure_reports"]

TASKS = (1, 8, 64, 256)
PATH = "/v1/limits/bench?customer=a"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
BARE, OURS, ALONE, HTTPX = "aiohttp", "AsyncClient", "AsyncClient without aiohttp", "httpx2"
_LEAST = 0.9

Send = Callable[[], Awaitable[Any]]

_HOW = (
    "One replica on one redis-server, asked by GET for the state of a limit, and one process that "
    "asks with so many tasks, each one request after the other. {rounds} of {seconds:g} s for each "
    "case, each round beginning elsewhere; medians of the rounds, ± is half the distance between "
    "the best and the worst. The caller, the replica and Redis shared this machine. aiohttp "
    "{aiohttp}, httpx2 {httpx2}, as their documentation uses them, with no limit of connections; "
    "both parse the JSON. {loads}"
)
_CPU = "## CPU time of the caller, µs a request"


@dataclass(frozen=True, slots=True)
class Amount:
    rounds: int = 5
    seconds: float = 2.0


WHOLE = Amount()
QUICK = Amount(rounds=1, seconds=0.3)


@dataclass(frozen=True, slots=True)
class Run:
    """One case in one round."""

    per_second: float
    #: CPU time of the calling process per request, in µs.
    cpu_us: float


@dataclass(slots=True)
class Figures:
    amount: Amount
    #: Runs by the name of the client and the number of tasks, one per round.
    runs: dict[tuple[str, int], list[Run]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def get_ratio(self, name: str, tasks: int) -> float:
        """Return the median ratio of the client's rate to that of bare aiohttp."""
        pairs = zip(self.runs[name, tasks], self.runs[BARE, tasks], strict=True)
        return median(run.per_second / bare.per_second for run, bare in pairs)


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
async def _open_client(url: str) -> Any:
    async with AsyncClient(url, token=TOKEN, timeout=30) as client:
        yield lambda: client.request("GET", PATH)


@asynccontextmanager
async def _open_client_alone(url: str) -> Any:
    """Open AsyncClient as if aiohttp were not installed."""
    with mock.patch.dict("sys.modules", {"waitroom.aiohttp_transport": None}):
        client = AsyncClient(url, token=TOKEN, timeout=30)
    async with client:
        yield lambda: client.request("GET", PATH)


_WAYS: dict[str, Callable[[str], AbstractAsyncContextManager[Send]]] = {
    BARE: _open_aiohttp, OURS: _open_client, ALONE: _open_client_alone, HTTPX: _open_httpx
}  # fmt: skip


async def _measure_case(name: str, url: str, tasks: int, seconds: float) -> Run:
    sent = 0
    async with _WAYS[name](url) as send:
        await asyncio.gather(*(send() for _ in range(tasks)))  # opens the connections
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()

        async def keep_sending() -> None:
            nonlocal sent
            is_over = False
            while not is_over:
                await send()
                sent += 1
                is_over = time.perf_counter() >= begin_s + seconds

        await asyncio.gather(*(keep_sending() for _ in range(tasks)))
        lasted_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
    return Run(sent / lasted_s, 1e6 * cpu_s / sent)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, help="another duration of a run")


def measure_reports(amount: Amount) -> Iterator[Report]:
    figures = Figures(amount)
    cases = [(name, tasks) for tasks in TASKS for name in _WAYS]
    with Service(RULES, replicas=1) as service:
        for _, turn in rounds(amount.rounds, cases, figures.loads):
            for name, tasks in turn:
                run = asyncio.run(_measure_case(name, service.urls[0], tasks, amount.seconds))
                figures.runs.setdefault((name, tasks), []).append(run)
    yield _report(figures)


def _report(figures: Figures) -> Report:
    how = _HOW.format(
        rounds=count(figures.amount.rounds, "round"), seconds=figures.amount.seconds,
        aiohttp=version("aiohttp"), httpx2=version("httpx2"), loads=describe_loads(figures.loads),
    )  # fmt: skip
    worst = min(figures.get_ratio(OURS, tasks) for tasks in TASKS)
    target = Target(
        "client: requests/s of AsyncClient, over bare aiohttp's ([client.md](client.md))",
        f"≥ {_LEAST:g}", worst >= _LEAST, f"{worst:.2f}",
    )  # fmt: skip
    problems = [] if target.is_reached else [f"AsyncClient reaches {worst:.2f} of bare aiohttp"]
    head = ["client", *(count(tasks, "task") for tasks in TASKS)]
    rates = [[name, *(_rate(figures, name, tasks) for tasks in TASKS)] for name in _WAYS]
    cpu = [
        [name, *(f"{median_of(figures.runs[name, n], lambda r: r.cpu_us):,.0f}" for n in TASKS)]
        for name in _WAYS
    ]
    parts = [
        how, *bold(problems), "## Requests a second, and over bare aiohttp's", table(head, rates),
        _CPU, table(head, cpu),
    ]  # fmt: skip
    return Report("client", "The Python client, measured", parts, figures, {}, problems, [target])


def _rate(figures: Figures, name: str, tasks: int) -> str:
    rates = [run.per_second for run in figures.runs[name, tasks]]
    ratio = figures.get_ratio(name, tasks)
    return f"{median(rates):,.0f} {spread(rates)} ({ratio:.2f})"
