"""The cases: ways to have decisions made about one of two kinds of calls.

* `granted`: 1,000 keys in turn, none near its limit.
* `refused`: one key far over its limit.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from typing import Any, Literal, TypeAlias, cast

from limits import RateLimitItem, RateLimitItemPerSecond, strategies
from limits.aio import strategies as aio
from limits.aio.storage import RedisStorage as AsyncStorage
from limits.storage import RedisStorage
from redis.asyncio import Redis

from loadtest.report import count
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
#: How many tasks ask at the same time. Waitroom and the library are compared at each number.
TASKS = (1, 64, 256)
#: The calls in one list, and the lists that are asked at the same time.
LIST, LISTS = 1000, 4
#: The algorithms that both have, by Waitroom's name and by the library's.
PAIRS = {"fixed_window": "fixed window", "sliding_window": "moving window"}
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
