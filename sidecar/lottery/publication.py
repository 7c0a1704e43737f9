"""Decides which draw of a room is shown, and when its secret and its list become public."""

from collections.abc import Sequence

from sidecar.rooms.openings import RoomEvent, find_schedule, list_drawn_events

#: How long after the opening the secret is published, in ms. Until then a replica whose clock is
#: behind may still add visitors to the draw, so nobody may know the secret.
REVEAL_AFTER_MS = 3000


def is_secret_public(event: RoomEvent, now_ms: int) -> bool:
    """Return True if the secret of an event's draw may be public at this time."""
    return now_ms >= event.opens_at + REVEAL_AFTER_MS


def choose_shown_draw(events: Sequence[RoomEvent], now_ms: int) -> RoomEvent | None:
    """Return the event whose draw is shown by default. Of the events with a pre-queue this is the
    current one, else the next, else the last. Return None if no event has a pre-queue."""
    current = find_schedule(events, now_ms, is_open_between=False).event
    drawn_events = list_drawn_events(events)
    if current in drawn_events:
        return current
    future_events = (event for event in drawn_events if event.begins_ms > now_ms)
    return next(future_events, drawn_events[-1] if drawn_events else None)
