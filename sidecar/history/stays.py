"""Computes a visitor's stay from events, and the visitor's position over time."""

import math
from collections import Counter
from collections.abc import Iterable

from sidecar.history.model import UNUSED, Stay, StreamEvent


def apply_event(stay: Stay | None, event: StreamEvent) -> Stay | None:
    """Return a visitor's stay after one more event. `stay` is None before the first event. An ended
    stay continues if the visitor returns with the same ticket or pass. Return None if a visitor in
    the queue never polled: a flood of requests could otherwise create any number of stays."""
    stay = Stay(event.visitor) if stay is None else stay
    stay.changed_ms = event.at_ms
    position = event.read_number("position")
    if position is not None:
        stay.last_position = position
    match event.kind:
        case "joined":
            _apply_join(stay, event)
        case "called":
            stay.called_ms = event.at_ms
            stay.ended_ms = stay.end_reason = None
        case "admitted":
            _apply_admission(stay, event)
        case "expired" | "left" | "released":
            stay.ended_ms = event.at_ms
            has_own_reason = event.kind == "expired" or event.why == "unseen"
            # If an operator ended the stay, the next event is the operator's action.
            other_reason = "finished" if event.kind == "released" else event.kind
            stay.end_reason = event.why if has_own_reason else other_reason
            if stay.end_reason == UNUSED and stay.admitted_ms is None:
                return None
        case "graded":
            stay.class_name = event.more.get("class", "")
            _apply_move(stay, event)
        case "operator" if event.why in {"move", "back"}:
            _apply_move(stay, event)
        case "operator" if event.why == "release":
            stay.end_reason = "released"
    return stay


def _apply_move(stay: Stay, event: StreamEvent) -> None:
    stay.queue_order = event.read_number("order")
    stay.moved_ms = event.at_ms


def _set_joined(stay: Stay, event: StreamEvent) -> None:
    """Set the time at which the visitor first joined: the field `joined` of the event or, if it has
    none, the event's own time."""
    if stay.joined_ms is None:
        joined_ms = event.read_number("joined")
        stay.joined_ms = event.at_ms if joined_ms is None else joined_ms


def _apply_join(stay: Stay, event: StreamEvent) -> None:
    if stay.queued_ms is None:
        stay.first_position = stay.last_position
    else:
        stay.returns += 1
    _set_joined(stay, event)
    stay.class_name = event.more.get("class", stay.class_name)
    stay.queue_order = event.read_number("order")
    stay.queued_ms = event.at_ms
    stay.called_ms = stay.admitted_ms = stay.ended_ms = stay.end_reason = None


def _apply_admission(stay: Stay, event: StreamEvent) -> None:
    stay.ended_ms = stay.end_reason = None
    _set_joined(stay, event)
    if event.why == "claimed" and stay.queued_ms is None:
        stay.queued_ms = stay.joined_ms  # the visitor waited, but joining was not recorded
    if stay.queue_order is None:
        stay.queue_order = event.read_number("order")
    stay.returns += event.why == "restored"
    if stay.admitted_ms is None:
        stay.admitted_ms = event.at_ms


def compute_positions(
    stay: Stay, waits_ahead: Iterable[tuple[int, int | None]]
) -> list[tuple[int, int]]:
    """Return (at_ms, position) for each change of a visitor's position. `waits_ahead` has (from_ms,
    to_ms) for each visitor of a lower order who waited. to_ms is None if the wait goes on."""
    if stay.queued_ms is None:
        return []
    end_ms = stay.called_ms or stay.ended_ms or math.inf
    start_ms, position = stay.queued_ms, 1
    changes: Counter[int] = Counter()  # maps a time to the change of the position
    for joined_ms, gone_ms in waits_ahead:
        if joined_ms > end_ms or (gone_ms is not None and gone_ms <= start_ms):
            continue
        if joined_ms <= start_ms:
            position += 1
        else:
            changes[joined_ms] += 1
        if gone_ms is not None and gone_ms <= end_ms:
            changes[gone_ms] -= 1
    curve = [(start_ms, position)]
    for at_ms in sorted(changes):
        if changes[at_ms]:
            position += changes[at_ms]
            curve.append((at_ms, position))
    return curve
