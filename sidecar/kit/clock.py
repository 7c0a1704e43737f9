"""The store's clock, as this replica knows it.

All times that count are the store's (Redis TIME): replicas and browsers may have
clocks that are hours off. Every reply of a script carries the store's time; between
two replies the replica's monotonic clock carries it on.
"""

import time
from datetime import UTC, datetime
from functools import lru_cache

#: By how much our idea of the store's clock may be wrong.
LATE_MS = 500


#: As far apart as two machines' clocks may be without one of them being wrong.
_APART_MS = 60_000


class StoreClock:
    """Milliseconds since 1970 by the store's clock.

    Until the first reply was seen it is the proxy's clock, as the proxy says with its requests;
    where it does not, the machine's own.
    """

    __slots__ = ("_offset_ms", "is_doubtful", "is_known")

    def __init__(self) -> None:
        self._offset_ms = time.time() * 1000 - time.monotonic() * 1000
        #: Whether the store has ever said the time.
        self.is_known = False
        #: Whether the proxy and this machine disagree and the store has not decided: nobody is let
        #: in by a time that may be hours off.
        self.is_doubtful = False

    def now_ms(self) -> int:
        return int(time.monotonic() * 1000 + self._offset_ms)

    def observe(self, store_ms: int) -> None:
        """Learn the time from a reply that was just read.

        The reply is older than its reading by half a round trip, so this clock runs
        late by that much, never early by more than the tick of a millisecond.
        """
        self._offset_ms = store_ms - time.monotonic() * 1000
        self.is_known, self.is_doubtful = True, False

    def hear(self, proxy_ms: int) -> None:
        """The proxy's time. It counts for nothing once the store's was observed."""
        if not self.is_known:
            self._offset_ms = proxy_ms - time.monotonic() * 1000
            self.is_doubtful = abs(proxy_ms - time.time() * 1000) > _APART_MS


def iso(ms: int) -> str:
    """A time as documents write it."""
    return f"{_second(ms // 1000)}.{ms % 1000:03}+00:00"


def iso_us(us: int) -> str:
    """The same of microseconds."""
    return f"{_second(us // 1_000_000)}.{us % 1_000_000:06}+00:00"


@lru_cache(1024)
def _second(seconds: int) -> str:
    """Most times that are written within a second are of that second, or of one written before."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
