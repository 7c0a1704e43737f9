"""Settings as JSON Schema, made of the models that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.http.openapi import Json, or_null, shape, text
from sidecar.kit.moments import parse_moment
from sidecar.kit.setting_types import parse_duration

if TYPE_CHECKING:
    from typing import Any

    from pydantic import BaseModel


#: A setting's text, for those whose value is no text: as a variable has it.
_AS_TEXT = {
    "integer": "CountAsText",
    "number": "NumberAsText",
    "array": "ListAsText",
    "object": "JsonAsText",
    "boolean": "SwitchAsText",
}

_BOUNDS = {"ge": "minimum", "le": "maximum"}
DURATION = r"^\s*[0-9]+(\.[0-9]+)?\s*([mM][sS]|[sSmMhHdD])?\s*$"
_TEXTS: Json = {
    "CountAsText": text(pattern="^[0-9]+$"),
    "NumberAsText": text(pattern=r"^[0-9]+(\.[0-9]+)?$"),
    "ListAsText": text("With commas or spaces between; lists of objects as JSON."),
    "JsonAsText": text("As JSON."),
    "SwitchAsText": {"enum": ["true", "false", "yes", "no", "on", "off", "1", "0", 1, 0]},
    "Duration": text(
        "With a unit: 500ms, 30s, 5m, 1.5h, 2d; without one, seconds.",
        pattern=DURATION,
        examples=["90s", "5m"],
    ),
    "Moment": text(
        "A date and a time; without an offset, of the event's time zone.",
        pattern=r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
        r"([Zz]|[+-][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?\s*$",
        examples=["2026-12-01 10:00", "2026-12-01T10:00:00+01:00"],
    ),
}


def schemas(changes: type[BaseModel], *tables: type[BaseModel]) -> Json:
    """`Changes` of some of a model's settings, where null goes back to the configured value and
    text is understood wherever a variable's would be; `tables`: what the settings are made of."""
    null: Json = {"type": "null"}
    made = {name: one_of(found, null) for name, found in as_asked(changes).items()}
    asked = {
        f"{model.__name__}Asked": {
            "type": "object",
            "properties": as_asked(model),
            "required": [n for n, field in model.model_fields.items() if field.is_required()],
            "additionalProperties": False,
        }
        for model in tables
    }
    return {
        **_TEXTS,
        **asked,
        "Changes": {
            "type": "object",
            "description": "Settings by name. null goes back to what the replica's file says. All "
            "are changed, or none. What each means, and the rules between them: "
            "docs/configuration.md.",
            "properties": made,
            "additionalProperties": False,
            "minProperties": 1,
        },
    }


def as_told(model: type[BaseModel]) -> Json:
    """Each setting by name: durations in seconds, times in ms."""
    made: Json = {}
    for name, found in _fields(model, "").items():
        made[name] = or_null(found) if found.pop("nullable") else found
        if _reads(model, name, parse_duration):
            made[name]["description"] = "Seconds."
        elif _reads(model, name, parse_moment):
            made[name]["description"] = "ms since 1970."
    return made


def as_asked(model: type[BaseModel]) -> Json:
    """Each setting by name, with the text that is understood in its place."""
    made: Json = {}
    for name, found in _fields(model, "Asked").items():
        is_nullable, kind = found.pop("nullable"), found.get("type")
        others: list[Json] = []
        if _reads(model, name, parse_duration):
            found["description"] = "Seconds."
            others.append(shape("Duration"))
        elif _reads(model, name, parse_moment):
            found["description"] = "ms since 1970."
            others.append(shape("Moment"))
        elif "enum" in found and kind == "integer":
            others.append({"enum": [str(value) for value in found["enum"]]})
        elif kind in _AS_TEXT:
            others.append(shape(_AS_TEXT[kind]))
        made[name] = one_of(found, *others, *([{"type": "null"}] if is_nullable else []))
    return made


def one_of(first: Json, *others: Json) -> Json:
    options = [*(first["anyOf"] if set(first) == {"anyOf"} else [first]), *others]
    unlike = [option for n, option in enumerate(options) if option not in options[:n]]
    return {"anyOf": unlike} if len(unlike) > 1 else unlike[0]


def _fields(model: type[BaseModel], suffix: str) -> Json:
    """By name: the schema of a value other than null, with `nullable` beside it. `suffix`: of the
    names of what it is made of."""
    template = "#/components/schemas/{model}" + suffix
    found: Json = {}
    for name, made in model.model_json_schema(ref_template=template)["properties"].items():
        options = made.get("anyOf", [made])
        values = [option for option in options if option.get("type") != "null"]
        schema = {_BOUNDS.get(key, key): value for key, value in values[0].items()}
        for key in ("title", "default"):
            schema.pop(key, None)
        found[name] = {**schema, "nullable": len(values) < len(options)}
    return found


def _reads(model: type[BaseModel], name: str, function: Any) -> bool:
    """Whether a field is read by a function."""
    field = model.model_fields[name]
    return _has(function, [field.annotation, field.metadata])


def _has(function: Any, hint: Any) -> bool:
    if isinstance(hint, list | tuple):
        return any(_has(function, part) for part in hint)
    if getattr(hint, "func", None) is function:
        return True
    parts = (getattr(hint, "__metadata__", ()), getattr(hint, "__args__", ()))
    return any(_has(function, part) for part in parts if part)
