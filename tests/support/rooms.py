"""Rooms for single tests: names, settings and clocks."""

import itertools
import math
import time
from typing import Any

from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.storage.redis.scripts import function_support

_numbers = itertools.count()


class RedisTime:
    """Redis' time, which a test sets."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class FollowingClock(StoreClock):
    """A replica's clock that is always equal to Redis' time."""

    def __init__(self, turn: RedisTime) -> None:
        super().__init__()
        self._turn = turn

    def now_ms(self) -> int:
        return self._turn.now_ms

    def observe(self, store_ms: int) -> None:
        pass


def attended(settings: RoomSettings, **more: int) -> dict[str, Any]:
    """Return settings for scripts in which no pause is an outage, for a clock that a test sets."""
    return settings.for_scripts(outage_ms=10**12, **more)


def refuse_functions(redis) -> None:
    """Make a client send scripts by EVALSHA, as to a Redis that refuses functions."""
    function_support(redis).refused_until_s = math.inf


def new_room_name() -> str:
    return f"t{next(_numbers)}-{time.time_ns()}"
