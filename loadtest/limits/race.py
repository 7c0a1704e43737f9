"""A race: how many of a crowd are let through. One call comes as a window begins, and near its end
100 racers ask all the time.

A call counts at the moment when its caller is told. The window that is examined is a little shorter
than a second, so that the answer's way back does not count.
"""

import asyncio
import random
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from unittest import mock

from limits import RateLimitItemPerSecond
from limits.aio.storage.redis import redispy
from limits.aio.strategies import RateLimiter

from loadtest.limits.cases import async_limiter
from sidecar.limits.model import Call
from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from sidecar.storage.redis.connect import connect

#: Whether a call was let through, and when by Redis' clock (µs; 0: unknown).
Outcome = tuple[bool, int]

RACERS, LIMIT, CALLERS = 100, 20, 4
#: When the racers come, seconds after a full second.
LATE_S = 0.9
LOOKED_AT_S = 0.95
REST_S = 0.002
#: How far the clocks of some callers are ahead.
AHEAD_S = 0.5

#: Belongs to the task that asks; the library takes the time from its caller.
_ahead_s: ContextVar[float] = ContextVar("_ahead_s", default=0.0)


@dataclass(frozen=True, slots=True)
class System:
    name: str
    promise: str
    #: A function for each caller, which in production is a process of its own; it takes a key.
    ask: Sequence[Callable[[str], Awaitable[Outcome]]]
    #: Checks the moments of granted calls, in µs by Redis' clock.
    is_exact: Callable[[list[int]], bool] | None = None
    #: How many callers' clocks are ahead.
    skewed: int = 0
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Race:
    name: str
    promise: str
    #: How many were let through in the worst second.
    most: int
    granted: int
    problem: str = ""


def systems(uri: str) -> list[System]:
    return [
        _ours(uri, "fixed_window", "20 in each second of the clock", _aligned),
        _ours(uri, "sliding_window", "20 in any second", _any),
        _ours(uri, "sliding_window", "20 in any second", _any, skewed=1),
        _theirs(uri, "fixed window", "20 in each second from its first call on"),
        _theirs(uri, "sliding window counter", "about 20 in any second"),
        _theirs(uri, "moving window", "20 in any second"),
        _theirs(uri, "moving window", "20 in any second", skewed=1),
    ]


async def run(system: System, seconds: float) -> Race:
    granted: list[tuple[float, int]] = []
    clock = SimpleNamespace(time=lambda: time.time() + _ahead_s.get())
    with mock.patch.object(redispy, "time", clock):
        # Open all connections before the race begins.
        await asyncio.gather(*(system.ask[n % CALLERS]("warming") for n in range(RACERS)))
        await asyncio.sleep(1 - time.time() % 1)
        await _ask(system.ask[-1], granted)
        await asyncio.sleep(LATE_S - time.time() % 1)
        ends = time.monotonic() + seconds

        async def race(number: int) -> None:
            caller = number % CALLERS
            _ahead_s.set(AHEAD_S if caller < system.skewed else 0.0)
            while time.monotonic() < ends:
                await _ask(system.ask[caller], granted)
                await asyncio.sleep(REST_S)

        await asyncio.gather(*(race(number) for number in random.sample(range(RACERS), RACERS)))
    if system.close is not None:
        await system.close()
    return _result(system, granted)


async def _ask(ask: Callable[[str], Awaitable[Outcome]], granted: list[tuple[float, int]]) -> None:
    is_granted, at_us = await ask("race")
    if is_granted:
        granted.append((time.monotonic(), at_us))


def _result(system: System, granted: list[tuple[float, int]]) -> Race:
    moments = sorted(when for when, _ in granted)
    most = max(bisect_left(moments, start + LOOKED_AT_S) - i for i, start in enumerate(moments))
    problem = ""
    if system.is_exact is not None and not system.is_exact(sorted(at_us for _, at_us in granted)):
        problem = f"{system.name}: more than {LIMIT} in a window, by the store's own moments"
    return Race(system.name, system.promise, most, len(granted), problem)


def _aligned(moments_us: list[int]) -> bool:
    windows = [at_us // 1_000_000 for at_us in moments_us]
    return max(windows.count(window) for window in set(windows)) <= LIMIT


def _any(moments_us: list[int]) -> bool:
    pairs = zip(moments_us, moments_us[LIMIT:], strict=False)
    return all(later - earlier >= 1_000_000 for earlier, later in pairs)


def _ours(
    uri: str, algorithm: str, promise: str, is_exact: Callable[[list[int]], bool], skewed: int = 0
) -> System:
    settings = LimitSettings.model_validate({"algorithm": algorithm, "limit": LIMIT, "window": 1})
    clients = [connect(uri, timeout_s=60) for _ in range(CALLERS)]
    name = f"race-{algorithm}-{skewed}"

    async def ask(store: LimitStore, key: str) -> Outcome:
        decision = await store.acquire(Call(key))
        return decision.is_allowed, decision.at_us

    async def close() -> None:
        for client in clients:
            await client.aclose()

    stores = [LimitStore(client, name, settings=settings, timeout_s=60) for client in clients]
    title = f"Waitroom, {algorithm}{_of_skewed(skewed)}"
    return System(title, promise, [partial(ask, one) for one in stores], is_exact, skewed, close)


def _theirs(uri: str, name: str, promise: str, skewed: int = 0) -> System:
    item = RateLimitItemPerSecond(LIMIT)
    name_of_run = f"{name.replace(' ', '-')}-{skewed}"

    async def ask(limiter: RateLimiter, key: str) -> Outcome:
        return await limiter.hit(item, key, name_of_run), 0

    callers = [partial(ask, async_limiter(uri, name)) for _ in range(CALLERS)]
    return System(f"limits, {name}{_of_skewed(skewed)}", promise, callers, None, skewed)


def _of_skewed(skewed: int) -> str:
    return f", {skewed} of {CALLERS} callers' clocks {AHEAD_S:g} s ahead" if skewed else ""
