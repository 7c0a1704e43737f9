"""Looks up a visitor's stay in the history, and formats results as CSV."""

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.history import schemas
from sidecar.history.stays import compute_positions
from sidecar.kit.clock import iso
from sidecar.rooms.schemas.common import resolve_id

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The key of the history in a replica's application. It is missing if no history is recorded.
HISTORY: "web.AppKey[History]" = web.AppKey("history", object)  # type: ignore[arg-type] # importing History takes a third of the time to start

#: The maximum number of a visitor's events in a response, and of changes of the position.
EVENTS_LIMIT = 1000
#: The maximum number of visitors ahead. More would block the replica, so no position is computed.
AHEAD_LIMIT = 50_000


async def find_visitor(
    history: "History", room: str, visitor: str
) -> schemas.VisitorHistory | None:
    """Return a visitor's stay, positions over time and events. Return None if nothing was recorded.

    `visitor` is an id or a visitor number. Raises ProblemError if no visitor or several visitors
    have the number."""
    visitor = await resolve_id(visitor, partial(history.find_by_number, room))
    stay = await history.find_stay(room, visitor)
    if stay is None:
        return None
    events = await history.find_events(room, visitor, limit=EVENTS_LIMIT)
    waits = await history.find_waits_ahead(room, stay, limit=AHEAD_LIMIT)
    curve = [] if waits is None else compute_positions(stay, waits)
    step = max(1, -(-len(curve) // EVENTS_LIMIT))
    return schemas.VisitorHistory(
        room=room,
        visitor=visitor,
        stay=schemas.StayDocument.model_validate(stay),
        places=[
            schemas.PlaceAt(at=iso(at_ms), position=position) for at_ms, position in curve[::step]
        ],
        events=[
            schemas.Event(
                id=event.id, at=iso(event.at_ms), kind=event.kind, why=event.why, **event.more
            )
            for event in events
        ],
    )


def format_csv(documents: Iterable[dict[str, Any]], *, has_header: bool = True) -> str:
    """Format documents as CSV, with a line for each document after the header."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, document in enumerate(documents):
        if has_header and number == 0:
            writer.writerow(document)
        writer.writerow(map(_quote_formula, document.values()))
    return out.getvalue()


def _quote_formula(value: Any) -> Any:
    """Put a quote before a string that a spreadsheet would take for a formula."""
    is_formula = isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
    return f"'{value}" if is_formula else value
