"""Endpoints by which operators read the history of a room and its visitors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.history import lookups, schemas
from sidecar.history.lookups import HISTORY
from sidecar.history.model import Period, read_period
from sidecar.history.report import compute_estimate_steps, make_report
from sidecar.http.endpoint import VIEWERS, Endpoints
from sidecar.http.models import Reply
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE
from sidecar.http.problems import ProblemError
from sidecar.rooms.schemas.common import (
    AMBIGUOUS_NUMBER,
    UNKNOWN_ROOM,
    UNKNOWN_VISITOR,
    VisitorAddress,
)
from sidecar.rooms.service import WaitingRoom, room_of

if TYPE_CHECKING:  # SQL is an extra
    from sidecar.history.store.stays import History

#: The maximum number of stays in a replica's report, because counting delays visitors' requests.
REPORT_LIMIT = 100_000

_ROOM_PATH = "/admin/rooms/{room}"
_CSV_MEDIA = {
    "text/csv": "A header and a line for each member of the list. Empty for an empty list."
}


def _find_history(request: web.Request) -> "tuple[WaitingRoom, History]":
    room, history = room_of(request), request.app.get(HISTORY)
    if history is None:
        raise ProblemError(schemas.NO_HISTORY)
    return room, history


ENDPOINTS = Endpoints(
    "history",
    find=_find_history,
    unknown=UNKNOWN_ROOM,
    problems=(schemas.NO_HISTORY, DATABASE_UNAVAILABLE),
)


@ENDPOINTS.get(
    _ROOM_PATH + "/visitors/{visitor}/history",
    VIEWERS,
    replies={200: "The visitor's history."},
    problems=(UNKNOWN_VISITOR, AMBIGUOUS_NUMBER),
)
async def get_visitor_history(request: web.Request, path: VisitorAddress) -> schemas.VisitorHistory:
    """Get a visitor's stay, positions over time and events."""
    room, history = _find_history(request)
    document = await lookups.find_visitor(history, room.name, path.visitor)
    if document is None:
        raise ProblemError(UNKNOWN_VISITOR, detail=f"nothing was recorded of {path.visitor}")
    return document


@ENDPOINTS.get(
    _ROOM_PATH + "/stays",
    VIEWERS,
    replies={200: (schemas.Stays, "A page of stays.")},
    other_media=_CSV_MEDIA,
)
async def list_stays(request: web.Request, page: schemas.StaysPage) -> schemas.Stays | web.Response:
    """List the stays that began in a period, oldest first."""
    room, history, period = _read_request(request, page)
    recorded_stays = history.read_stays(room.name, period, limit=page.limit, offset=page.start)
    stays = [schemas.StayDocument.model_validate(stay) async for stay in recorded_stays]
    if page.format == "csv":
        return _make_csv_response(stays)
    return schemas.Stays(**period.describe(room.name), stays=stays, next=page.next(len(stays)))


@ENDPOINTS.get(
    _ROOM_PATH + "/report",
    VIEWERS,
    replies={200: (schemas.RoomReport, "The report.")},
    other_media=_CSV_MEDIA,
    problems=(schemas.TOO_MANY_STAYS,),
)
async def get_report(
    request: web.Request, parameters: schemas.PeriodParameters
) -> schemas.RoomReport | web.Response:
    """Report waiting times, abandonment and fairness in a period.

    A report covers at most 100,000 stays. `waitroom report` has no limit.
    """
    room, history, period = _read_request(request, parameters)
    report = await make_report(history, room.name, period, limit=REPORT_LIMIT)
    if report is None:
        raise ProblemError(
            schemas.TOO_MANY_STAYS,
            detail=f"More than {REPORT_LIMIT:,} stays began in that time. Ask for less time, or "
            "run waitroom report, which reads the database itself.",
        )
    return _make_csv_response([report]) if parameters.format == "csv" else report


@ENDPOINTS.get(
    _ROOM_PATH + "/estimates",
    VIEWERS,
    replies={200: (schemas.Estimates, "The estimates.")},
    other_media=_CSV_MEDIA,
)
async def list_estimates(
    request: web.Request, parameters: schemas.EstimatesParameters
) -> schemas.Estimates | web.Response:
    """Compare wait estimates with the actual waits.

    Each minute, the estimates for up to four visitors in the queue are recorded. A response
    compares at most the first 100,000.
    """
    room, history, period = _read_request(request, parameters)
    promises = await history.find_promises(room.name, period, limit=REPORT_LIMIT)
    steps = compute_estimate_steps(promises, parameters.step * 1000)
    if parameters.format == "csv":
        return _make_csv_response(steps)
    return schemas.Estimates(**period.describe(room.name), steps=steps)


@ENDPOINTS.get(
    _ROOM_PATH + "/changes",
    VIEWERS,
    replies={200: (schemas.RoomChanges, "A page of actions.")},
    other_media=_CSV_MEDIA,
)
async def list_changes(
    request: web.Request, page: schemas.ChangesPage
) -> schemas.RoomChanges | web.Response:
    """List what operators did in a period, latest first.

    State changes of the site behind an adaptive room are listed too; their `by` is `waitroom`.
    """
    room, history, period = _read_request(request, page)
    changes = await history.read_changes(room.name, period, limit=page.limit, before=page.before)
    document = schemas.create_changes_page(
        room.name, period, changes, page.limit, configured=room.file_settings
    )
    return _make_csv_response(document.changes) if page.format == "csv" else document


def _read_request(
    request: web.Request, parameters: schemas.PeriodParameters
) -> "tuple[WaitingRoom, History, Period]":
    room, history = _find_history(request)
    return room, history, read_period(parameters.from_, parameters.to, now_ms=room.clock.now_ms())


def _make_csv_response(rows: Sequence[Reply]) -> web.Response:
    return web.Response(
        text=lookups.format_csv(row.model_dump(by_alias=True, exclude={"changes"}) for row in rows),
        content_type="text/csv",
        charset="utf-8",
        headers={"Cache-Control": "no-store"},
    )
