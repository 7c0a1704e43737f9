"""The operator's calls, by bearer token or the dashboard's session: look at rooms, change them,
release a session."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError
from sidecar.kit.http.auth.session import operator
from sidecar.kit.http.problems import problem
from sidecar.kit.http.request_parameters import object_of, page_of
from sidecar.lottery.service import problems_of_change
from sidecar.queue.model import Phase
from sidecar.rooms import modes
from sidecar.rooms.app_keys import ROOMS
from sidecar.rooms.endpoints.request_parameters import room_of, visitor_of
from sidecar.rooms.places import line_of
from sidecar.rooms.statistics import lines_of, place_in_sub_queue
from sidecar.rooms.store.scripts import Claim

if TYPE_CHECKING:
    from sidecar.rooms.service import Room
    from sidecar.rooms.store.lists import Found
    from sidecar.rooms.store.replies import Snapshot

MAX_POSITION = 100_000_000
#: Positions that have a name; the engine's 0 is back to where somebody was before the first move.
PLACES = {"head": 1, "back": 0}
WHY_LENGTH = 200
#: No line ends, no other control characters, no halves of characters. JSON Schema writes it so too.
WHY = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*$"

log = structlog.get_logger()


async def list_rooms(request: web.Request) -> web.Response:
    rooms = [_describe(room, await room.refresh()) for room in request.app[ROOMS]]
    return web.json_response({"rooms": rooms})


async def show_room(request: web.Request) -> web.Response:
    room = room_of(request)
    return web.json_response(_describe(room, await room.refresh()))


async def change_room(request: web.Request) -> web.Response:
    """A JSON object of settings; null resets to the configured value. All or nothing."""
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
    merged = {name: file.get(name) if value is None else value for name, value in changes.items()}
    changed, problems = room.settings.overridden(merged)
    problems += problems_of_change(room.settings.events, changed.events, room.clock.now_ms())
    if problems:
        raise ConfigError(problems)
    checked = changed.model_dump()
    await room.store.configure(
        {name: None if value is None else checked[name] for name, value in changes.items()},
        by=operator(request),
    )
    log.info("changed", room=room.name, changes=changes)
    return web.json_response(_describe(room, await room.refresh()))


async def reset_room(request: web.Request) -> web.Response:
    """Empties the queue; sessions stay."""
    room = room_of(request)
    removed = await room.store.reset(by=operator(request))
    log.info("reset", room=room.name, removed=removed)
    return web.json_response({"room": room.name, "removed": removed})


async def list_waiting(request: web.Request) -> web.Response:
    """All who wait, the smallest order first; not in a pre-queue, whose lots nobody is to know."""
    room = room_of(request)
    offset, limit = page_of(request)
    if _is_drawing(room):
        return problem(
            409, "Nothing is drawn yet", detail="Nobody has a place before the pre-queue is over."
        )
    rows = await room.store.lists.line(offset=offset, limit=limit)
    people = [
        {
            "visitor": visitor,
            "position": offset + i,
            "order": order,
            "line": line_of(order, room.settings.lines),
        }
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
            **await _place(room, found),
            "started_at_ms": found.started_ms,
            "ends_at_ms": found.ends_ms,
            "revoked_at_ms": found.revoked_ms,
        }
    )


async def _place(room: Room, found: Found) -> dict[str, Any]:
    """Where somebody stands among all who wait, and in their line."""
    place: dict[str, Any] = {"position": None, "line": None, "line_position": None}
    if found.position is None or found.order is None or _is_drawing(room):
        return place
    place["position"], place["line"] = found.position, line_of(found.order, room.settings.lines)
    if place["line"]:
        snapshot = await room.refresh()
        place["line_position"] = place_in_sub_queue(
            found.position, place["line"], room.settings, snapshot
        )
    return place


def _is_drawing(room: Room) -> bool:
    return room.settings.moments(room.clock.now_ms()).phase is Phase.PREQUEUE


async def release_visitor(request: web.Request) -> web.Response:
    """Ends one visitor's session or place."""
    room, visitor = room_of(request), visitor_of(request)
    if not await room.release(visitor, by=operator(request)):
        return problem(404, "Unknown visitor", detail=f"{visitor} is neither inside nor waiting")
    log.info("released", room=room.name, visitor=visitor)
    return web.json_response({"room": room.name, "visitor": visitor, "released": True})


async def move_visitor(request: web.Request) -> web.Response:
    """Takes somebody to a position in their line, {"position": 3}, "head" or "back" (to where they
    were before anybody moved them); or gives them another class, {"class": "vip"}, null for none.
    "why" goes into the log."""
    room, visitor = room_of(request), visitor_of(request)
    body = await object_of(request)
    _check_move(body)
    by, why = operator(request), body.get("why", "")
    if "class" not in body:
        position = PLACES.get(body["position"]) if isinstance(body["position"], str) else None
        to = int(body["position"]) if position is None else position
        moved = await room.store.move(visitor, to, by=by, why=why)
    else:
        name = body["class"]
        if name is not None and name not in room.settings.classes:
            known = ", ".join(room.settings.classes) or "it has none"
            return problem(404, "Unknown class", detail=f"The classes of {room.name}: {known}.")
        said = f"class {name}" if name else "no class"
        why = f"{said}: {why}" if why else said
        moved = await room.store.reclassify(visitor, Claim(name or ""), by=by, why=why)
        if moved == -2:
            return problem(
                409, "A drawn place has no class", detail="It can be moved, after the opening."
            )
    if moved == 0:
        return problem(404, "Unknown visitor", detail=f"{visitor} is not waiting")
    if moved < 0:
        title, detail = _NOT_MOVED[moved]
        return problem(409, title, detail=detail)
    log.info("moved", room=room.name, visitor=visitor, position=moved, by=by, why=why)
    return web.json_response({"room": room.name, "visitor": visitor, "position": moved})


#: What RoomStore.move says where nothing was moved.
_NOT_MOVED = {
    -1: ("No place is free there", "Those who stand there joined at once; try 1."),
    -2: ("Nothing is drawn yet", "Nobody is moved before the pre-queue is over."),
    -3: ("Nobody moved this visitor", "So there is no place to go back to."),
}


def _check_move(body: dict[str, Any]) -> None:
    """Raises ConfigError."""
    known = {"position", "class", "why"}
    problems = []
    if ("position" in body) == ("class" in body):
        problems.append('position: say either this, such as {"position": 1}, or class')
    elif "position" in body and not _is_position(body["position"]):
        problems.append('position: a whole number from 1 on, "head" or "back"')
    elif "class" in body and not isinstance(body["class"], str | None):
        problems.append("class: the name of one, or null for none")
    problems += [f"{name}: unknown member" for name in body if name not in known]
    why = body.get("why", "")
    if not isinstance(why, str) or len(why) > WHY_LENGTH or not re.fullmatch(WHY, why):
        problems.append(f"why: text of {WHY_LENGTH} characters at most, on one line")
    if problems:
        raise ConfigError(problems)


def _is_position(value: Any) -> bool:
    if isinstance(value, str):
        return value in PLACES
    # JSON has one kind of number: 1.0 is 1.
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return is_whole and 1 <= value <= MAX_POSITION


async def show_log(request: web.Request) -> web.Response:
    """What operators did, latest first."""
    room = room_of(request)
    return web.json_response({"room": room.name, "log": await room.store.lists.log()})


def _describe(room: Room, snapshot: Snapshot) -> dict[str, Any]:
    moments = room.settings.moments(snapshot.now_ms)
    return {
        "room": room.name,
        "mode": modes.mode(room.settings),
        "phase": snapshot.phase,
        "event": moments.event and moments.event.name,
        "coming": moments.coming and moments.coming.name,
        "waiting": snapshot.waiting,
        "active": snapshot.active,
        "provisional": snapshot.provisional,
        "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
        "lines": lines_of(room.settings, snapshot),
        "revision": snapshot.revision,
        "replicas": snapshot.replicas,
        "recovery_stage": snapshot.recovery_stage,
        "recovers_until": iso(snapshot.recovers_until_ms) if snapshot.recovery_stage == 2 else None,
        "settings": room.settings.model_dump(),
        "changed": snapshot.overrides,
        "counters": {
            name: int(value)
            for name, value in snapshot.counters.items()
            if name not in _INTERNAL and not name.startswith(("wait_", "credit_"))
        },
    }


#: What the scripts remember for themselves, beside the counters.
_INTERNAL = {
    "last_order", "tokens", "tokens_at", "measured_at", "ends", "held_ms", "drops", "waited_ms",
    "born", "recovery", "back", "near", "address_at", "drawn_from", "shown_lines", "last_end",
}  # fmt: skip
