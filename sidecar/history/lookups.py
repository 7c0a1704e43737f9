"""Look-ups in the history (a visitor's stay, a report on a period), and their CSV."""

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.history import schemas
from sidecar.history.model import Period
from sidecar.history.report import Tally
from sidecar.history.schemas import PlaceAt, RoomReport, Stay, VisitorHistory
from sidecar.history.service import positions
from sidecar.kit.clock import iso
from sidecar.kit.progress import Advance, uncounted
from sidecar.rooms.schemas.common import resolve

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The history of a replica's application; missing if no history is kept.
HISTORY: "web.AppKey[History]" = web.AppKey("history", object)  # type: ignore[arg-type] # importing History takes a third of the start

#: The most events, and the most positions, of one visitor in a response.
EVENTS_LIMIT = 1000
#: The most visitors ahead for which positions are computed, because that keeps a replica busy.
AHEAD_LIMIT = 50_000


async def find_visitor(history: "History", room: str, visitor: str) -> VisitorHistory | None:
    """Return a visitor's stay, positions over time and events. None if nothing was recorded.

    `visitor` is an id or a number. Raises ProblemError if no visitor or several have the number."""
    visitor = await resolve(visitor, partial(history.find_by_number, room))
    entry = await history.entry(room, visitor)
    if entry is None:
        return None
    events = await history.events_of(room, visitor, limit=EVENTS_LIMIT)
    ahead = await history.ahead_of(room, entry, limit=AHEAD_LIMIT)
    curve = [] if ahead is None else positions(entry, ahead)
    step = max(1, -(-len(curve) // EVENTS_LIMIT))
    return VisitorHistory(
        room=room,
        visitor=visitor,
        stay=Stay.model_validate(entry),
        places=[PlaceAt(at=iso(at_ms), position=position) for at_ms, position in curve[::step]],
        events=[
            schemas.Event(
                id=f"{event.ms}-{event.seq}",
                at=iso(event.at_ms),
                kind=event.kind,
                why=event.why,
                **event.more,
            )
            for event in events
        ],
    )


async def make_report(
    history: "History",
    room: str,
    period: Period,
    *,
    limit: int | None = None,
    advance: Advance = uncounted,
) -> RoomReport | None:
    """Report on the stays that began in a period. None if there are more than `limit`. Calls
    `advance` after each stay."""
    tally = Tally()
    async for entry in history.entries(room, period, limit=None if limit is None else limit + 1):
        tally.add(entry)
        advance()
    if limit is not None and tally.counts["stays"] > limit:
        return None
    return RoomReport(**period.of(room), **tally.figures())


def as_csv(documents: Iterable[dict[str, Any]], *, has_header: bool = True) -> str:
    """Format documents as CSV: a header, and a line for each. Quotes a string that a spreadsheet
    would take for a formula."""
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
