"""A circuit breaker, which stops calls to a Redis that does not answer."""

import time

#: Failures in a row after which Redis counts as unavailable.
TRIES = 3
#: Seconds between two probes of an unavailable Redis.
PROBE_INTERVAL_S = 1.0


class Breaker:
    """A circuit breaker, which is closed while Redis answers, and opens after TRIES failures in a
    row. It then lets one call a second through as a probe. The first success closes it."""

    __slots__ = ("_failures", "_interval_s", "_tried_s")

    def __init__(self, timeout_s: float = PROBE_INTERVAL_S) -> None:
        """Create a closed breaker. `timeout_s` is the time limit of a probe: for as long as a probe
        may be in flight, no second probe is sent."""
        self._interval_s = max(PROBE_INTERVAL_S, timeout_s)
        self._failures = 0
        self._tried_s = 0.0

    @property
    def is_open(self) -> bool:
        return self._failures >= TRIES

    @property
    def is_refusing(self) -> bool:
        """Return True if a call must not be sent now: the breaker is open, and the last probe began
        less than a second ago or may still be in flight."""
        return self.is_open and time.monotonic() < self._tried_s + self._interval_s

    def record_attempt(self) -> None:
        self._tried_s = time.monotonic()

    def record_failure(self) -> None:
        self._failures += 1

    def record_success(self) -> None:
        self._failures = 0
