"""Look-ups in the history: a visitor's stay, a report on a period; and CSV."""

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.history import schemas
from sidecar.history.model import Event, Period
from sidecar.history.schemas import PlaceAt, RoomReport, Stay, VisitorHistory
from sidecar.history.service import Tally, places
from sidecar.kit.clock import iso
from sidecar.kit.progress import Advance, uncounted
from sidecar.rooms.schemas.common import resolve

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: Events and places of one visitor that are returned, at most.
EVENTS_LIMIT = 1000
#: Beyond so many who stood before a visitor its place over time is left out: reading and counting
#: them would keep a replica from its visitors.
AHEAD_LIMIT = 50_000


async def find_visitor(history: "History", room: str, visitor: str) -> VisitorHistory | None:
    """One visitor's stay, its place over time, and what happened; None where nothing is known.
    `visitor`: an id or a number; ProblemError where nobody or several have that number."""
    visitor = await resolve(visitor, partial(history.numbered, room))
    entry = await history.entry(room, visitor)
    if entry is None:
        return None
    events = await history.events_of(room, visitor, limit=EVENTS_LIMIT)
    ahead = await history.ahead_of(room, entry, most=AHEAD_LIMIT)
    curve = [] if ahead is None else places(entry, ahead)
    step = max(1, -(-len(curve) // EVENTS_LIMIT))
    return VisitorHistory(
        room=room,
        visitor=visitor,
        stay=Stay.model_validate(entry),
        places=[PlaceAt(at=iso(at_ms), position=number) for at_ms, number in curve[::step]],
        events=[_event(event) for event in events],
    )


def _event(event: Event) -> schemas.Event:
    at = iso(event.at_ms)
    id_ = f"{event.ms}-{event.seq}"
    return schemas.Event(id=id_, at=at, kind=event.kind, why=event.why, **event.more)


async def find_report(
    history: "History",
    room: str,
    period: Period,
    *,
    most: int | None = None,
    advance: Advance = uncounted,
) -> RoomReport | None:
    """None when more than `most` stays began in the period. `advance` is called for each stay."""
    tally = Tally()
    async for entry in history.entries(room, period, limit=None if most is None else most + 1):
        tally.add(entry)
        advance()
    if most is not None and tally.counts["stays"] > most:
        return None
    return RoomReport(**period.of(room), **tally.figures())


def as_csv(documents: Iterable[dict[str, Any]], *, has_header: bool = True) -> str:
    """A header and a line for each. What a spreadsheet would take for a formula is quoted."""
    out = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for document in documents:
        if writer is None:
            writer = csv.DictWriter(out, list(document))
            if has_header:
                writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in document.items()})
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}:
        return f"'{value}"
    return value
