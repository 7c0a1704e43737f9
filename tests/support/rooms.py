"""Names, settings and clocks for rooms of single tests."""

import itertools
import math
import time
from typing import Any

from sidecar.kit.clock import StoreClock
from sidecar.rooms.settings import RoomSettings
from sidecar.storage.redis.scripts import function_support

_numbers = itertools.count()


class RedisTime:
    """Redis' time in ms, which a test sets."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class FollowingClock(StoreClock):
    """A replica's clock that always equals Redis' time."""

    def __init__(self, turn: RedisTime) -> None:
        super().__init__()
        self._turn = turn

    def now_ms(self) -> int:
        return self._turn.now_ms

    def observe(self, store_ms: int) -> None:
        pass


def attended(settings: RoomSettings, **more: int) -> dict[str, Any]:
    """Return settings for scripts that treat no pause as an outage, since a test sets the clock."""
    return settings.for_scripts(outage_ms=10**12, **more)


def refuse_functions(redis) -> None:
    """Make a client send scripts by EVALSHA, as it does if Redis refuses functions."""
    function_support(redis).refused_until_s = math.inf


def new_room_name() -> str:
    """Create a name that no other test uses."""
    return f"t{next(_numbers)}-{time.time_ns()}"
