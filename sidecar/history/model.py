"""The words of the history: what happened in a room, and the stays that it makes up."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a room's event stream."""

    #: Its id in the stream: milliseconds and a number within them. Never the same twice.
    ms: int
    seq: int
    #: joined, called, admitted, expired, left, released; or operator.
    kind: str
    visitor: str
    #: How it came about; what an operator did.
    why: str
    at_ms: int
    #: What else the event says, as text: order, joined, position, by, detail.
    more: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int | None:
        """One of `more`, or None where it is missing."""
        value = self.more.get(name)
        return None if value is None else int(value)


@dataclass(slots=True)
class Entry:
    """One stay: from joining, or being let in at once, to its end. Times are ms since 1970; None:
    it has not happened."""

    visitor: str
    class_name: str = ""
    queue_order: int | None = None
    joined_ms: int | None = None
    #: Since when it has queued without a break: later than joined_ms for visitors who came back.
    queued_ms: int | None = None
    called_ms: int | None = None
    admitted_ms: int | None = None
    ended_ms: int | None = None
    #: session, left, released, silent, swept, no_show, unseen, reset, stuck
    end_reason: str | None = None
    first_position: int | None = None
    last_position: int | None = None
    #: How often it took its place again: after the store was emptied, or after a silence.
    returns: int = 0
    #: When an operator moved it for the last time.
    moved_ms: int | None = None
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What an operator did."""

    at_ms: int
    operator: str
    #: change, reset, move, release, and the like.
    action: str
    visitor: str
    detail: str
    #: Of its entry in the room's stream.
    ms: int
    seq: int
