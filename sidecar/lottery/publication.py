"""Which draw of a room is shown, and from when on its secret and its list are public."""

from collections.abc import Sequence

from sidecar.rooms.openings import RoomEvent, find_moments, list_draws

#: How long after the opening the secret is published, in ms. Until then a replica whose clock is
#: slow may still add visitors to the draw, so nobody may know the secret.
REVEAL_AFTER_MS = 3000


def is_revealed(event: RoomEvent, now_ms: int) -> bool:
    """Return True if the secret of an event's draw may be public at this time."""
    return now_ms >= event.opens_at + REVEAL_AFTER_MS


def choose_shown_draw(events: Sequence[RoomEvent], now_ms: int) -> RoomEvent | None:
    """Return the event whose draw is shown by default. Of the events with a pre-queue this is the
    current one, else the next, else the last. Return None if no event has a pre-queue."""
    current, draws = find_moments(events, now_ms, is_open_between=False).event, list_draws(events)
    if current in draws:
        return current
    coming = (event for event in draws if event.begins_ms > now_ms)
    return next(coming, draws[-1] if draws else None)
