"""Look-ups in the history, for operators: a visitor, a period, a report. JSON, or CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.history import lookups
from sidecar.history.app_keys import HISTORY
from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.problems import problem
from sidecar.kit.http.request_parameters import page_of
from sidecar.rooms.endpoints.request_parameters import room_of, visitor_of

if TYPE_CHECKING:
    from sidecar.history.lookups import Period
    from sidecar.history.store.stays import History
    from sidecar.rooms.service import Room

#: Stays of one report made within a replica, whose visitors wait meanwhile.
REPORT_LIMIT = 100_000


async def show_visitor(request: web.Request) -> web.Response:
    """One visitor's stay, its place over time, and what happened."""
    room, visitor = room_of(request), visitor_of(request)
    document = await lookups.find_visitor(_history(request), room.name, visitor)
    if document is None:
        return problem(404, "Unknown visitor", detail=f"nothing was recorded of {visitor}")
    return web.json_response({"room": room.name, "visitor": visitor, **document})


async def list_stays(request: web.Request) -> web.Response:
    """Stays that began in a period, oldest first, a page at a time."""
    room, history, period = _asked(request)
    offset, limit = page_of(request)
    found = lookups.find_stays(history, room.name, period, limit=limit, offset=offset)
    stays = [stay async for stay in found]
    return _reply(request, {"room": room.name, **_period_document(period), "stays": stays}, stays)


async def show_report(request: web.Request) -> web.Response:
    """How the room did in a period: waits, giving up, fairness."""
    room, history, period = _asked(request)
    document = await lookups.find_report(history, room.name, period, most=REPORT_LIMIT)
    if document is None:
        return problem(
            422,
            "Too many stays for a replica",
            detail=f"More than {REPORT_LIMIT:,} began in that time. Ask for less of it, or run "
            "waitroom report, which reads the database itself.",
        )
    return _reply(request, document, [document])


async def list_changes(request: web.Request) -> web.Response:
    """What operators did in a period, latest first."""
    room, history, period = _asked(request)
    _, limit = page_of(request)
    acts = await lookups.find_changes(history, room.name, period, limit=limit)
    return _reply(request, {"room": room.name, **_period_document(period), "changes": acts}, acts)


def _history(request: web.Request) -> History:
    history = request.app.get(HISTORY)
    if history is None:
        raise web.HTTPNotFound(reason="No history is kept: set history to a database")
    return history


def _asked(request: web.Request) -> tuple[Room, History, Period]:
    room, history = room_of(request), _history(request)
    query = request.query
    period = lookups.read_period(query.get("from"), query.get("to"), now_ms=room.clock.now_ms())
    if query.get("format", "json") not in {"json", "csv"}:
        raise ConfigError(["format: json or csv"])
    return room, history, period


def _period_document(period: Period) -> dict[str, str]:
    return {"from": iso(period.from_ms), "to": iso(period.to_ms)}


def _reply(
    request: web.Request, document: dict[str, Any], rows: list[dict[str, Any]]
) -> web.Response:
    if request.query.get("format") == "csv":
        return web.Response(text=lookups.as_csv(rows), content_type="text/csv", charset="utf-8")
    return web.json_response(document)
