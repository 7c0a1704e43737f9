"""Finds the longest refresh (poll interval) among the visitors near the head of a queue."""

from collections import deque
from dataclasses import dataclass, field

from sidecar.visitors.model import HEARTBEAT_MAX_MS


@dataclass(slots=True)
class Refreshes:
    """The refreshes that one replica sent to visitors near the head of a queue.

    After Redis lost its data, nobody is called until these visitors had time to poll twice
    (rooms/lua/parts/recovery.lua). A replica that has run for less than the longest refresh cannot
    know the refreshes that other replicas sent earlier. All times are by the clock of Redis."""

    _since_ms: int | None = None
    #: Pairs of the time in ms by which a visitor polls again, and the refresh in ms. Each pair has
    #: a later time and a shorter refresh than the previous pair.
    _refreshes: deque[tuple[int, int]] = field(default_factory=deque)

    def record(self, refresh_ms: int, now_ms: int) -> None:
        """Record that a visitor near the head was asked to poll again after `refresh_ms`."""
        refresh_ms = -(-refresh_ms // 1000) * 1000
        until_ms = now_ms + _compute_latest_poll_ms(refresh_ms)
        while self._refreshes and self._refreshes[-1][1] <= refresh_ms:
            self._refreshes.pop()
        if not self._refreshes or self._refreshes[-1][0] < until_ms:
            self._refreshes.append((until_ms, refresh_ms))

    def find_longest(self, now_ms: int) -> int | None:
        """Return the longest refresh in ms, rounded up to seconds. Return 0 if nobody waits near
        the head, and None if this replica has not run long enough to know."""
        if self._since_ms is None or now_ms < self._since_ms:  # the clock was set back
            self._since_ms = now_ms
        while self._refreshes and self._refreshes[0][0] <= now_ms:
            self._refreshes.popleft()
        if now_ms < self._since_ms + _compute_latest_poll_ms(HEARTBEAT_MAX_MS):
            return None
        return self._refreshes[0][1] if self._refreshes else 0


def _compute_latest_poll_ms(refresh_ms: int) -> int:
    """Return the longest time until the next poll, in ms: timers may be 5 % late, requests 2 s."""
    return int(1.05 * refresh_ms) + 2_000
