"""JSON Schemas of changes to settings, made from the settings' models."""

from typing import Any

from pydantic import BaseModel

from sidecar.app.openapi.operations import Json, description_of
from sidecar.kit.moments import parse_moment
from sidecar.kit.setting_types import DURATION, parse_duration

_BOUNDS = {"ge": "minimum", "le": "maximum"}
#: The schema of a setting's text in a variable, by the type of its value.
_AS_TEXT = {
    "integer": "CountAsText",
    "number": "NumberAsText",
    "array": "ListAsText",
    "object": "JsonAsText",
    "boolean": "SwitchAsText",
}
_TEXTS: Json = {
    "CountAsText": {"type": "string", "pattern": "^[0-9]+$"},
    "NumberAsText": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"},
    "ListAsText": {
        "description": "With commas or spaces between; lists of objects as JSON.",
        "type": "string",
    },
    "JsonAsText": {"description": "As JSON.", "type": "string"},
    "SwitchAsText": {"enum": ["true", "false", "yes", "no", "on", "off", "1", "0", 1, 0]},
    "Duration": {
        "description": "With a unit: 500ms, 30s, 5m, 1.5h, 2d; without one, seconds.",
        "type": "string",
        "pattern": DURATION,
        "examples": ["90s", "5m"],
    },
    "Moment": {
        "description": "A date and a time; without an offset, of the event's time zone.",
        "type": "string",
        "pattern": r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}[ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
        r"([Zz]|[+-][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?\s*$",
        "examples": ["2026-12-01 10:00", "2026-12-01T10:00:00+01:00"],
    },
}
#: By the function that reads a setting: the schemas of its value and of its text.
_READ_BY = {
    parse_duration: ("Seconds.", "Duration"),
    parse_moment: ("ms since 1970.", "Moment"),
}


def schemas(changes: type[BaseModel], *tables: type[BaseModel]) -> Json:
    """Return the schema `Changes` of some of a model's settings, and the schemas of `tables` in
    them. A setting may be null, to reset it, or text as in a variable."""
    return {
        **_TEXTS,
        **{
            f"{model.__name__}Asked": {
                "type": "object",
                "properties": accepted(model),
                "required": [n for n, field in model.model_fields.items() if field.is_required()],
                "additionalProperties": False,
            }
            for model in tables
        },
        "Changes": {
            "type": "object",
            "description": "Settings by name. null resets one to the replica's configured value. "
            "All are changed, or none.",
            "properties": accepted(changes, {"type": "null"}),
            "additionalProperties": False,
            "minProperties": 1,
        },
    }


def accepted(model: type[BaseModel], *others: Json) -> Json:
    """Return the schema of each setting by name, with the text and the `others` it also accepts."""
    made: Json = {}
    template = "#/components/schemas/{model}Asked"
    for name, schema in model.model_json_schema(ref_template=template)["properties"].items():
        options = schema.get("anyOf", [schema])
        value, *_ = (option for option in options if option.get("type") != "null")
        plain = {
            _BOUNDS.get(key, key): its
            for key, its in value.items()
            if key not in {"title", "default"}
        }
        nulls = (one for one in options if one == {"type": "null"})
        made[name] = {
            **_one_of(*_with_text(plain, model, name), *nulls, *others),
            "description": description_of(model, name),
        }
    return made


def _with_text(plain: Json, model: type[BaseModel], name: str) -> list[Json]:
    """Return the schema of a value or the text in its place."""
    field, kind = model.model_fields[name], plain.get("type", "")
    for function, (meaning, text) in _READ_BY.items():
        if _is_in(function, [field.annotation, field.metadata]):
            return [{**plain, "description": meaning}, _schema(text)]
    if "enum" in plain and kind == "integer":
        return [plain, {"enum": [str(value) for value in plain["enum"]]}]
    return [plain, _schema(_AS_TEXT[kind])] if kind in _AS_TEXT else [plain]


def _schema(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _one_of(*options: Json) -> Json:
    unlike = [option for n, option in enumerate(options) if option not in options[:n]]
    return {"anyOf": unlike} if len(unlike) > 1 else unlike[0]


def _is_in(function: Any, hint: Any) -> bool:
    """Return True if a type is annotated with a validator that calls the function."""
    if isinstance(hint, list | tuple):
        return any(_is_in(function, part) for part in hint)
    if getattr(hint, "func", None) is function:
        return True
    parts = (*getattr(hint, "__metadata__", ()), *getattr(hint, "__args__", ()))
    return _is_in(function, parts)
