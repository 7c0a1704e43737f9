"""The operator's doors: rooms, their lines, single visitors, moving a room."""

from __future__ import annotations

from typing import Any

from sidecar.kit.http.openapi import (
    CHANGES,
    READS,
    Json,
    body,
    moment,
    or_null,
    parameters,
    ref,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.queue.grants import MAX_LIFE_S
from sidecar.queue.model import Phase
from sidecar.rooms.endpoints.grants import DEFAULT_LIFE_S, MAX_COUNT
from sidecar.rooms.endpoints.operator import MAX_POSITION, PLACES, WHY, WHY_LENGTH
from sidecar.rooms.modes import ACTS
from sidecar.rooms.openings_preview import STEPS
from sidecar.rooms.store.transfer import FORMAT, PAGE, READ_ORDER, WRITE_ORDER

_ROOM = "/admin/rooms/{room}"
_VISITOR = _ROOM + "/visitors/{visitor}"
_ROOM_STATE = reply("The room.", shape("RoomState"))


def _read(name: str, summary: str, answer: Json, *refused: str, **more: Any) -> Json:
    """A look, which may be refused for want of a token and while the store is away too."""
    return {
        "operationId": name,
        "tags": ["administration"],
        "summary": summary,
        **more,
        "responses": {"200": answer, **refusals("401", "403", "503", *refused)},
        "security": READS,
    }


def _change(name: str, summary: str, answer: Json, *refused: str, **more: Any) -> Json:
    made = _read(name, summary, answer, "404", *refused, **more)
    made["parameters"] = [*parameters("Operator"), *made.get("parameters", [])]
    return {**made, "security": CHANGES}


def _unknown(description: str) -> Json:
    return {
        "description": description,
        "headers": {"Cache-Control": ref("headers", "NoStore")},
        "content": {"application/problem+json": {"schema": shape("Problem")}},
    }


def _of_room(properties: Json) -> Json:
    return thing({"room": shape("Room"), **properties})


def _of_visitor(properties: Json) -> Json:
    return _of_room({"visitor": shape("VisitorId"), **properties})


def paths() -> Json:
    return {**_rooms(), **_events(), **_grants(), **_lists(), **_visitors(), **_transfer()}


def _rooms() -> Json:
    return {
        "/admin/rooms": {
            "get": _read(
                "listRooms", "All rooms: numbers, settings, what was changed",
                reply("The rooms.", thing({"rooms": rows(shape("RoomState"))})),
            )
        },
        _ROOM: {
            "parameters": parameters("Room"),
            "get": _read("getRoom", "A room: numbers, settings, what was changed", _ROOM_STATE,
                         "404"),
            "patch": _change(
                "changeRoom", "Change settings while the room runs", _ROOM_STATE,
                "400", "413", "422",
                description="Holds for all replicas within two seconds, and survives a restart.",
                requestBody=body(shape("Changes"), {
                    "a higher cap": {"total_active_users": 300},
                    "back to the file": {"total_active_users": None, "message": None},
                }),
            ),
        },
        _ROOM + "/{act}": {
            "parameters": parameters("Room"),
            "post": _change(
                "actOnRoom", "Pause, drain or resume", _ROOM_STATE, "422",
                description="pause: newcomers wait and nobody is called; drain: nobody new may "
                "wait, those in line are let in; resume takes either back. Those inside stay.",
                parameters=[{
                    "name": "act", "in": "path", "required": True,
                    "schema": {"type": "string", "enum": list(ACTS)},
                }],
            ),
        },
        _ROOM + "/reset": {
            "parameters": parameters("Room"),
            "post": _change(
                "resetRoom", "Empty the line; who is inside stays",
                reply("How many places were removed.", _of_room({"removed": whole()})),
            ),
        },
    }  # fmt: skip


def _events() -> Json:
    phase, name = words(*(phase.value for phase in Phase)), text("An event's name.")
    own = {"type": ["integer", "null"], "minimum": 1}
    holding = {
        "total_active_users": whole(), "new_users_per_minute": own, "message": or_null(text()),
    }  # fmt: skip
    local = text("In the events' time zone; UTC where they have several.", format="date-time")
    step = {
        "step": words(*STEPS),
        "phase": {**phase, "description": "What begins then."},
        "at": moment(),
        "local": text("In the event's time zone.", format="date-time"),
        "in_seconds": {"type": "integer", "description": "From now on; below 0: so long ago."},
    }
    event = {
        "name": name,
        "timezone": text(),
        "state": words("coming", "prequeue", "open", "over", description="Now."),
        "before": {**phase, "description": "What the room is until it begins."},
        "steps": rows(thing(step), "In the order of their times."),
        **holding,
    }
    told = {
        "at": moment("What is told first holds then."),
        "local": local,
        "phase": phase,
        "event": or_null({**name, "description": "In whose pre-queue or opening it is."}),
        "coming": or_null({**name, "description": "The next one."}),
        "mode": text("As the room's."),
        **holding,
        "events": rows(thing(event), "By time, with what holds while each is open."),
        "warnings": rows(text(), "What is allowed, and looks like a mistake."),
    }
    at = {
        "name": "at", "in": "query", "schema": moment(),
        "description": "What holds then, otherwise now. Without an offset: in the events' time "
        "zone, as in 2026-12-01 10:05.",
    }  # fmt: skip
    look = _read(
        "previewEvents", "What a room's events will do, and when",
        reply("The events.", _of_room(told)), "404", "422", parameters=[at],
    )  # fmt: skip
    return {_ROOM + "/events": {"parameters": parameters("Room"), "get": look}}


def _grants() -> Json:
    number = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_LIFE_S}
    asked = {
        "class": text(),
        "expires_in": {"anyOf": [number, shape("Duration")], "default": DEFAULT_LIFE_S},
        "once": {"type": "boolean", "default": False},
        "count": whole(minimum=1, maximum=MAX_COUNT, default=1),
    }
    one = {**asked, "count": {"const": 1}}
    each = {**asked, "once": {"const": True}}
    closed = {"additionalProperties": False}
    issue = _change(
        "issueGrants", "Make grants, which give their bearers a class",
        reply("The grants, and when they end. A page is asked for with waitroom_grant=… among "
              "its parameters.",
              _of_room({"class": text(), "expires_at": moment(), "grants": rows(text())})),
        "400", "413", "422",
        description="`expires_in`: seconds, or text with a unit, 366 days at most. `once`: each "
        "gives the class to one visitor only. `count`: more than one only with `once`.",
        requestBody=body(
            {"anyOf": [
                {**thing(one, optional=("expires_in", "once", "count")), **closed},
                {**thing(each, optional=("expires_in", "count")), **closed},
            ]},
            {"for whoever comes by a link": {"class": "vip", "expires_in": "2h"},
             "for members, each once": {"class": "vip", "once": True, "count": 100}},
        ),
    )  # fmt: skip
    issue["responses"]["404"] = _unknown("No such room, or no such class in it.")
    return {_ROOM + "/grants": {"parameters": parameters("Room"), "post": issue}}


def _lists() -> Json:
    order = {"type": "integer", "description": "Smaller is sooner."}
    waiting = thing(
        {
            "visitor": shape("VisitorId"),
            "position": whole("Among all who wait.", minimum=1),
            "order": order,
            "line": or_null(text("null: the room has none, or the place was drawn.")),
        }
    )
    session = thing({"visitor": shape("VisitorId"), "ends_at_ms": whole("ms since 1970")})
    pages = {"parameters": parameters("Offset", "Limit")}
    return {
        _ROOM + "/waiting": {
            "parameters": parameters("Room"),
            "get": _read("listWaiting", "All who wait, from the smallest order on",
                         reply("A page of it.", _of_room({"waiting": rows(waiting)})),
                         "404", "409", "422",
                         description="Refused in a pre-queue: nobody is to know a lot before the "
                         "opening.", **pages),
        },
        _ROOM + "/sessions": {
            "parameters": parameters("Room"),
            "get": _read("listSessions", "Sessions, the next to end first",
                         reply("A page of them.", _of_room({"sessions": rows(session)})),
                         "404", "422", **pages),
        },
        _ROOM + "/log": {
            "parameters": parameters("Room"),
            "get": _read("getLog", "What operators did, latest first",
                         reply("As much of it as the store keeps.",
                               _of_room({"log": rows(shape("Act"))})),
                         "404"),
        },
    }  # fmt: skip


def _visitors() -> Json:
    both = parameters("Room", "Visitor")
    done = _of_visitor({"released": {"const": True}})
    release = _change(
        "releaseVisitor", "End a session, or give up a place",
        reply("Done: the pass or ticket is worth nothing.", done), "422",
    )  # fmt: skip
    move = _change(
        "moveVisitor", "Take somebody in line to another position",
        reply("Where it came to stand: at the end where the line is shorter.",
              _of_visitor({"position": whole(minimum=1)})),
        "400", "409", "413", "422",
        description="Either to a `position` of their line, or to the place of another `class`.",
        requestBody=body({"anyOf": [_move_to("position"), _move_to("class")]}, {
            "head": {"position": "head", "why": "ticket 4711, paid twice"},
            "a place": {"position": 20},
            "back to where it was before the first move": {"position": "back"},
            "another class": {"class": "vip"},
            "no class": {"class": None},
        }),
    )  # fmt: skip
    release["responses"] |= refusals("404", unknown="UnknownVisitor")
    move["responses"]["404"] = _unknown(
        "No such room, no such class, or the visitor is not in line."
    )
    return {
        _VISITOR: {
            "parameters": both,
            "get": _read("findVisitor", "Where one visitor is",
                         reply("The state is `unknown` where nothing is known.", shape("Visitor")),
                         "404", "422"),
        },
        _VISITOR + "/release": {"parameters": both, "post": release},
        _VISITOR + "/move": {"parameters": both, "post": move},
    }  # fmt: skip


def _move_to(what: str) -> Json:
    place = whole("From 1, the head, on.", minimum=1, maximum=MAX_POSITION)
    to = {
        "position": {"anyOf": [place, {"enum": list(PLACES)}]},
        "class": or_null(text("One of the room's; null: none.")),
    }
    why = text("For the log.", maxLength=WHY_LENGTH, pattern=WHY, default="")
    asked = thing({what: to[what], "why": why}, optional=("why",))
    return {**asked, "additionalProperties": False}


def _transfer() -> Json:
    head = thing(
        {
            "format": {"const": FORMAT},
            "room": shape("Room"),
            "exported_at_ms": whole("ms since 1970"),
            "epoch": whole(),
            "settings": {"type": "object"},
            "proof": text("That both stores' replicas have the same secret_keys."),
        },
        description="The first line of the file.",
    )
    some = {"type": "array", "items": {"type": "array", "items": {"type": ["string", "number"]},
                                       "minItems": 1}}  # fmt: skip
    line = {
        "kind": {"enum": list(WRITE_ORDER)},
        "rows": {**some, "maxItems": PAGE},
        "exported_at_ms": whole("Of the head: ms since 1970.", maximum=2**53),
    }
    step = {
        "oneOf": [
            thing({"kind": {"enum": ["begin", "end"]}, "head": head}),
            thing(line, description="A line, as the export tells it."),
        ]
    }
    lines = rows({"anyOf": [head, thing({"kind": {"enum": list(WRITE_ORDER)}, "rows": some})]})
    cursor = f"^({'|'.join(READ_ORDER)})-[0-9]{{1,19}}$"
    return {
        _ROOM + "/export": {
            "parameters": parameters("Room"),
            "get": _read(
                "exportRoom", "A page of the room, for another store",
                reply("Lines of a file, and where to go on.",
                      thing({"lines": lines, "next": or_null(text("The next page's cursor."))})),
                "404", "422",
                description="`waitroom rooms export` asks for all pages. docs/rollout.md.",
                parameters=[{"name": "cursor", "in": "query", "schema": text(pattern=cursor),
                             "description": "What the last page called `next`."}],
            ),
        },
        _ROOM + "/import": {
            "parameters": parameters("Room"),
            "post": _change(
                "importRoom", "One step of taking in what was exported",
                reply("How many are new here.", _of_room({"added": whole()})),
                "400", "409", "413", "422",
                description="`begin` pauses the room, then line by line, then `end`, which gives "
                "it the settings of the file. `waitroom rooms import` does it all.",
                requestBody=body(step, {"a line": {
                    "kind": "revoked", "rows": [["hQmVzkXy3c1tA9bWn0Lr-Q", 1795802400000]],
                    "exported_at_ms": 1795802400000,
                }}),
            ),
        },
    }  # fmt: skip
