"""Detection of visitors who poll again so soon that nginx should cache the response."""

from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

#: The longest time between two polls that counts as a repetition: that of nginx's cache.
REPEAT_S = BRIEF_TTL_MS / 1000


class RecentPolls:
    """The recent polls of visitors, in two parts, so that dropping the older one costs nothing."""

    def __init__(self) -> None:
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._swapped_s = 0.0

    def is_repeated(self, visitor: str, now_s: float) -> bool:
        """Note a poll. Return whether the one before it was less than REPEAT_S ago (monotonic)."""
        if now_s - self._swapped_s >= REPEAT_S:
            self._older, self._recent, self._swapped_s = self._recent, {}, now_s
        last_s = self._recent.get(visitor) or self._older.get(visitor, -REPEAT_S)
        self._recent[visitor] = now_s
        return now_s - last_s < REPEAT_S

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)
