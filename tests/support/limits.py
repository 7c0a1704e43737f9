"""Rate limits for tests, and a clock for them."""

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
S = 1_000_000
#: The start of a minute, and of each window whose length divides a minute.
BEGIN = 1_800_000_000 * S


class RedisTimeUs:
    """Redis' time in µs, which a test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return self.now


def make_limit(redis, clock, algorithm, *, name=None, **settings) -> LimitStore:
    """Create the store of a limit whose windows or leases last a minute."""
    length = "lease" if algorithm == "concurrency" else "window"
    rule = LimitSettings(algorithm=algorithm, **{length: 60, **settings})
    return LimitStore(redis, name or new_room_name(), settings=rule, now_us=clock, timeout_s=5)


async def keys_of(store) -> dict[str, int]:
    """Return the time to live in ms of each key of a limit, by the key's suffix."""
    pattern = f"waitroom:{{limit:{store._name}}}:*"
    names = [name async for name in store._redis.scan_iter(pattern, count=1000)]
    return {name.decode().partition("}:")[2]: await store._redis.pttl(name) for name in names}


def check_promise(algorithm, went, limit):
    """Check granted calls (timestamp, cost) against a limit per second.

    A fixed window is an aligned second, a sliding window any second. Buckets are checked by their
    bursts and spacing.
    """
    went = sorted(went)
    if algorithm == "leaky_bucket":
        assert all((b - a) * limit >= cost * S for (a, cost), (b, _) in pairwise(went))
        return
    for n, (began, _) in enumerate(went):
        begins = began - began % S if algorithm == "fixed_window" else began
        total = 0
        for moment, cost in went[n:]:
            total += cost
            if algorithm == "token_bucket":
                assert (total - limit) * S <= limit * (moment - began)
            else:
                assert moment >= begins + S or total <= limit
