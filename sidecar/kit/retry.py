"""Computes the delay before the next attempt, from exponential back-off or Retry-After."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

#: The number of failures after which a delay stays the same, because a float would overflow.
_MAX_COUNTED_FAILURES = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: the first delay is `first_s`. Each further failure makes the delay
    `factor` times as long, up to `max_s`. A random part of the delay, up to the share `jitter` (0
    to 1), is left out, so that clients that failed together do not all retry together."""

    first_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay_s(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Return the delay after this number (from 1) of failures in a row. `draw` returns a random
        number from 0 to 1."""
        delay_s = self.first_s * self.factor ** min(max(0, failures - 1), _MAX_COUNTED_FAILURES)
        return min(self.max_s, delay_s) * (1 - self.jitter * draw())


@dataclass(frozen=True, slots=True)
class Schedule:
    """The maximum number of attempts, and the back-off between them."""

    attempts: int
    backoff: Backoff

    def pause_s(self, count: int, after_s: float = 0) -> float | None:
        """Return the delay after `count` attempts, at least `after_s`; None after the last one."""
        return None if count >= self.attempts else max(after_s, self.backoff.delay_s(count))


def parse_retry_after(retry_after: str, now_s: float) -> float:
    """Return the seconds that a Retry-After header (seconds or a date) asks for; 0 if malformed."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
