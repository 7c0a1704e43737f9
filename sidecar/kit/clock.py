"""The clock of Redis, estimated by this replica, and times in ISO 8601.

All decisions use the store's time (Redis TIME), because clocks of replicas and browsers may be
hours off. Every reply of a script has the store's time. Between replies the estimate advances by
this replica's monotonic clock."""

import time
from datetime import UTC, datetime
from functools import lru_cache

#: The largest error of the estimate, ms.
LATE_MS = 500
#: The largest difference, ms, between the clocks of two machines that count as equal.
_MAX_DIFFERENCE_MS = 60_000


class StoreClock:
    """The store's time, ms since 1970. Before the first reply the clock shows the time that the
    proxy sends with requests, or this machine's time if the proxy sends none."""

    __slots__ = ("_offset_ms", "is_doubtful", "is_known")

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000
        #: True once a reply of the store was read.
        self.is_known = False
        #: True if, before any reply, the clocks of proxy and machine differ. The time may then be
        #: hours off, so nobody is admitted.
        self.is_doubtful = False

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def observe(self, store_ms: int) -> None:
        """Set the clock from a reply that was just read. The reply is half a round trip old, so the
        clock is late by that time. The clock is never early by more than a millisecond."""
        self._offset_ms = store_ms - time.monotonic() * 1000
        self.is_known, self.is_doubtful = True, False

    def set_from_proxy(self, proxy_ms: int) -> None:
        """Set the clock from the proxy's time, unless a reply of the store has set it."""
        if not self.is_known:
            self._offset_ms = proxy_ms - time.monotonic() * 1000
            self.is_doubtful = abs(proxy_ms - time.time() * 1000) > _MAX_DIFFERENCE_MS


def iso(ms: int) -> str:
    """Convert a time, ms since 1970, to ISO 8601, the format of times in JSON documents."""
    return f"{_iso_second(ms // 1000)}.{ms % 1000:03}+00:00"


def iso_us(us: int) -> str:
    """Convert a time, microseconds since 1970, to ISO 8601."""
    return f"{_iso_second(us // 1_000_000)}.{us % 1_000_000:06}+00:00"


@lru_cache(1024)
def _iso_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
