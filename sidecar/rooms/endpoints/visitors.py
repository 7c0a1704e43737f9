"""Endpoints to list, find, release and move visitors."""

from typing import Literal

import structlog
from aiohttp import web

from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import OPERATORS, VIEWERS, Endpoints, programs
from sidecar.http.problems import ProblemError
from sidecar.rooms.schemas.common import (
    AMBIGUOUS_NUMBER,
    UNKNOWN_CLASS,
    UNKNOWN_ROOM,
    UNKNOWN_VISITOR,
    VisitorAddress,
    check_class,
    resolve_id,
)
from sidecar.rooms.schemas.visitors import (
    DRAWN_PLACE,
    NAMED_POSITIONS,
    NEVER_MOVED,
    NO_PLACE_FREE,
    NOT_DRAWN,
    ChooseClass,
    MoveVisitor,
    Session,
    Sessions,
    Visitor,
    VisitorMoved,
    VisitorReleased,
    VisitorsPage,
    Waiting,
    WaitingVisitors,
)
from sidecar.rooms.service import WaitingRoom, room_of
from sidecar.rooms.store.lists import VisitorRecord
from sidecar.rooms.store.scripts import ClassClaim
from sidecar.visitors.model import Phase
from sidecar.visitors.visitor_number import visitor_number

ENDPOINTS = Endpoints("administration", find=room_of, unknown=UNKNOWN_ROOM)

_ROOM = "/admin/rooms/{room}"
_VISITOR = _ROOM + "/visitors/{visitor}"

log = structlog.get_logger()


@ENDPOINTS.get(_ROOM + "/waiting", VIEWERS, replies={200: "The queue."}, problems=(NOT_DRAWN,))
async def list_waiting(request: web.Request, page: VisitorsPage) -> WaitingVisitors:
    """List the waiting visitors, in the order of the queue.

    The request is refused in a pre-queue, because places are secret until the opening."""
    room = room_of(request)
    if _is_in_prequeue(room):
        raise ProblemError(NOT_DRAWN, detail=NOT_DRAWN.meaning)
    waiting = await list_waiting_visitors(room, start=page.start, limit=page.limit)
    return WaitingVisitors(room=room.name, waiting=waiting, next=page.next(len(waiting)))


@ENDPOINTS.get(_ROOM + "/sessions", VIEWERS, replies={200: "A page of sessions."})
async def list_sessions(request: web.Request, page: VisitorsPage) -> Sessions:
    """List the sessions, soonest to end first."""
    rows = await room_of(request).store.lists.sessions(offset=page.start, limit=page.limit)
    sessions = [Session(visitor=visitor, ends_at_ms=ends) for visitor, ends in rows]
    return Sessions(room=page.room, sessions=sessions, next=page.next(len(rows)))


async def _find_id(request: web.Request, params: VisitorAddress) -> str:
    return await resolve_id(params.visitor, room_of(request).store.lists.ids_by_number)


@ENDPOINTS.get(
    _VISITOR,
    VIEWERS,
    replies={200: "The visitor. The state is `unknown` for an unknown id."},
    problems=(UNKNOWN_VISITOR, AMBIGUOUS_NUMBER),
)
async def find_visitor(request: web.Request, params: VisitorAddress) -> Visitor:
    """Find a visitor."""
    room = room_of(request)
    id_ = await _find_id(request, params)
    record = await room.store.lists.find(id_)
    visitor = Visitor(
        room=room.name,
        visitor=id_,
        number=visitor_number(id_),
        state=find_state(record),
        started_at_ms=record.started_ms,
        ends_at_ms=record.ends_ms,
        revoked_at_ms=record.revoked_ms,
    )
    if record.place is not None and not _is_in_prequeue(room):
        visitor.position, visitor.line_position = record.position, record.line_position
        visitor.line, visitor.class_ = record.place.line, record.place.class_name
        visitor.joined_at_ms = record.place.joined_ms
    return visitor


async def list_waiting_visitors(room: WaitingRoom, *, start: int, limit: int) -> list[Waiting]:
    """Return up to `limit` waiting visitors, after the first `start` of them. Raises StoreError."""
    rows = await room.store.lists.queue(offset=start, limit=limit)
    return [
        Waiting(
            visitor=row.visitor,
            number=visitor_number(row.visitor),
            position=position,
            order=row.order,
            line=row.line,
            class_=row.class_name,
            joined_at_ms=row.joined_ms,
        )
        for position, row in enumerate(rows, start=start + 1)
    ]


def find_state(
    record: VisitorRecord,
) -> Literal["waiting", "called", "inside", "revoked", "unknown"]:
    if record.position is not None:
        return "waiting"
    if record.revoked_ms is not None:
        return "revoked"
    if record.ends_ms is not None:
        return "called" if record.started_ms is None else "inside"
    return "unknown"


def _is_in_prequeue(room: WaitingRoom) -> bool:
    return room.settings.schedule_at(room.clock.now_ms()).phase is Phase.PREQUEUE


@ENDPOINTS.post(
    _VISITOR + "/release",
    OPERATORS,
    replies={200: "The pass or ticket is void."},
    problems=(UNKNOWN_VISITOR, AMBIGUOUS_NUMBER),
)
async def release_visitor(request: web.Request, params: VisitorAddress) -> VisitorReleased:
    """End a visitor's session or place."""
    visitor = await _find_id(request, params)
    if not await room_of(request).release(visitor, by=find_logged_name(request)):
        raise ProblemError(UNKNOWN_VISITOR, detail=f"{visitor} is neither inside nor waiting")
    log.info("released", room=params.room, visitor=visitor)
    return VisitorReleased(room=params.room, visitor=visitor)


#: The problem and its detail for each result below 0 of RoomStore.move or .reclassify.
_MOVE_PROBLEMS = {
    -1: (NO_PLACE_FREE, "The visitors there joined at once; try 1."),
    -2: (NOT_DRAWN, "Nobody is moved before the pre-queue is over."),
    -3: (NEVER_MOVED, "So there is no place to go back to."),
}


@ENDPOINTS.post(
    _VISITOR + "/move",
    OPERATORS,
    replies={200: "The new position: the last one if the queue is shorter."},
    problems=(
        UNKNOWN_VISITOR,
        AMBIGUOUS_NUMBER,
        UNKNOWN_CLASS,
        DRAWN_PLACE,
        *(kind for kind, _ in _MOVE_PROBLEMS.values()),
    ),
)
async def move_visitor(
    request: web.Request, params: VisitorAddress, body: MoveVisitor
) -> VisitorMoved:
    """Move a waiting visitor.

    Send either a `position` in the queue or another `class`, which changes the position too."""
    room, by, why = room_of(request), find_logged_name(request), body.why
    visitor = await _find_id(request, params)
    if not body.changes_class:
        to = body.position if isinstance(body.position, int) else NAMED_POSITIONS[body.position]
        moved = await room.store.move(visitor, to, by=by, why=why)
    else:
        moved = await _change_class(room, visitor, body.class_, by=by, why=why)
    if moved == 0:
        raise ProblemError(UNKNOWN_VISITOR, detail=f"{visitor} is not waiting")
    if moved < 0:
        kind, detail = _MOVE_PROBLEMS[moved]
        raise ProblemError(kind, detail=detail)
    log.info("moved", room=room.name, visitor=visitor, position=moved, by=by, why=why)
    return VisitorMoved(room=room.name, visitor=visitor, position=moved)


async def _change_class(
    room: WaitingRoom, visitor: str, class_name: str | None, *, by: str, why: str
) -> int:
    """Give a waiting visitor another class, or none if `class_name` is None. Return the new
    position, or 0 if the visitor is not waiting. Raises ProblemError."""
    if class_name is not None:
        check_class(room, class_name)
    what = f"class {class_name}" if class_name else "no class"
    why = f"{what}: {why}" if why else what
    moved = await room.store.reclassify(visitor, ClassClaim(class_name or ""), by=by, why=why)
    if moved == -2:
        raise ProblemError(DRAWN_PLACE, detail="It can be moved, after the opening.")
    return moved


@ENDPOINTS.put(
    "/v1/rooms/{room}/visitors/{visitor}/class",
    programs("classes", role="operator"),
    replies={200: "The visitor's new position."},
    problems=(UNKNOWN_VISITOR, AMBIGUOUS_NUMBER, UNKNOWN_CLASS, DRAWN_PLACE),
)
async def choose_class(
    request: web.Request, params: VisitorAddress, body: ChooseClass
) -> VisitorMoved:
    """Choose the class of a waiting visitor, without a grant.

    Idempotent. The room's log names the token."""
    room, owner = room_of(request), owner_of(request)
    by = find_logged_name(request) if owner.is_operator else f"token {owner.name}"
    visitor = await _find_id(request, params)
    position = await _change_class(room, visitor, body.class_, by=by, why=body.why)
    if position == 0:
        raise ProblemError(UNKNOWN_VISITOR, detail=f"{visitor} is not waiting")
    log.info("class_chosen", room=room.name, visitor=visitor, position=position, by=by)
    return VisitorMoved(room=room.name, visitor=visitor, position=position)
