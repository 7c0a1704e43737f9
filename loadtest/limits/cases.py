"""The cases: ways to have decisions made about one of two kinds of calls.

* `granted`: 1,000 keys in turn, none near its limit.
* `refused`: one key far over its limit.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any, Literal, TypeAlias, cast

from limits import RateLimitItem, RateLimitItemPerSecond, strategies
from limits.aio import strategies as aio
from limits.aio.storage import RedisStorage as AsyncStorage
from limits.storage import RedisStorage
from redis.asyncio import Redis

from loadtest.callers import Asking, Connections, Counts, keep_asking, prepare
from loadtest.report import count
from sidecar.limits.model import Call
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from tests.support.service import TOKEN, Service
from waitroom import AsyncClient

Calls: TypeAlias = Literal["granted", "refused"]

ALGORITHMS = ("fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency")
KEYS: dict[Calls, list[str]] = {
    "granted": [f"customer-{n}" for n in range(1000)],
    "refused": ["bank"],
}
#: Calls per key and second.
LIMITS = {"granted": 100_000, "refused": 20}
#: How many tasks ask at the same time. Waitroom and the library are compared at each number.
TASKS = (1, 64, 256)
#: The calls in one list, and the lists that are asked at the same time.
LIST, LISTS = 1000, 4
#: The algorithms that both have, by Waitroom's name and by the library's.
PAIRS = {"fixed_window": "fixed window", "sliding_window": "moving window"}
#: A replica's rules, and how it is asked.
RULES = """
[limits.bench]
key = "{customer}"
algorithm = "sliding_window"
limit = 100000
window = "1s"
"""
PATH = "limits/bench/acquire"
CALLERS = 64
SMALL_LIST, SMALL_LISTS = 100, 16
#: The library's connections at most: each call that is under way has one.
CONNECTIONS = 512

#: Classes of the library by its names for the algorithms.
CLASSES = {
    "fixed window": "FixedWindowRateLimiter",
    "moving window": "MovingWindowRateLimiter",
    "sliding window counter": "SlidingWindowCounterRateLimiter",
}


@dataclass(frozen=True)
class Case:
    system: Literal["Waitroom", "limits"]
    #: The way to ask the system, and the system's name for the algorithm.
    way: str
    algorithm: str
    calls: Calls
    run: Callable[[float], Awaitable[Counts]] = field(compare=False)
    #: Processes other than Redis and this one that take part.
    pids: list[int] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        return f"{self.system}, {self.way}: {self.algorithm}"

    def __str__(self) -> str:
        return f"{self.name}, {self.calls}"


def settings(algorithm: str, calls: Calls, on_exceed: str = "refuse") -> LimitSettings:
    values = {"algorithm": algorithm, "limit": LIMITS[calls], "on_exceed": on_exceed}
    values |= {"lease": 1} if algorithm == "concurrency" else {"window": 1}
    return LimitSettings.model_validate(values)


def of_store(redis: Redis, calls: Calls) -> list[Case]:
    """Return cases that ask LimitStore, as a replica does."""
    rules = {name: settings(name, calls) for name in ALGORITHMS}
    if calls == "granted":
        rules["sliding_window, pace"] = settings("sliding_window", calls, "pace")
    cases = []
    for name, rule in rules.items():
        store = LimitStore(redis, "bench", settings=rule, timeout_s=60)
        requests = [Call(key) for key in KEYS[calls]]
        for tasks in TASKS if name in PAIRS else TASKS[-1:]:
            run = partial(keep_asking, partial(_ask_one, store, cycle(requests)), tasks)
            cases.append(Case("Waitroom", count(tasks, "task"), name, calls, run))
        if calls == "granted" and name in ALGORITHMS:
            run = partial(keep_asking, partial(_ask_list, store, requests), LISTS)
            cases.append(Case("Waitroom", f"lists of {LIST:,}", name, calls, run))
    return cases


@asynccontextmanager
async def of_replica(store: str) -> AsyncIterator[tuple[list[Case], Connections]]:
    """Start a replica. Yield its cases: asked by the Python client, and by a client that costs next
    to nothing and so shows what the replica itself can do. Yield the connections of the latter."""
    async with AsyncExitStack() as stack:
        service = Service(RULES, replicas=1, store=store)
        await asyncio.to_thread(stack.enter_context, service)
        [url] = service.urls
        connections = Connections(url)
        stack.callback(connections.close)
        room = await stack.enter_async_context(AsyncClient(url, token=TOKEN))
        by_client = partial(_ask_by_client, room, cycle(KEYS["granted"]))
        ways: dict[str, tuple[Asking, int]] = {
            **{f"its client, {count(n, 'task')}": (by_client, n) for n in TASKS},
            f"lists of {LIST:,}": (_by_lists(connections, LIST), LISTS),
            f"lists of {SMALL_LIST}": (_by_lists(connections, SMALL_LIST), SMALL_LISTS),
            f"{CALLERS} connections": (_by_lists(connections, 1), CALLERS),
        }
        pids = [replica.pid for replica in service.replicas]
        yield [
            Case("Waitroom", f"HTTP, {way}", "sliding_window", "granted",
                 partial(keep_asking, ask, tasks), pids)
            for way, (ask, tasks) in ways.items()
        ], connections  # fmt: skip


async def _ask_by_client(room: AsyncClient, keys: Iterator[str]) -> Counts:
    return 1, (await room.acquire("bench", customer=next(keys))).allowed


def _by_lists(connections: Connections, length: int) -> Asking:
    """Send lists of `length` calls, or single calls. Responses are counted, and read no further,
    as callers share that work."""
    calls = [{"fields": {"customer": key}} for key in KEYS["granted"]]
    lists = [calls[start : start + length] for start in range(0, len(calls), length)]
    requests = cycle(prepare("POST", PATH, calls if length > 1 else calls[0]) for calls in lists)

    async def ask() -> Counts:
        answer = await connections.ask(next(requests))
        return length, answer.count(b'"allowed":true')

    return ask


def ask_once(connections: Connections) -> Awaitable[bytes]:
    """Ask the replica for one decision."""
    call = {"fields": {"customer": KEYS["granted"][0]}}
    return connections.ask(prepare("POST", PATH, call))


def of_library(uri: str, calls: Calls) -> list[Case]:
    item = RateLimitItemPerSecond(LIMITS[calls])
    cases = []
    for name in CLASSES:
        limiter = async_limiter(uri, name)
        ask = partial(_hit, limiter, item, cycle(KEYS[calls]))
        for tasks in TASKS:
            run = partial(keep_asking, ask, tasks)
            cases.append(Case("limits", f"async, {count(tasks, 'task')}", name, calls, run))
        if calls == "granted" and name in PAIRS.values():
            run = partial(keep_asking, partial(_hit_in_pipeline, limiter, item, name), LISTS)
            cases.append(Case("limits", f"async, pipelines of {LIST:,}", name, calls, run))
    for name in CLASSES:
        run = partial(_hit_in_a_thread, sync_limiter(uri, name), calls)
        cases.append(Case("limits", "1 thread", name, calls, run))
    return cases


def async_limiter(uri: str, name: str) -> aio.RateLimiter:
    """Return a limiter with redis-py, which Waitroom uses too."""
    storage = AsyncStorage(
        f"async+redis+{uri}", implementation="redispy", max_connections=CONNECTIONS
    )
    limiter: aio.RateLimiter = getattr(aio, CLASSES[name])(storage)
    return limiter


def sync_limiter(uri: str, name: str) -> strategies.RateLimiter:
    storage = RedisStorage(f"redis+{uri}", max_connections=CONNECTIONS)
    limiter: strategies.RateLimiter = getattr(strategies, CLASSES[name])(storage)
    return limiter


async def _ask_one(store: LimitStore, calls: Iterator[Call]) -> Counts:
    return 1, (await store.acquire(next(calls))).is_allowed


async def _ask_list(store: LimitStore, calls: list[Call]) -> Counts:
    decisions: list[Any] = await store.acquire_each(calls)
    return len(calls), sum(decision.is_allowed for decision in decisions)


async def _hit(limiter: aio.RateLimiter, item: RateLimitItem, keys: Iterator[str]) -> Counts:
    return 1, await limiter.hit(item, next(keys))


async def _hit_in_pipeline(limiter: aio.RateLimiter, item: RateLimitItem, name: str) -> Counts:
    """Send the script that the library calls for each key, all in one pipeline. The library itself
    has no call for this."""
    bridge: Any = cast("AsyncStorage", limiter.storage).bridge
    pipeline = bridge.get_connection().pipeline(transaction=False)
    is_fixed = name == PAIRS["fixed_window"]
    script = bridge.lua_incr_expire if is_fixed else bridge.lua_acquire_moving_window
    for customer in KEYS["granted"]:
        key = bridge.prefixed_key(item.key_for(customer))
        args: list[float] = [item.get_expiry(), 1]
        if not is_fixed:
            args = [time.time(), item.amount, *args]
        await script([key], args, client=pipeline)
    results = await pipeline.execute()
    allowed = [result <= item.amount if is_fixed else bool(result) for result in results]
    return len(allowed), sum(allowed)


async def _hit_in_a_thread(limiter: strategies.RateLimiter, calls: Calls, seconds: float) -> Counts:
    item, keys = RateLimitItemPerSecond(LIMITS[calls]), cycle(KEYS[calls])
    ends = time.perf_counter() + seconds

    def work() -> Counts:
        decisions = granted = 0
        while time.perf_counter() < ends:
            granted += limiter.hit(item, next(keys))
            decisions += 1
        return decisions, granted

    return await asyncio.to_thread(work)
