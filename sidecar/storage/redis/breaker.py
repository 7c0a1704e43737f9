"""A circuit breaker: stops calls to a Redis that does not answer."""

import time

#: Failures in a row after which Redis counts as unavailable.
TRIES = 3
#: Seconds between two tries of an unavailable Redis.
PROBE_INTERVAL_S = 1.0


class Breaker:
    """A circuit breaker. It is closed while Redis answers, and opens after TRIES failures in a row.
    One caller a second then tries all the same, and the first success closes it."""

    __slots__ = ("_failures", "_interval_s", "_tried_s")

    def __init__(self, timeout_s: float = PROBE_INTERVAL_S) -> None:
        """`timeout_s` is how long a try lasts at most. There is one try at a time."""
        self._interval_s = max(PROBE_INTERVAL_S, timeout_s)
        self._failures = 0
        self._tried_s = 0.0

    @property
    def is_open(self) -> bool:
        return self._failures >= TRIES

    @property
    def refuses(self) -> bool:
        """Whether it is open, and a try is on its way or ended within this second."""
        return self.is_open and time.monotonic() < self._tried_s + self._interval_s

    def tries(self) -> None:
        """Note that a call is sent."""
        self._tried_s = time.monotonic()

    def failed(self) -> None:
        self._failures += 1

    def succeeded(self) -> None:
        self._failures = 0
