"""Finds out why a change of a room's events must be refused, because of a lottery draw."""

from collections.abc import Sequence

from sidecar.rooms.openings import RoomEvent, list_draws


def find_event_change_problems(
    before: Sequence[RoomEvent], after: Sequence[RoomEvent], now_ms: int
) -> list[str]:
    """Return why this change of a room's events is refused: the draw for a pre-queue would use a
    different secret from the one whose commitment is published, or a secret that is published
    already. Removing an event is always allowed, and cancels it."""
    by_name, old_keys = {event.name: event for event in after}, {event.draw_key for event in before}
    begun = [event for event in list_draws(after) if event.begins_ms <= now_ms]
    new = [event for event in begun if event.draw_key not in old_keys]
    problems = []
    for event in list_draws(before):
        changed = by_name.get(event.name)
        if event.begins_ms <= now_ms < event.opens_at:
            replacing = [other.name for other in new if other.opens_at > event.begins_ms]
            if changed is not None and changed.prequeue_from != event.prequeue_from:
                problems.append(
                    f"events: {event.name}: its pre-queue is on: leave prequeue_from alone, or "
                    "take the event out to cancel it"
                )
            elif changed is None and replacing:
                problems.append(
                    f"events: {replacing[0]}: the pre-queue of {event.name} is on: leave its name "
                    "alone, or take the event out to cancel it"
                )
        elif (
            event.opens_at <= now_ms
            and changed is not None
            and changed.prequeue_from is not None
            and changed.draw_key == event.draw_key  # the same draw, so the same secret
            and changed.opens_at > event.opens_at
        ):
            problems.append(
                f"events: {event.name}: its secret is published; give the next event a name of "
                "its own"
            )
    return problems
