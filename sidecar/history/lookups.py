"""Looks up a visitor's stay in the history, and formats results as CSV."""

import csv
import io
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.history.schemas import Event, PlaceAt, Stay, VisitorHistory
from sidecar.history.service import compute_positions
from sidecar.kit.clock import iso
from sidecar.rooms.schemas.common import resolve

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The key of the history in a replica's application, which has none if no history is recorded.
HISTORY: "web.AppKey[History]" = web.AppKey("history", object)  # type: ignore[arg-type] # importing History takes a third of the start

#: The most events, and the most positions, of one visitor in a response.
EVENTS_LIMIT = 1000
#: The most visitors ahead for which positions are computed, because this blocks the replica.
AHEAD_LIMIT = 50_000


async def find_visitor(history: "History", room: str, visitor: str) -> VisitorHistory | None:
    """Return a visitor's stay, positions over time and events. Return None if nothing was recorded.

    `visitor` is an id or a visitor number. Raises ProblemError if no visitor or several visitors
    have the number."""
    visitor = await resolve(visitor, partial(history.find_by_number, room))
    entry = await history.find_entry(room, visitor)
    if entry is None:
        return None
    events = await history.find_events(room, visitor, limit=EVENTS_LIMIT)
    ahead = await history.find_ahead(room, entry, limit=AHEAD_LIMIT)
    curve = [] if ahead is None else compute_positions(entry, ahead)
    step = max(1, -(-len(curve) // EVENTS_LIMIT))
    return VisitorHistory(
        room=room,
        visitor=visitor,
        stay=Stay.model_validate(entry),
        places=[PlaceAt(at=iso(at_ms), position=position) for at_ms, position in curve[::step]],
        events=[
            Event(id=each.id, at=iso(each.at_ms), kind=each.kind, why=each.why, **each.more)
            for each in events
        ],
    )


def format_csv(documents: Iterable[dict[str, Any]], *, has_header: bool = True) -> str:
    """Format documents as CSV: the header, and a line for each document."""
    out = io.StringIO()
    writer = csv.writer(out)
    for number, document in enumerate(documents):
        if has_header and number == 0:
            writer.writerow(document)
        writer.writerow(map(_quote_formula, document.values()))
    return out.getvalue()


def _quote_formula(value: Any) -> Any:
    """Quote a string that a spreadsheet would take for a formula."""
    is_formula = isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"}
    return f"'{value}" if is_formula else value
