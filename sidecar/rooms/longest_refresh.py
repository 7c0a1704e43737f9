"""The longest refresh that visitors near the head were given and may still wait for."""

from collections import deque
from dataclasses import dataclass, field

from sidecar.visitors.model import HEARTBEAT_MAX_MS


@dataclass(slots=True)
class Refreshes:
    """The refreshes that one replica gave visitors near the head of a queue.

    After a loss the queue stands still until they could have polled twice
    (rooms/lua/parts/recovery.lua). A replica that is younger than the longest refresh cannot know
    what another one gave before. All times are in ms, by one clock.
    """

    _since_ms: int | None = None
    #: (until when the visitor polls again, refresh). Of two entries the later one has the later
    #: time and the shorter refresh.
    _advised: deque[tuple[int, int]] = field(default_factory=deque)

    def note(self, refresh_ms: int, now_ms: int) -> None:
        """Note that a visitor near the head polls again after `refresh_ms`."""
        refresh_ms = -(-refresh_ms // 1000) * 1000
        until_ms = now_ms + _due_within(refresh_ms)
        while self._advised and self._advised[-1][1] <= refresh_ms:
            self._advised.pop()
        if not self._advised or self._advised[-1][0] < until_ms:
            self._advised.append((until_ms, refresh_ms))

    def longest(self, now_ms: int) -> int | None:
        """Return the longest refresh in ms, in whole seconds; 0 if nobody waits near the head; None
        if this replica is too young to know."""
        if self._since_ms is None or now_ms < self._since_ms:  # the clock was put back
            self._since_ms = now_ms
        while self._advised and self._advised[0][0] <= now_ms:
            self._advised.popleft()
        if now_ms < self._since_ms + _due_within(HEARTBEAT_MAX_MS):
            return None
        return self._advised[0][1] if self._advised else 0


def _due_within(refresh_ms: int) -> int:
    """Return in how many ms a page has polled at the latest: 5 % late, and then the request
    itself."""
    return int(1.05 * refresh_ms) + 2_000
