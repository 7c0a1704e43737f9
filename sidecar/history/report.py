"""What a report counts, from the stays in the database."""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sidecar.history.model import UNUSED, Entry
from sidecar.visitors.model import ORDER_BAND

#: The end reasons of visitors who gave up waiting, and of those who were called and did not come.
GAVE_UP = frozenset({"left", "silent", "swept"})

NO_SHOW = "no_show"


class Tally:
    """Counts of stays, which are added in any order. Needs some 250 bytes for each stay."""

    def __init__(self) -> None:
        #: Keyed by the members of a report.
        self.counts: Counter[str] = Counter()
        self.queued = 0
        #: In ms: the waits until admission and until giving up, and the lengths of sessions.
        self.waits, self.patience, self.stays = array("q"), array("q"), array("q")
        #: The calls as inversions() takes them.
        self.calls: list[tuple[int, int, int]] = []

    def add(self, entry: Entry) -> None:
        counts = self.counts
        counts["stays"] += 1
        counts["moved"] += entry.moved_ms is not None
        began_ms = entry.joined_ms or entry.queued_ms or 0
        has_queued = entry.queued_ms is not None
        self.queued += has_queued
        if entry.admitted_ms is not None:
            counts["admitted_after_wait" if has_queued else "admitted_at_once"] += 1
            if has_queued:
                self.waits.append(entry.admitted_ms - began_ms)
            if entry.ended_ms is None:
                counts["inside"] += 1
            elif entry.end_reason != UNUSED:
                self.stays.append(entry.ended_ms - entry.admitted_ms)
        elif entry.end_reason in GAVE_UP:
            counts["abandoned"] += 1
            self.patience.append((entry.ended_ms or 0) - began_ms)
        elif entry.end_reason == NO_SHOW:
            counts["no_shows"] += 1
        elif entry.ended_ms is None:
            counts["waiting"] += 1
        if entry.end_reason in {"released", "reset", "stuck"}:
            counts[entry.end_reason] += 1
        is_plain = has_queued and entry.moved_ms is None and entry.returns == 0
        if is_plain and entry.called_ms is not None and entry.queue_order is not None:
            self.calls.append((entry.called_ms, entry.queue_order, entry.queued_ms or 0))

    def figures(self) -> dict[str, Any]:
        """Return the members of a report. Counts of 0 are left out."""
        waits = seconds(self.waits, (0.5, 0.9, 0.99, 1.0))
        inside = seconds(self.stays, (0.5, 0.9))
        return {
            **self.counts,
            "abandonment": self._share("abandoned"),
            "no_show_share": self._share("no_shows"),
            **dict(zip(("wait_p50", "wait_p90", "wait_p99", "wait_max"), waits, strict=True)),
            "gave_up_after_p50": seconds(self.patience, (0.5,))[0],
            **dict(zip(("inside_p50", "inside_p90"), inside, strict=True)),
            "inversions": self._inversions(),
        }

    def _share(self, name: str) -> float | None:
        return round(self.counts[name] / self.queued, 4) if self.queued else None

    def _inversions(self) -> int:
        """Count inversions per sub-queue, because sub-queues are called side by side."""
        queues: dict[int, list[tuple[int, int, int]]] = {}
        for call in self.calls:
            queues.setdefault(call[1] // ORDER_BAND, []).append(call)
        return sum(map(inversions, queues.values()))


def seconds(values_ms: Sequence[int], shares: Sequence[float]) -> list[float | None]:
    """Return percentiles of values in ms (nearest rank), in seconds."""
    if not values_ms:
        return [None] * len(shares)
    ranked = sorted(values_ms)
    ranks = (max(0, math.ceil(share * len(ranked)) - 1) for share in shares)
    return [ranked[rank] / 1000 for rank in ranks]


def inversions(calls: list[tuple[int, int, int]]) -> int:
    """Count the visitors who were called later than a visitor of a higher order, while both waited.

    A call is (called_ms, order, queued_ms). Calls in the same millisecond count as in order."""
    calls.sort()
    times = [called_ms for called_ms, _, _ in calls]
    size = len(calls)
    tree = [0] * size + [order for _, order, _ in calls]  # a segment tree of maxima
    for i in range(size - 1, 0, -1):
        tree[i] = max(tree[2 * i], tree[2 * i + 1])
    return sum(
        _highest(tree, bisect_right(times, queued_ms), bisect_left(times, called_ms)) > order
        for called_ms, order, queued_ms in calls
    )


def _highest(tree: list[int], start: int, end: int) -> float:
    """Return the highest order of the calls from index `start` to before `end`."""
    highest = -math.inf
    size = len(tree) // 2
    start, end = start + size, end + size
    while start < end:
        if start & 1:
            highest = max(highest, tree[start])
            start += 1
        if end & 1:
            end -= 1
            highest = max(highest, tree[end])
        start, end = start // 2, end // 2
    return highest
