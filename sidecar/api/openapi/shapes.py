"""The documents that doors take and give, as JSON Schema; made of the code's own types where it has
them."""

from __future__ import annotations

from sidecar.kit.http.openapi import (
    ROOM,
    VISITOR_ID,
    Json,
    moment,
    or_null,
    rows,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.queue.model import Phase
from sidecar.rooms.openapi import settings

_EARLIEST = "ms since 1970, by the store's clock"


_ROOM_STATE = thing(
    {
        "room": shape("Room"),
        "mode": words("open", "paused", "draining", "running",
                      description="open: everybody passes; paused: nobody is called; draining: "
                      "nobody new may wait."),
        "phase": words(*(phase.value for phase in Phase), description="By the room's events."),
        "event": or_null(text("In whose pre-queue or opening it is.")),
        "coming": or_null(text("The next event.")),
        "waiting": whole("In line."),
        "active": whole("Sessions, those of the called included."),
        "provisional": whole("Of the active: called, and not yet here."),
        "wait_seconds": or_null(whole("What somebody who came now would wait.")),
        "lines": rows(thing({"line": text(), "waiting": whole(), "wait_seconds": or_null(whole())}),
                      "The room's lines. Drawn places stand in none of them."),
        "revision": whole("Grows with every change of a setting."),
        "replicas": whole("Heard of in the last seconds."),
        "recovery_stage": {"enum": [0, 1, 2], "description": "2: the store was emptied, and nobody "
                           "is called; 1: some in line may be missing yet; 0: as ever."},
        "recovers_until": or_null(moment()),
        "settings": shape("Settings"),
        "changed": {"type": "object", "description": "Settings that were changed at run time."},
        "counters": {"type": "object", "additionalProperties": {"type": "integer"},
                     "description": "Since the store was empty: joined, called, admitted, …"},
    }
)  # fmt: skip
_VISITOR = thing(
    {
        "room": shape("Room"),
        "visitor": shape("VisitorId"),
        "state": words("waiting", "called", "inside", "revoked", "unknown"),
        "position": or_null(whole("Among all who wait; null in a pre-queue.", minimum=1)),
        "line": or_null(text("null: the room has none, or the place was drawn.")),
        "line_position": or_null(whole("In that line, to a few.", minimum=1)),
        "started_at_ms": or_null(whole(_EARLIEST)),
        "ends_at_ms": or_null(whole(_EARLIEST)),
        "revoked_at_ms": or_null(whole(_EARLIEST)),
    }
)
_ACT = thing(
    {
        "at": whole(_EARLIEST),
        "by": text("Who, as they call themselves."),
        "what": text("change, reset, move, back, grade (a class), release, …"),
        "visitor": text("Empty where it is about none."),
        "detail": text(),
    }
)
_PROBLEM = thing(
    {
        "type": text(format="uri-reference"),
        "title": text("What went wrong."),
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": text("Which kind of problem it is, for programs: docs/api.md lists them."),
        "detail": text("What to do."),
        "errors": rows(text(), "Each thing that is wrong, beginning with what it is about."),
        "retry_after_seconds": whole("Retry-After says the same."),
        "retry_after": whole("The same as `retry_after_seconds`.", deprecated=True),
    },
    optional=("detail", "errors", "retry_after_seconds", "retry_after"),
    description="A problem document (RFC 9457).",
)


def schemas() -> Json:
    return {
        "Room": text("A room's name.", pattern=ROOM),
        "VisitorId": text("128 random bits.", pattern=VISITOR_ID),
        **settings.schemas(),
        "RoomState": _ROOM_STATE,
        "Visitor": _VISITOR,
        "Act": _ACT,
        "Problem": _PROBLEM,
    }
