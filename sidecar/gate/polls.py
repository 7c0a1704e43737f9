"""Computes when a visitor has to poll next, refuses too many polls, and detects repeated ones."""

import math
import random

from aiohttp import web

from sidecar.http.problems import STORE_RETRY_S, problem
from sidecar.rooms.openings import RoomEvent, Schedule
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import DEFAULT_REFRESH_MS, Phase, Standing, VisitorState
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS

#: The longest interval between polls of a closed room, in seconds. Its events may change meanwhile.
CLOSED_ROOM_INTERVAL_S = 60.0
#: The longest time over which polls at the beginning of a pre-queue are spread, in ms. In a short
#: pre-queue, the polls are spread over a tenth of its duration.
_MAX_SPREAD_MS = 30_000
#: The time over which polls at an opening without a pre-queue are spread, in ms. It is short,
#: because the order of joining counts.
_SPREAD_AT_OPENING_MS = 2_000
#: nginx may cache the response to a poll that follows the visitor's last poll within this time.
REPEAT_S = BRIEF_TTL_MS / 1000


def compute_interval_s(
    state: VisitorState, standing: Standing | None, schedule: Schedule, now_ms: int
) -> float:
    """Return the seconds until a visitor's next poll. `state` is the one shown to the visitor."""
    if schedule.phase is Phase.CLOSED and state is VisitorState.CLOSED:
        spread = random.random()  # noqa: S311 - only spreads requests
        return compute_closed_interval_s(schedule.next_event, now_ms, spread=spread)
    return ((standing and standing.refresh_ms) or DEFAULT_REFRESH_MS) / 1000


def compute_closed_interval_s(next_event: RoomEvent | None, now_ms: int, *, spread: float) -> float:
    """Return the seconds until the next poll of a closed room. The poll comes soon after the next
    event begins. `spread`, a random number in [0, 1), spreads the polls of all visitors."""
    if next_event is None:
        return CLOSED_ROOM_INTERVAL_S
    longest_ms: float = _SPREAD_AT_OPENING_MS
    if next_event.prequeue_from is not None:
        longest_ms = min(_MAX_SPREAD_MS, (next_event.opens_at - next_event.prequeue_from) / 10)
    seconds = (next_event.begins_ms - now_ms + spread * longest_ms) / 1000
    return round(min(max(1.0, seconds), CLOSED_ROOM_INTERVAL_S), 3)


def refuse_poll(answer: Answer) -> web.Response | None:
    """Return the response to a visitor who polls too often, or whose place is unknown while Redis
    is unavailable. Return None if the poll is not refused."""
    if answer.store_unavailable and answer.joined_ms is None:
        return problem(503, "The store does not answer", retry_after=STORE_RETRY_S)
    limited_ms = answer.standing.limited_ms if answer.standing else 0
    if not limited_ms or answer.state is not VisitorState.WAITING:
        return None
    detail = "Your place is kept. Ask again after Retry-After seconds."
    retry_after = math.ceil(limited_ms / 1000)
    return problem(429, "Too many polls", detail=detail, retry_after=retry_after)


class RecentPolls:
    """Stores when visitors polled last, in two parts, so that old polls are dropped all at once."""

    def __init__(self) -> None:
        #: The times of the last polls in seconds, by visitor.
        self._new_polls: dict[str, float] = {}
        self._old_polls: dict[str, float] = {}
        self._swapped_s = 0.0

    def is_repeated(self, visitor: str, now_s: float) -> bool:
        """Record a poll. Return True if the visitor's previous poll was less than REPEAT_S ago."""
        if now_s - self._swapped_s >= REPEAT_S:
            self._old_polls, self._new_polls, self._swapped_s = self._new_polls, {}, now_s
        last_s = self._new_polls.get(visitor) or self._old_polls.get(visitor, -REPEAT_S)
        self._new_polls[visitor] = now_s
        return now_s - last_s < REPEAT_S


RECENT_POLLS = web.AppKey("recent_polls", RecentPolls)
