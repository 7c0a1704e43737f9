"""The documents that doors take and give, as JSON Schema; made of the code's own types where it has
them."""

from __future__ import annotations

from sidecar.kit.http import settings_schema
from sidecar.kit.http.openapi import (
    ROOM,
    VISITOR_ID,
    Json,
    rows,
    text,
    thing,
    whole,
)
from sidecar.queue.classes import Line, VisitorClass
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings

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
        **settings_schema.schemas(RoomSettings, VisitorClass, Line, RoomEvent),
        "Problem": _PROBLEM,
    }
