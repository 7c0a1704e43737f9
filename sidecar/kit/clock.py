"""Estimates the current time of Redis, and formats times as ISO 8601.

All decisions use the time of Redis (its TIME command), because the clocks of replicas and browsers
may be hours off. Every reply of a script contains that time. Between replies the estimate advances
by this replica's monotonic clock."""

import time
from datetime import UTC, datetime
from functools import lru_cache

#: How far the estimate may be behind the time of Redis, in ms.
MAX_LAG_MS = 500
#: The largest difference, ms, between the clocks of two machines that is not suspicious.
_MAX_DIFFERENCE_MS = 60_000


class StoreClock:
    """An estimate of the time of Redis, ms since 1970. Before the first reply of Redis the clock
    shows the time that the proxy sends with its requests, or else this machine's time."""

    __slots__ = ("_offset_ms", "is_doubtful", "is_known")

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000
        #: True once a reply of Redis was read.
        self.is_known = False
        #: True if no reply of Redis was read yet, and the clocks of the proxy and this machine
        #: differ. The time may then be hours off, so no visitor is admitted.
        self.is_doubtful = False

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def observe(self, store_ms: int) -> None:
        """Set the clock from a reply of Redis that was just read. The reply is half a round trip
        old, so the clock is behind by that time, and never ahead by more than a millisecond."""
        self._offset_ms = store_ms - time.monotonic() * 1000
        self.is_known, self.is_doubtful = True, False

    def set_from_proxy(self, proxy_ms: int) -> None:
        """Set the clock from the proxy's time, unless a reply of Redis has set it."""
        if not self.is_known:
            self._offset_ms = proxy_ms - time.monotonic() * 1000
            self.is_doubtful = abs(proxy_ms - time.time() * 1000) > _MAX_DIFFERENCE_MS


def iso(ms: int) -> str:
    """Convert ms since 1970 to ISO 8601, the format of times in JSON documents."""
    return f"{_format_seconds(ms // 1000)}.{ms % 1000:03}+00:00"


def iso_us(us: int) -> str:
    """Convert microseconds since 1970 to ISO 8601."""
    return f"{_format_seconds(us // 1_000_000)}.{us % 1_000_000:06}+00:00"


@lru_cache(1024)
def _format_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
