"""Rules without I/O: how events change stays, and what a report counts."""

import math
from collections.abc import Iterable

from sidecar.history.model import UNUSED, Entry, Event


def fold(entry: Entry | None, event: Event) -> Entry | None:
    """Return the visitor's stay after one more event. An ended stay continues if the visitor
    returns with the same ticket or pass. None for a place that never polled: a flood can create any
    number of these, so they are not recorded."""
    entry = Entry(event.visitor) if entry is None else entry
    entry.changed_ms = event.at_ms
    position = event.number("position")
    if position is not None:
        entry.last_position = position
    match event.kind:
        case "joined":
            _join(entry, event)
        case "called":
            entry.called_ms = event.at_ms
            entry.ended_ms = entry.end_reason = None
        case "admitted":
            _admit(entry, event)
        case "expired" | "left" | "released":
            entry.ended_ms = event.at_ms
            ends_by_itself = event.kind == "expired" or event.why == "unseen"
            entry.end_reason = event.why if ends_by_itself else event.kind
            if entry.end_reason == UNUSED and entry.admitted_ms is None:
                return None
        case "graded":
            entry.class_name = event.more.get("class", "")
            _move(entry, event)
        case "operator" if event.why in {"move", "back"}:
            _move(entry, event)
    return entry


def _move(entry: Entry, event: Event) -> None:
    entry.queue_order = event.number("order")
    entry.moved_ms = event.at_ms


def _join(entry: Entry, event: Event) -> None:
    if entry.queued_ms is None:
        entry.first_position = entry.last_position
    else:
        entry.returns += 1
    if entry.joined_ms is None:
        entry.joined_ms = _joined_ms(event)
    entry.class_name = event.more.get("class", entry.class_name)
    entry.queue_order = event.number("order")
    entry.queued_ms = event.at_ms
    entry.called_ms = entry.admitted_ms = entry.ended_ms = entry.end_reason = None


def _joined_ms(event: Event) -> int:
    """Return when the visitor joined; the event of a new visitor has no `joined`."""
    joined_ms = event.number("joined")
    return event.at_ms if joined_ms is None else joined_ms


def _admit(entry: Entry, event: Event) -> None:
    entry.ended_ms = entry.end_reason = None
    if entry.joined_ms is None:
        entry.joined_ms = _joined_ms(event)
    if event.why == "claimed" and entry.queued_ms is None:
        entry.queued_ms = entry.joined_ms  # the visitor waited, but joining was not recorded
    if entry.queue_order is None:
        entry.queue_order = event.number("order")
    if event.why == "restored":
        entry.returns += 1
    if entry.admitted_ms is None:
        entry.admitted_ms = event.at_ms


def positions(entry: Entry, ahead: Iterable[tuple[int, int | None]]) -> list[tuple[int, int]]:
    """Return (at_ms, position) for each change of a visitor's position. `ahead` has, for each
    visitor of a lower order, the times (ms) between which that visitor waited (None: still)."""
    if entry.queued_ms is None:
        return []
    until = entry.called_ms or entry.ended_ms or math.inf
    start, position = entry.queued_ms, 1
    steps: dict[int, int] = {}
    for joined_ms, gone_ms in ahead:
        if joined_ms > until or (gone_ms is not None and gone_ms <= start):
            continue
        if joined_ms <= start:
            position += 1
        else:
            steps[joined_ms] = steps.get(joined_ms, 0) + 1
        if gone_ms is not None and gone_ms <= until:
            steps[gone_ms] = steps.get(gone_ms, 0) - 1
    curve = [(start, position)]
    for at_ms in sorted(steps):
        if steps[at_ms]:
            position += steps[at_ms]
            curve.append((at_ms, position))
    return curve
