"""Settings as JSON Schema, as they are told and as they are asked for; made of the models
that read them."""

from __future__ import annotations

from sidecar.kit.http.openapi import Json, text, thing
from sidecar.kit.http.settings_schema import as_asked, as_told, one_of
from sidecar.queue.classes import Line, VisitorClass
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings

#: What settings are made of.
_TABLES = (VisitorClass, Line, RoomEvent)
_TEXTS = {
    "CountAsText": text(pattern="^[0-9]+$"),
    "NumberAsText": text(pattern=r"^[0-9]+(\.[0-9]+)?$"),
    "ListAsText": text("With commas or spaces between; lists of objects as JSON."),
    "JsonAsText": text("As JSON."),
    "SwitchAsText": {"enum": ["true", "false", "yes", "no", "on", "off", "1", "0", 1, 0]},
    "Duration": text(
        "With a unit: 500ms, 30s, 5m, 1.5h, 2d; without one, seconds.",
        pattern=r"^\s*[0-9]+(\.[0-9]+)?\s*([mM][sS]|[sSmMhHdD])?\s*$",
        examples=["90s", "5m"],
    ),
    "Moment": text(
        "A date and a time; without an offset, of the event's time zone.",
        pattern=r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
        r"([Zz]|[+-][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?\s*$",
        examples=["2026-12-01 10:00", "2026-12-01T10:00:00+01:00"],
    ),
}


def schemas() -> Json:
    told = {model.__name__: thing(as_told(model)) for model in _TABLES}
    asked = {
        f"{model.__name__}Asked": {
            "type": "object",
            "properties": as_asked(model),
            "required": [n for n, field in model.model_fields.items() if field.is_required()],
            "additionalProperties": False,
        }
        for model in _TABLES
    }
    return {"Settings": _settings(), "Changes": _changes(), **told, **asked, **_TEXTS}


def _settings() -> Json:
    """All of a room's settings, durations as seconds, times as ms."""
    return thing(
        as_told(RoomSettings), description="Every setting, with the changes made at run time."
    )


def _changes() -> Json:
    """Some of a room's settings. Text is understood wherever a variable's would be."""
    null: Json = {"type": "null"}
    made = {name: one_of(found, null) for name, found in as_asked(RoomSettings).items()}
    return {
        "type": "object",
        "description": "Settings by name. null goes back to what the replica's file says. All are "
        "changed, or none. What each means, and the rules between them: docs/configuration.md.",
        "properties": made,
        "additionalProperties": False,
        "minProperties": 1,
    }
