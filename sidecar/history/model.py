"""The model of the history: events of rooms, stays of visitors, and periods of time."""

from dataclasses import dataclass, field
from typing import Any, Literal

from sidecar.kit.clock import iso
from sidecar.kit.errors import InputError
from sidecar.kit.moments import read_past
from sidecar.visitors.estimate import Wait

DAY_MS = 86_400_000
#: The end of the year 9999, the latest time that ISO 8601 can represent.
LATEST_MS = 253_402_300_799_999
#: The end reason of a visitor who never polled, or never sent the cookie of the session.
UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """An event in a room's event stream in Redis."""

    #: The two parts of the event's id in the stream, which is `ms-seq`.
    ms: int
    seq: int
    #: joined, called, admitted, expired, left, released, graded, promised, operator or site.
    kind: str
    visitor: str
    #: The reason or, if `kind` is operator, the operator's action.
    why: str
    at_ms: int
    #: Other fields, as strings: order, joined, position, class, by, detail, wait, calls, error.
    more: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.ms}-{self.seq}"

    def read_number(self, name: str) -> int | None:
        """Return a field of `more` as a number, or None if it is missing."""
        value = self.more.get(name)
        return None if value is None else int(value)


@dataclass(slots=True)
class Stay:
    """A visitor's stay, from joining or admission to its end. A time is None before it happens."""

    visitor: str
    class_name: str = ""
    queue_order: int | None = None
    joined_ms: int | None = None
    #: When the visitor last joined the queue. Later than joined_ms if the visitor returned.
    queued_ms: int | None = None
    called_ms: int | None = None
    admitted_ms: int | None = None
    ended_ms: int | None = None
    #: session, left, finished, released, silent, swept, no_show, unused, unseen, reset, stuck
    end_reason: str | None = None
    first_position: int | None = None
    last_position: int | None = None
    #: How often the visitor regained the place after Redis was emptied or polling had stopped.
    returns: int = 0
    #: When an operator last moved the visitor.
    moved_ms: int | None = None
    #: The time of the last event.
    changed_ms: int = 0

    @property
    def state(self) -> Literal["waiting", "called", "inside", "ended"]:
        if self.ended_ms is not None:
            return "ended"
        if self.admitted_ms is not None:
            return "inside"
        return "waiting" if self.called_ms is None else "called"


@dataclass(frozen=True, slots=True)
class Promise:
    """A wait estimate for a visitor in the queue, and the wait that followed."""

    at_ms: int
    wait: Wait
    waited_s: float

    @property
    def is_held(self) -> bool:
        return self.wait.low <= self.waited_s <= self.wait.high

    @property
    def error(self) -> float:
        """Return the error as a share of the wait that followed, or of a second if longer."""
        return abs(self.wait.seconds - self.waited_s) / max(self.waited_s, 1)


@dataclass(frozen=True, slots=True)
class Period:
    """A period from `from_ms` until just before `to_ms`."""

    from_ms: int
    to_ms: int

    def describe(self, room: str) -> dict[str, Any]:
        """Return the members of a response about a room in this period."""
        return {"room": room, "from": iso(self.from_ms), "to": iso(self.to_ms)}


def read_period(start: str | None, end: str | None, *, now_ms: int) -> Period:
    """Read a period, by default the last 24 hours. `start` and `end` are times in ISO 8601 (UTC if
    they have no zone) or durations before now ("24h"). Raises InputError."""
    problems = []
    times = {"from": now_ms - DAY_MS, "to": now_ms}
    for name, value in (("from", start), ("to", end)):
        if value:
            try:
                times[name] = min(max(0, read_past(value, now_ms)), LATEST_MS)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    if not problems and times["from"] >= times["to"]:
        problems.append("from: must be before to")
    if problems:
        raise InputError(problems)
    return Period(times["from"], times["to"])
