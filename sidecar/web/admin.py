"""The operator's calls, by bearer token or the dashboard's session: look at rooms, change them,
release a session."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from sidecar.base.clock import iso
from sidecar.base.errors import ConfigError
from sidecar.base.rooms import RoomSettings
from sidecar.core import modes
from sidecar.web.asked import object_of, page_of, room_of, visitor_of
from sidecar.web.keys import LIVE, ROOMS, SETTINGS
from sidecar.web.login import operator_of, refusal
from sidecar.web.problems import problem

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from sidecar.core.rooms import Room
    from sidecar.store.replies import Snapshot

MAX_POSITION = 100_000_000

log = structlog.get_logger()


@web.middleware
async def authorised(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets nobody at /admin/ without the token, or a session that was begun with it."""
    if not request.path.startswith("/admin/"):
        return await handler(request)
    token = request.app[SETTINGS].admin_token
    if not token:
        return problem(
            403, "Administration is off", detail="Set admin_token (WAITROOM_ADMIN_TOKEN) first."
        )
    is_by_token = "Authorization" in request.headers
    refused = _by_token(request, token) if is_by_token else _by_session(request)
    if refused is not None:
        return refused
    response = await handler(request)
    if request.method not in {"GET", "HEAD"}:
        request.app[LIVE].stir()
    return response


def _by_token(request: web.Request, token: str) -> web.Response | None:
    scheme, _, given = request.headers["Authorization"].partition(" ")
    if scheme.lower() == "bearer" and hmac.compare_digest(
        given.strip().encode(errors="surrogateescape"), token.encode()
    ):
        return None
    return _unknown()


def _by_session(request: web.Request) -> web.Response | None:
    who = operator_of(request)
    return _unknown() if who is None else refusal(request, who)


def _unknown() -> web.Response:
    response = problem(401, "A token is needed", detail="Send Authorization: Bearer <token>.")
    response.headers["WWW-Authenticate"] = 'Bearer realm="waitroom"'
    return response


async def list_rooms(request: web.Request) -> web.Response:
    rooms = [_describe(room, await room.refresh()) for room in request.app[ROOMS]]
    return web.json_response({"rooms": rooms})


async def show_room(request: web.Request) -> web.Response:
    room = room_of(request)
    return web.json_response(_describe(room, await room.refresh()))


async def change_room(request: web.Request) -> web.Response:
    """A JSON object of settings; null goes back to the file's value. All or nothing."""
    room = room_of(request)
    changes = await object_of(request)
    if not changes:
        raise ConfigError(["the body names no setting"])
    return await _change(request, room, changes)


async def act_on_room(request: web.Request) -> web.Response:
    """pause, drain or resume: changes of settings that have a name."""
    room = room_of(request)
    return await _change(
        request, room, modes.changes(request.match_info["act"], room.file_settings)
    )


async def _change(request: web.Request, room: Room, changes: dict[str, Any]) -> web.Response:
    await room.refresh()
    file = room.file_settings.model_dump()
    known = set(RoomSettings.model_fields)
    unknown = [f"{name}: there is no such setting" for name in changes if name not in known]
    if unknown:
        raise ConfigError(unknown)
    merged = {name: file[name] if value is None else value for name, value in changes.items()}
    checked = room.settings.changed(merged).model_dump()
    await room.store.configure(
        {name: None if value is None else checked[name] for name, value in changes.items()},
        by=operator(request),
    )
    log.info("changed", room=room.name, changes=changes)
    return web.json_response(_describe(room, await room.refresh()))


async def reset_room(request: web.Request) -> web.Response:
    """Empties the line; who is inside stays."""
    room = room_of(request)
    removed = await room.store.reset(by=operator(request))
    log.info("reset", room=room.name, removed=removed)
    return web.json_response({"room": room.name, "removed": removed})


async def list_waiting(request: web.Request) -> web.Response:
    room = room_of(request)
    offset, limit = page_of(request)
    rows = await room.store.lists.line(offset=offset, limit=limit)
    people = [
        {"visitor": visitor, "position": offset + i, "order": order}
        for i, (visitor, order) in enumerate(rows, start=1)
    ]
    return web.json_response({"room": room.name, "waiting": people})


async def list_sessions(request: web.Request) -> web.Response:
    room = room_of(request)
    offset, limit = page_of(request)
    rows = await room.store.lists.sessions(offset=offset, limit=limit)
    people = [{"visitor": visitor, "ends_at_ms": ends} for visitor, ends in rows]
    return web.json_response({"room": room.name, "sessions": people})


async def find_visitor(request: web.Request) -> web.Response:
    """Where one visitor is: waiting, called, inside, revoked or unknown."""
    room, visitor = room_of(request), visitor_of(request)
    found = await room.store.lists.find(visitor)
    if found.position is not None:
        state = "waiting"
    elif found.revoked_ms is not None:
        state = "revoked"
    elif found.ends_ms is not None:
        state = "called" if found.started_ms is None else "inside"
    else:
        state = "unknown"
    return web.json_response(
        {
            "room": room.name,
            "visitor": visitor,
            "state": state,
            "position": found.position,
            "started_at_ms": found.started_ms,
            "ends_at_ms": found.ends_ms,
            "revoked_at_ms": found.revoked_ms,
        }
    )


async def release_visitor(request: web.Request) -> web.Response:
    """Ends one visitor's session or place."""
    room, visitor = room_of(request), visitor_of(request)
    if not await room.release(visitor, by=operator(request)):
        return problem(404, "Unknown visitor", detail=f"{visitor} is neither inside nor in line")
    log.info("released", room=room.name, visitor=visitor)
    return web.json_response({"room": room.name, "visitor": visitor, "released": True})


async def move_visitor(request: web.Request) -> web.Response:
    """Takes somebody in line to the position that the body names: {"position": 1} is the head."""
    room, visitor = room_of(request), visitor_of(request)
    body = await object_of(request)
    position: Any = body.get("position")
    # JSON has one kind of number: 1.0 is 1.
    is_whole = type(position) is int or (type(position) is float and position.is_integer())
    if set(body) != {"position"} or not is_whole or not 1 <= position <= MAX_POSITION:
        raise ConfigError(['position: a whole number from 1 on, such as {"position": 1}'])
    moved = await room.store.move(visitor, int(position), by=operator(request))
    if moved == 0:
        return problem(404, "Unknown visitor", detail=f"{visitor} is not in line")
    if moved < 0:
        return problem(
            409, "No place is free there", detail="Those who stand there joined at once; try 1."
        )
    log.info("moved", room=room.name, visitor=visitor, position=moved)
    return web.json_response({"room": room.name, "visitor": visitor, "position": moved})


async def show_log(request: web.Request) -> web.Response:
    """What operators did, latest first."""
    room = room_of(request)
    return web.json_response({"room": room.name, "log": await room.store.lists.log()})


def operator(request: web.Request) -> str:
    """Who says so, for the log: whoever is logged in, or what a caller with the token calls
    itself."""
    if "Authorization" not in request.headers and (who := operator_of(request)):
        return who.name
    given = request.headers.get("X-Waitroom-Operator", "")
    return "".join(c for c in given if c.isprintable())[:64] or "api"


def _describe(room: Room, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "room": room.name,
        "mode": modes.mode(room.settings),
        "waiting": snapshot.waiting,
        "active": snapshot.active,
        "provisional": snapshot.provisional,
        "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
        "revision": snapshot.revision,
        "replicas": snapshot.replicas,
        "recovery_stage": snapshot.recovery_stage,
        "recovers_until": iso(snapshot.recovers_until_ms) if snapshot.recovery_stage == 2 else None,
        "settings": room.settings.model_dump(),
        "changed": snapshot.overrides,
        "counters": {
            name: int(value)
            for name, value in snapshot.counters.items()
            if name not in _INTERNAL and not name.startswith("wait_")
        },
    }


#: What the scripts remember for themselves, beside the counters.
_INTERNAL = {
    "last_order", "tokens", "tokens_at", "measured_at", "ends", "held_ms", "drops", "waited_ms",
    "born", "recovery", "address_at",
}  # fmt: skip
