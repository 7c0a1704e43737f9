"""Delays before the next try: exponential back-off, and Retry-After."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

#: The most failures that lengthen a delay, so that a float holds the product.
_MOST = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off: `first_s`, then `factor` times as long after each failure, up to
    `max_s`. `jitter`: the share by which a delay may be shorter, so that clients that failed
    together do not all retry together."""

    first_s: float
    max_s: float
    factor: float = 2.0
    jitter: float = 0.0

    def delay_s(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Return the delay after `failures` in a row, from 1. `draw` returns a number from 0 to
        1."""
        delay_s = self.first_s * self.factor ** min(max(0, failures - 1), _MOST)
        return min(self.max_s, delay_s) * (1 - self.jitter * draw())


@dataclass(frozen=True, slots=True)
class Schedule:
    """A limit of tries in all, and the backoff between them."""

    tries: int
    backoff: Backoff

    def pause_s(self, tried: int, after_s: float = 0) -> float | None:
        """Return the pause after `tried` tries, `after_s` at least. None: no try is left."""
        return None if tried >= self.tries else max(after_s, self.backoff.delay_s(tried))


def seconds_in(retry_after: str, now_s: float) -> float:
    """Return the seconds that a Retry-After (seconds or a date) asks for; 0 if it is neither."""
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now_s)
