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
    """A fake of Redis' time in ms, which a test sets. The store calls it for the time."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def forward(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class FollowingClock(StoreClock):
    """A replica's clock that always equals the fake of Redis' time."""

    def __init__(self, redis_time: RedisTime) -> None:
        super().__init__()
        self._redis_time = redis_time

    def now_ms(self) -> int:
        return self._redis_time.now_ms

    def observe(self, store_ms: int) -> None:
        pass


def without_outages(settings: RoomSettings, **more: int) -> dict[str, Any]:
    """Return a room's settings for its scripts, with an outage threshold that no test reaches.

    Otherwise a test that forwards the clock would look like an outage of Redis.
    """
    return settings.get_script_settings(outage_ms=10**12, **more)


def refuse_functions(redis) -> None:
    """Make a client send scripts by EVALSHA, as it does if the server has no Redis Functions."""
    function_support(redis).refused_until_s = math.inf


def new_room_name() -> str:
    """Create a room name that no other test uses."""
    return f"t{next(_numbers)}-{time.time_ns()}"
