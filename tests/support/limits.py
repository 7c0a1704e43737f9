"""Creates rate limits for tests, with a clock that a test sets, and checks what they grant."""

from itertools import pairwise

from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from tests.support.rooms import new_room_name

WINDOWS = ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket"]
ALL = [*WINDOWS, "concurrency"]
#: Algorithms that can grant several calls at the same time.
BURSTS = ["fixed_window", "sliding_window", "token_bucket", "concurrency"]
#: Each algorithm with each value of on_exceed that it supports.
MODES = [*((name, "refuse") for name in ALL), *((name, "pace") for name in WINDOWS)]
#: One second in µs.
S = 1_000_000
#: The start of a minute, and so of every window whose length divides a minute, µs since 1970.
BEGIN = 1_800_000_000 * S


class RedisTimeUs:
    """A fake of Redis' time in µs, which a test sets. The store calls it for the time."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return self.now


def make_limit(redis, clock, algorithm, *, name=None, **settings) -> LimitStore:
    """Create the store of a limit, with a window or lease of a minute unless `settings` differ."""
    length = "lease" if algorithm == "concurrency" else "window"
    rule = LimitSettings(algorithm=algorithm, **{length: 60, **settings})
    return LimitStore(redis, name or new_room_name(), settings=rule, now_us=clock, timeout_s=5)


async def key_ttls_ms(store) -> dict[str, int]:
    """Return the time to live in ms of each Redis key of a limit, by the key's suffix."""
    pattern = f"waitroom:{{limit:{store._name}}}:*"
    names = [name async for name in store._redis.scan_iter(pattern, count=1000)]
    return {name.decode().partition("}:")[2]: await store._redis.pttl(name) for name in names}


def check_granted_rate(algorithm, granted, limit):
    """Check that granted calls, which are pairs of timestamp and cost, obey a limit per second.

    For a fixed window, that is each second of the clock. For a sliding window, it is every interval
    of one second. A token bucket must not exceed its burst, and a leaky bucket must keep intervals.
    """
    granted = sorted(granted)
    if algorithm == "leaky_bucket":
        assert all((b - a) * limit >= cost * S for (a, cost), (b, _) in pairwise(granted))
        return
    for n, (began, _) in enumerate(granted):
        begins = began - began % S if algorithm == "fixed_window" else began
        total = 0
        for moment, cost in granted[n:]:
            total += cost
            if algorithm == "token_bucket":
                assert (total - limit) * S <= limit * (moment - began)
            else:
                assert moment >= begins + S or total <= limit
