"""Rate limits for tests, and their clock."""

from itertools import pairwise

from sidecar.limits.settings import LimitSettings
from sidecar.limits.store import LimitStore
from tests.support.rooms import new_room_name

WINDOWS = ["fixed_window", "sliding_window", "token_bucket", "leaky_bucket"]
ALL = [*WINDOWS, "concurrency"]
#: Algorithms that grant several calls at one moment.
BURSTS = ["fixed_window", "sliding_window", "token_bucket", "concurrency"]
#: Each algorithm with each on_exceed that it supports.
MODES = [*((name, "refuse") for name in ALL), *((name, "pace") for name in WINDOWS)]
S = 1_000_000
#: The beginning of a minute, and of every window that divides it.
BEGIN = 1_800_000_000 * S


class RedisTimeUs:
    """Redis' time, µs, which a test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> int:
        return self.now


def make_limit(redis, clock, algorithm, *, name=None, **settings) -> LimitStore:
    """Create the store of a rule with windows, or leases, of a minute."""
    length = "lease" if algorithm == "concurrency" else "window"
    rule = LimitSettings(algorithm=algorithm, **{length: 60, **settings})
    return LimitStore(redis, name or new_room_name(), settings=rule, now_us=clock, timeout_s=5)


async def keys_of(store) -> dict[str, int]:
    """Return the suffixes of a rule's keys, with their time to live, ms."""
    pattern = f"waitroom:{{limit:{store._name}}}:*"
    names = [name async for name in store._redis.scan_iter(pattern, count=1000)]
    return {name.decode().partition("}:")[2]: await store._redis.pttl(name) for name in names}


def check_promise(algorithm, went, limit):
    """Check granted calls (moment, cost) against a limit per second: fixed windows in each aligned
    second, sliding ones in any; buckets by their burst and spacing."""
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
