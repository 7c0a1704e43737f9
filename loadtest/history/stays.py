"""Generates histories of rooms, the same each time.

The sizes of rooms follow Zipf's law. In each room nine of ten stays begin within one hour of a day,
and the queue is served in two hours. A visitor who finds a free slot is admitted at once. Others
wait in order, and some give up or do not come when they are called. The last rush ends now in the
largest room, and up to a day ago in others.
"""

import base64
import heapq
import json
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from sidecar.history.model import Stay

DAYS = 90
DAY_MS, HOUR_MS, MINUTE_MS = 86_400_000, 3_600_000, 60_000
_ZIPF = 0.93
_RUSH, _RUSH_MS, _SERVED_MS = 0.9, HOUR_MS, 2 * HOUR_MS
_GIVES_UP, _PATIENCE_MS = 0.08, 20 * MINUTE_MS
_NO_SHOW, _CLAIM_MS = 0.03, 30_000
_SESSION_MS = 8 * MINUTE_MS
_ENDS, _END_WEIGHTS = ("session", "left", "finished"), (70, 28, 2)

#: The row of an event without its room: ms, kind, visitor, why, more (JSON).
EventRow = tuple[int, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Size:
    """A room and the number of its stays."""

    room: str
    stays: int
    #: 1 for the largest room, the hot one.
    rank: int


def sizes(total: int, rooms: int) -> list[Size]:
    """Divide `total` stays among rooms, the largest first."""
    weights = [rank**-_ZIPF for rank in range(1, rooms + 1)]
    whole = sum(weights)
    counts = [max(1, int(total * weight / whole)) for weight in weights]
    counts[0] += total - sum(counts)
    return [Size(f"room-{rank:04}", count, rank) for rank, count in enumerate(counts, 1)]


def make_stays(size: Size, now_ms: int) -> Iterator[Stay]:
    """Yield all stays of a room in the order in which they began, as of `now_ms`."""
    rng = random.Random(size.room)
    behind_ms = 0 if size.rank == 1 else rng.randrange(DAY_MS)
    queue = _Queue(rng, now_ms, gap_ms=_SERVED_MS / max(1, size.stays / DAYS * _RUSH))
    left = size.stays
    for day in range(DAYS, 0, -1):
        count = left // day
        left -= count
        ends_ms = now_ms - behind_ms - (day - 1) * DAY_MS
        ranges_ms = (_RUSH_MS if rng.random() < _RUSH else DAY_MS for _ in range(count))
        for joined_ms in sorted(ends_ms - 1 - rng.randrange(range_ms) for range_ms in ranges_ms):
            yield queue.join(joined_ms)


class _Queue:
    """A queue that calls a visitor every `gap_ms`, in order."""

    def __init__(self, rng: random.Random, now_ms: int, *, gap_ms: float) -> None:
        self._rng = rng
        self._now_ms = now_ms
        self._gap_ms = gap_ms
        self._next_ms = 0.0
        self._order = 0
        self._calls: deque[int] = deque()
        self._leaves: list[int] = []

    def join(self, joined_ms: int) -> Stay:
        self._order = max(joined_ms * 1000, self._order + 1)
        visitor = base64.urlsafe_b64encode(self._rng.randbytes(16))[:22].decode()
        stay = Stay(visitor, queue_order=self._order, joined_ms=joined_ms, changed_ms=joined_ms)
        call_ms = int(max(joined_ms, self._next_ms))
        if call_ms == joined_ms:
            self._next_ms = joined_ms + self._gap_ms
            self._admit(stay, joined_ms)
        else:
            self._wait(stay, joined_ms, call_ms)
        return stay

    def _wait(self, stay: Stay, joined_ms: int, call_ms: int) -> None:
        while self._calls and self._calls[0] <= joined_ms:
            self._calls.popleft()
        while self._leaves and self._leaves[0] <= joined_ms:
            heapq.heappop(self._leaves)
        stay.queued_ms = joined_ms
        stay.first_position = stay.last_position = len(self._calls) + len(self._leaves) + 1
        leaves_ms = joined_ms + int(self._rng.expovariate(1 / _PATIENCE_MS)) + 1
        if self._rng.random() < _GIVES_UP and leaves_ms < call_ms:
            heapq.heappush(self._leaves, leaves_ms)
            self._end(stay, leaves_ms, self._rng.choice(("left", "swept")))
            return
        self._calls.append(call_ms)
        self._next_ms = call_ms + self._gap_ms
        if call_ms > self._now_ms:
            return
        stay.called_ms = stay.changed_ms = call_ms
        stay.last_position = 1
        if self._rng.random() < _NO_SHOW:
            self._end(stay, call_ms + _CLAIM_MS, "no_show")
        elif (comes_ms := call_ms + self._rng.randrange(10_000)) <= self._now_ms:
            self._admit(stay, comes_ms)

    def _admit(self, stay: Stay, at_ms: int) -> None:
        stay.admitted_ms = stay.changed_ms = at_ms
        length_ms = int(self._rng.expovariate(1 / _SESSION_MS)) + 1000
        self._end(stay, at_ms + length_ms, self._rng.choices(_ENDS, _END_WEIGHTS)[0])

    def _end(self, stay: Stay, at_ms: int, reason: str) -> None:
        if at_ms <= self._now_ms:
            stay.ended_ms = stay.changed_ms = at_ms
            stay.end_reason = reason


def events_of(stay: Stay) -> Iterator[EventRow]:
    """Yield the events that lead to a stay."""
    joined = {"order": str(stay.queue_order), "joined": str(stay.joined_ms)}
    if stay.queued_ms is not None:
        more = {**joined, "position": str(stay.first_position)}
        yield stay.queued_ms, "joined", stay.visitor, "new", _json(more)
    if stay.called_ms is not None:
        yield stay.called_ms, "called", stay.visitor, "head", _json({"position": "1"})
    if stay.admitted_ms is not None:
        why, more = ("claimed", {}) if stay.queued_ms is not None else ("at_once", joined)
        yield stay.admitted_ms, "admitted", stay.visitor, why, _json(more)
    if (reason := stay.end_reason) is not None and stay.ended_ms is not None:
        ends = {"left": "left", "finished": "released"}
        kind, why = (ends[reason], "") if reason in ends else ("expired", reason)
        yield stay.ended_ms, kind, stay.visitor, why, "{}"


def _json(more: dict[str, str]) -> str:
    return json.dumps(more, separators=(",", ":"))
