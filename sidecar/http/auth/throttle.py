"""Limits how often an IP address may guess tokens and passwords. After MAX_FAILURES wrong guesses
the address is refused for the rest of the minute: its tokens and passwords are not checked."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.kit.addresses import find_network

MAX_FAILURES = 10
FAILURES_S = 60
#: The maximum number of addresses with their own count. All others share one count.
MAX_ADDRESSES = 1000
_OTHERS = "others"


@dataclass(slots=True)
class _Failures:
    since_s: float
    count: int = 0


class Throttle:
    """Counts wrong tokens and passwords by IP address, on one replica. The addresses of an IPv6 /64
    network count as one, and so do all clients behind one proxy or unix socket."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self.now_s = now_s
        self._failures: dict[str, _Failures] = {}

    def refused_s(self, address: str | None) -> int:
        """Return for how many more seconds an address is refused; 0 if it is not refused."""
        if not self._failures:
            return 0
        failures = self._failures.get(self._key(address))
        if failures is None or failures.count < MAX_FAILURES or self._has_expired(failures):
            return 0
        return math.ceil(failures.since_s + FAILURES_S - self.now_s())

    def count_wrong(self, address: str | None) -> None:
        key = self._key(address)
        failures = self._failures.get(key)
        if failures is None or self._has_expired(failures):
            failures = self._failures[key] = _Failures(self.now_s())
        failures.count += 1

    def _key(self, address: str | None) -> str:
        key = find_network(address or "")
        if key in self._failures or len(self._failures) < MAX_ADDRESSES:
            return key
        self._failures = {k: v for k, v in self._failures.items() if not self._has_expired(v)}
        return key if len(self._failures) < MAX_ADDRESSES else _OTHERS

    def _has_expired(self, failures: _Failures) -> bool:
        """Return True if the minute of these failures is over, or if the clock was set back."""
        return not 0 <= self.now_s() - failures.since_s < FAILURES_S
