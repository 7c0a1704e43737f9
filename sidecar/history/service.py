"""How events change a visitor's stay, and the visitor's position over time."""

import math
from collections import Counter
from collections.abc import Iterable

from sidecar.history.model import UNUSED, Entry, StreamEvent


def fold(entry: Entry | None, event: StreamEvent) -> Entry | None:
    """Return a visitor's stay after one more event. An ended stay continues if the visitor returns
    with the same ticket or pass. Return None for a place in the queue whose visitor never polled.
    Such stays are not recorded, because a flood could create any number of them."""
    entry = Entry(event.visitor) if entry is None else entry
    entry.changed_ms = event.at_ms
    position = event.read_number("position")
    if position is not None:
        entry.last_position = position
    match event.kind:
        case "joined":
            _apply_join(entry, event)
        case "called":
            entry.called_ms = event.at_ms
            entry.ended_ms = entry.end_reason = None
        case "admitted":
            _apply_admission(entry, event)
        case "expired" | "left" | "released":
            entry.ended_ms = event.at_ms
            has_own_reason = event.kind == "expired" or event.why == "unseen"
            entry.end_reason = event.why if has_own_reason else event.kind
            if entry.end_reason == UNUSED and entry.admitted_ms is None:
                return None
        case "graded":
            entry.class_name = event.more.get("class", "")
            _apply_move(entry, event)
        case "operator" if event.why in {"move", "back"}:
            _apply_move(entry, event)
    return entry


def _apply_move(entry: Entry, event: StreamEvent) -> None:
    entry.queue_order = event.read_number("order")
    entry.moved_ms = event.at_ms


def _set_joined(entry: Entry, event: StreamEvent) -> None:
    """Set when the visitor first joined. The event of a new visitor has no `joined`."""
    if entry.joined_ms is None:
        joined_ms = event.read_number("joined")
        entry.joined_ms = event.at_ms if joined_ms is None else joined_ms


def _apply_join(entry: Entry, event: StreamEvent) -> None:
    if entry.queued_ms is None:
        entry.first_position = entry.last_position
    else:
        entry.returns += 1
    _set_joined(entry, event)
    entry.class_name = event.more.get("class", entry.class_name)
    entry.queue_order = event.read_number("order")
    entry.queued_ms = event.at_ms
    entry.called_ms = entry.admitted_ms = entry.ended_ms = entry.end_reason = None


def _apply_admission(entry: Entry, event: StreamEvent) -> None:
    entry.ended_ms = entry.end_reason = None
    _set_joined(entry, event)
    if event.why == "claimed" and entry.queued_ms is None:
        entry.queued_ms = entry.joined_ms  # the visitor waited, but joining was not recorded
    if entry.queue_order is None:
        entry.queue_order = event.read_number("order")
    entry.returns += event.why == "restored"
    if entry.admitted_ms is None:
        entry.admitted_ms = event.at_ms


def compute_positions(
    entry: Entry, ahead: Iterable[tuple[int, int | None]]
) -> list[tuple[int, int]]:
    """Return (at_ms, position) for each change of a visitor's position. `ahead` has the times (ms)
    between which each visitor of a lower order waited; the second is None if one still waits."""
    if entry.queued_ms is None:
        return []
    end_ms = entry.called_ms or entry.ended_ms or math.inf
    start_ms, position = entry.queued_ms, 1
    steps: Counter[int] = Counter()
    for joined_ms, gone_ms in ahead:
        if joined_ms > end_ms or (gone_ms is not None and gone_ms <= start_ms):
            continue
        if joined_ms <= start_ms:
            position += 1
        else:
            steps[joined_ms] += 1
        if gone_ms is not None and gone_ms <= end_ms:
            steps[gone_ms] -= 1
    curve = [(start_ms, position)]
    for at_ms in sorted(steps):
        if steps[at_ms]:
            position += steps[at_ms]
            curve.append((at_ms, position))
    return curve
