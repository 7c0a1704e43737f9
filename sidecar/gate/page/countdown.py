"""When the page of a closed room polls again."""

from sidecar.rooms.openings import RoomEvent

#: The longest time between two polls of a closed room, seconds, because its events may change.
CLOSED_REFRESH_S = 60.0

#: The longest time over which polls at the beginning of a pre-queue are spread, ms. It is less in a
#: short pre-queue: a tenth of its duration.
_MAX_SPREAD_MS = 30_000

#: The same without a pre-queue. It is short, because the order of arrival counts.
_SPREAD_AT_OPENING_MS = 2_000


def closed_refresh_s(next_event: RoomEvent | None, now_ms: int, *, draw: float) -> float:
    """Return the time until the next poll of a closed room, seconds. The poll comes soon after the
    next event begins. `draw`, a random number in [0, 1), spreads the polls."""
    if next_event is None:
        return CLOSED_REFRESH_S
    spread_ms: float = _SPREAD_AT_OPENING_MS
    if next_event.prequeue_from is not None:
        spread_ms = min(_MAX_SPREAD_MS, (next_event.opens_at - next_event.prequeue_from) / 10)
    seconds = (next_event.begins_ms - now_ms + draw * spread_ms) / 1000
    return round(min(max(1.0, seconds), CLOSED_REFRESH_S), 3)
