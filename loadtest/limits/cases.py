"""The cases: ways to have decisions made about one of two kinds of calls.

* `granted`: 1,000 keys in turn, none near its limit.
* `refused`: one key far over its limit.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal, TypeAlias

from limits import RateLimitItemPerSecond, strategies
from limits.aio import strategies as aio
from limits.aio.storage import RedisStorage as AsyncStorage
from limits.storage import RedisStorage
from redis.asyncio import Redis

from sidecar.limits.model import Call
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore

Calls: TypeAlias = Literal["granted", "refused"]
#: Numbers of decisions, and of those that let a call through.
Counts: TypeAlias = tuple[int, int]
Asking: TypeAlias = "Callable[[], Awaitable[Counts]]"

ALGORITHMS = ("fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "concurrency")
KEYS: dict[Calls, list[str]] = {
    "granted": [f"customer-{n}" for n in range(1000)],
    "refused": ["bank"],
}
#: Calls per key and second.
LIMITS = {"granted": 100_000, "refused": 20}
#: Tasks that ask at the same time, and calls in one list.
TASKS, LIST, LISTS = 256, 1000, 4
#: The library's connections at most: each call that is under way has one.
CONNECTIONS = 512

#: Classes of the library by its names for the algorithms.
CLASSES = {
    "fixed window": "FixedWindowRateLimiter",
    "moving window": "MovingWindowRateLimiter",
    "sliding window counter": "SlidingWindowCounterRateLimiter",
}


@dataclass(frozen=True, slots=True)
class Case:
    system: Literal["Waitroom", "limits"]
    #: The way to ask the system, and the system's name for the algorithm.
    way: str
    algorithm: str
    calls: Calls
    run: Callable[[float], Awaitable[Counts]]
    #: Processes other than Redis and this one that take part.
    pids: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.system}, {self.way}: {self.algorithm}"


async def keep_asking(ask: Asking, tasks: int, seconds: float) -> Counts:
    """Let `tasks` tasks ask, each again as soon as it is answered."""
    ends = time.perf_counter() + seconds
    counts = [0, 0]

    async def work() -> None:
        while time.perf_counter() < ends:
            decisions, granted = await ask()
            counts[0] += decisions
            counts[1] += granted

    await asyncio.gather(*(work() for _ in range(tasks)))
    return counts[0], counts[1]


def settings(algorithm: str, calls: Calls, on_exceed: str = "refuse") -> LimitSettings:
    values = {"algorithm": algorithm, "limit": LIMITS[calls], "on_exceed": on_exceed}
    values |= {"lease": 1} if algorithm == "concurrency" else {"window": 1}
    return LimitSettings.model_validate(values)


def of_store(redis: Redis, calls: Calls) -> list[Case]:
    """Return cases that ask LimitStore, as a replica does."""
    cases = []
    for algorithm in ALGORITHMS:
        store = LimitStore(redis, "bench", settings=settings(algorithm, calls), timeout_s=60)
        ask = _single(store, calls)
        cases.append(Case("Waitroom", f"{TASKS} tasks", algorithm, calls, _for(ask, TASKS)))
        if calls == "granted":
            ask = _list(store)
            cases.append(Case("Waitroom", f"lists of {LIST:,}", algorithm, calls, _for(ask, LISTS)))
    if calls == "granted":
        paced = settings("sliding_window", calls, "pace")
        ask = _single(LimitStore(redis, "bench", settings=paced, timeout_s=60), calls)
        name = "sliding_window, pace"
        cases.append(Case("Waitroom", f"{TASKS} tasks", name, calls, _for(ask, TASKS)))
    return cases


def of_library(uri: str, calls: Calls, *, tasks: int, threads: int) -> list[Case]:
    cases = []
    for name in CLASSES:
        ask = _hit(async_limiter(uri, name), calls)
        way = f"async, {tasks} tasks"
        cases.append(Case("limits", way, name, calls, _for(ask, tasks)))
    for name in CLASSES:
        way = f"{threads} thread{'s' * (threads != 1)}"
        run = _threads(sync_limiter(uri, name), calls, threads)
        cases.append(Case("limits", way, name, calls, run))
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


def _for(ask: Asking, tasks: int) -> Callable[[float], Awaitable[Counts]]:
    return lambda seconds: keep_asking(ask, tasks, seconds)


def _single(store: LimitStore, calls: Calls) -> Asking:
    asks = cycle([Call(key) for key in KEYS[calls]])

    async def ask() -> Counts:
        return 1, (await store.acquire(next(asks))).is_allowed

    return ask


def _list(store: LimitStore) -> Asking:
    asks = [Call(key) for key in KEYS["granted"]]
    assert len(asks) == LIST

    async def ask() -> Counts:
        decisions: list[Any] = await store.acquire_each(asks)
        return LIST, sum(decision.is_allowed for decision in decisions)

    return ask


def _hit(limiter: aio.RateLimiter, calls: Calls) -> Asking:
    item, keys = RateLimitItemPerSecond(LIMITS[calls]), cycle(KEYS[calls])

    async def ask() -> Counts:
        return 1, await limiter.hit(item, next(keys))

    return ask


def _threads(
    limiter: strategies.RateLimiter, calls: Calls, threads: int
) -> Callable[[float], Awaitable[Counts]]:
    item, keys = RateLimitItemPerSecond(LIMITS[calls]), cycle(KEYS[calls])

    async def run(seconds: float) -> Counts:
        ends = time.perf_counter() + seconds
        counts: list[Counts] = []

        def work() -> None:
            decisions = granted = 0
            while time.perf_counter() < ends:
                granted += limiter.hit(item, next(keys))
                decisions += 1
            counts.append((decisions, granted))

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            await asyncio.to_thread(worker.join)
        return sum(decisions for decisions, _ in counts), sum(granted for _, granted in counts)

    return run
