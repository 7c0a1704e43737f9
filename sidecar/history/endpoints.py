"""Look-ups in the history, for operators: a visitor, a period, a report. JSON, or CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.history import lookups
from sidecar.history.app_keys import HISTORY
from sidecar.history.schemas import (
    NO_HISTORY,
    TOO_MANY_STAYS,
    ChangesPage,
    PeriodParameters,
    RoomChanges,
    RoomReport,
    Stays,
    StaysPage,
    VisitorHistory,
)
from sidecar.kit.clock import iso
from sidecar.kit.http.endpoint import DASHBOARD, Endpoints
from sidecar.kit.http.problem_kinds import DATABASE_UNAVAILABLE
from sidecar.kit.http.problems import problem
from sidecar.rooms.endpoints.request_parameters import room_of
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, UNKNOWN_VISITOR, VisitorAddress

if TYPE_CHECKING:
    from sidecar.history.lookups import Period
    from sidecar.history.store.stays import History
    from sidecar.rooms.service import Room

#: Stays of one report made within a replica, whose visitors wait meanwhile.
REPORT_LIMIT = 100_000

ENDPOINTS = Endpoints(
    "history", find=room_of, problems=(UNKNOWN_ROOM, NO_HISTORY, DATABASE_UNAVAILABLE)
)

_ROOM = "/admin/rooms/{room}"
_CSV = {"text/csv": "A header and a line for each; nothing where there is none."}


@ENDPOINTS.get(
    _ROOM + "/visitors/{visitor}/history",
    DASHBOARD,
    parameters=VisitorAddress,
    replies={200: (VisitorHistory, "All of it.")},
    problems=(UNKNOWN_VISITOR,),
)
async def get_visitor_history(
    request: web.Request, at: VisitorAddress
) -> VisitorHistory | web.Response:
    """One visitor's stay, its place over time, what happened."""
    room, history = room_of(request), request.app.get(HISTORY)
    if history is None:
        return problem(NO_HISTORY)
    found = await lookups.find_visitor(history, room.name, at.visitor)
    if found is None:
        return problem(UNKNOWN_VISITOR, detail=f"nothing was recorded of {at.visitor}")
    return VisitorHistory(room=room.name, visitor=at.visitor, **found)


@ENDPOINTS.get(
    _ROOM + "/stays",
    DASHBOARD,
    parameters=StaysPage,
    replies={200: (Stays, "A page of them.")},
    other_media=_CSV,
)
async def list_stays(request: web.Request, page: StaysPage) -> Stays | web.Response:
    """Stays that began in a period, oldest first."""
    room, history, period = _asked(request, page)
    if history is None:
        return problem(NO_HISTORY)
    found = lookups.find_stays(history, room.name, period, limit=page.limit, offset=page.start)
    stays = [stay async for stay in found]
    if page.format == "csv":
        return _csv(stays)
    following = page.next(len(stays))
    return Stays.model_validate({**_of(room, period), "stays": stays, "next": following})


@ENDPOINTS.get(
    _ROOM + "/report",
    DASHBOARD,
    parameters=PeriodParameters,
    replies={200: (RoomReport, "The report.")},
    other_media=_CSV,
    problems=(TOO_MANY_STAYS,),
)
async def get_report(request: web.Request, at: PeriodParameters) -> RoomReport | web.Response:
    """Waits, giving up and fairness in a period.

    Of 100,000 stays at most; `waitroom report` knows no bound.
    """
    room, history, period = _asked(request, at)
    if history is None:
        return problem(NO_HISTORY)
    found = await lookups.find_report(history, room.name, period, most=REPORT_LIMIT)
    if found is None:
        return problem(
            TOO_MANY_STAYS,
            detail=f"More than {REPORT_LIMIT:,} began in that time. Ask for less of it, or run "
            "waitroom report, which reads the database itself.",
        )
    return _csv([found]) if at.format == "csv" else RoomReport(**found)


@ENDPOINTS.get(
    _ROOM + "/changes",
    DASHBOARD,
    parameters=ChangesPage,
    replies={200: (RoomChanges, "The latest of them.")},
    other_media=_CSV,
)
async def list_changes(request: web.Request, page: ChangesPage) -> RoomChanges | web.Response:
    """What operators did in a period, latest first."""
    room, history, period = _asked(request, page)
    if history is None:
        return problem(NO_HISTORY)
    changes, following = await lookups.find_changes(
        history, room.name, period, limit=page.limit, after=page.after
    )
    if page.format == "csv":
        return _csv(changes)
    return RoomChanges.model_validate({**_of(room, period), "changes": changes, "next": following})


def _asked(request: web.Request, at: PeriodParameters) -> tuple[Room, History | None, Period]:
    room = room_of(request)
    period = lookups.read_period(at.from_, at.to, now_ms=room.clock.now_ms())
    return room, request.app.get(HISTORY), period


def _of(room: Room, period: Period) -> dict[str, Any]:
    return {"room": room.name, "from": iso(period.from_ms), "to": iso(period.to_ms)}


def _csv(rows: list[dict[str, Any]]) -> web.Response:
    return web.Response(
        text=lookups.as_csv(rows),
        content_type="text/csv",
        charset="utf-8",
        headers={"Cache-Control": "no-store"},
    )
