"""Stops asking a store that does not answer."""

import time

#: Failures in a row after which the store counts as away.
TRIES = 3
#: Where no refresher asks: between two tries of a store that is away, seconds.
PROBE_INTERVAL_S = 1.0


class Breaker:
    """Closed while the store answers. Open after TRIES failures in a row: nobody then waits
    for what will not come. One caller a second tries all the same, and the first success
    closes it.
    """

    __slots__ = ("_failures", "_interval_s", "_tried_s")

    def __init__(self, timeout_s: float = PROBE_INTERVAL_S) -> None:
        """`timeout_s`: how long a try lasts at most. One at a time: the next comes later."""
        self._interval_s = max(PROBE_INTERVAL_S, timeout_s)
        self._failures = 0
        self._tried_s = 0.0

    @property
    def is_open(self) -> bool:
        return self._failures >= TRIES

    @property
    def refuses(self) -> bool:
        """Whether it is open, and somebody tried in this second, or still does."""
        return self.is_open and time.monotonic() < self._tried_s + self._interval_s

    def tries(self) -> None:
        """A call is on its way."""
        self._tried_s = time.monotonic()

    def failed(self) -> None:
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
