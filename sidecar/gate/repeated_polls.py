"""Visitors who poll again within a moment: only then is a response worth keeping in nginx."""

from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

#: nginx keeps a response to a poll for no longer than this.
MOMENT_S = BRIEF_TTL_MS / 1000


class Repeats:
    """Remembers visitors for a moment, in two halves, so that forgetting costs nothing."""

    def __init__(self) -> None:
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._since_s = 0.0

    def is_repeated(self, visitor: str, now_s: float) -> bool:
        """Return whether the visitor polled a moment ago. `now_s`: of a monotonic clock."""
        if now_s - self._since_s >= MOMENT_S:
            self._older, self._recent, self._since_s = self._recent, {}, now_s
        last_s = self._recent.get(visitor) or self._older.get(visitor, -MOMENT_S)
        self._recent[visitor] = now_s
        return now_s - last_s < MOMENT_S

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)
