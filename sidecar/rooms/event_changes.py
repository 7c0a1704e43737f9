"""Refuses those changes of a room's events that would make a lottery draw unfair."""

from collections.abc import Sequence

from sidecar.rooms.openings import RoomEvent, list_drawn_events


def find_event_change_problems(
    before: Sequence[RoomEvent], after: Sequence[RoomEvent], now_ms: int
) -> list[str]:
    """Return the reasons to refuse this change of a room's events: a draw would use another secret
    than the one whose commitment is published, or a secret that is published already. To remove an
    event, and so to cancel it, is always allowed."""
    by_name, old_keys = {event.name: event for event in after}, {event.draw_key for event in before}
    begun_events = [event for event in list_drawn_events(after) if event.begins_ms <= now_ms]
    new_events = [event for event in begun_events if event.draw_key not in old_keys]
    problems = []
    for event in list_drawn_events(before):
        changed_event = by_name.get(event.name)
        if event.begins_ms <= now_ms < event.opens_at:
            replacements = [new.name for new in new_events if new.opens_at > event.begins_ms]
            if changed_event and changed_event.prequeue_from != event.prequeue_from:
                problems.append(
                    f"events: {event.name}: its pre-queue is on: leave prequeue_from alone, or "
                    "take the event out to cancel it"
                )
            elif changed_event is None and replacements:
                problems.append(
                    f"events: {replacements[0]}: the pre-queue of {event.name} is on: leave its "
                    "name alone, or take the event out to cancel it"
                )
        elif (
            event.opens_at <= now_ms
            and changed_event is not None
            and changed_event.prequeue_from is not None
            and changed_event.draw_key == event.draw_key  # the same draw, so the same secret
            and changed_event.opens_at > event.opens_at
        ):
            problems.append(
                f"events: {event.name}: its secret is published; give the next event a name of "
                "its own"
            )
    return problems
