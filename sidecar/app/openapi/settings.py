"""Builds the JSON Schemas of requests that change settings, from the models of the settings."""

from typing import Any

from pydantic import BaseModel

from sidecar.app.openapi.operations import Json, create_ref, find_description
from sidecar.kit.moments import parse_moment
from sidecar.kit.setting_types import DURATION, parse_duration

_BOUNDS = {"ge": "minimum", "le": "maximum"}
#: Maps the type of a value to the schema's name of a string that may replace the value.
_STRING_BY_TYPE = {
    "integer": "CountAsText",
    "number": "NumberAsText",
    "array": "ListAsText",
    "object": "JsonAsText",
    "boolean": "SwitchAsText",
}
_STRING_SCHEMAS: Json = {
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
#: Maps the parser of a string to the value's description and the name of the string's schema.
_BY_PARSER = {
    parse_duration: ("Seconds.", "Duration"),
    parse_moment: ("ms since 1970.", "Moment"),
}


def create_schemas(changes: type[BaseModel], *tables: type[BaseModel]) -> Json:
    """Create the schema `Changes` for the settings in the model `changes`, and a schema for each
    model of a table in them (`tables`). Each schema allows a string in place of a value."""
    return {
        **_STRING_SCHEMAS,
        **{
            f"{model.__qualname__}Asked": {
                "type": "object",
                "properties": describe_settings(model),
                "required": [n for n, field in model.model_fields.items() if field.is_required()],
                "additionalProperties": False,
            }
            for model in tables
        },
        "Changes": {
            "type": "object",
            "description": "Settings by name. null resets one to the replica's configured value. "
            "All are changed, or none.",
            "properties": describe_settings(changes, {"type": "null"}),
            "additionalProperties": False,
            "minProperties": 1,
        },
    }


def describe_settings(model: type[BaseModel], *others: Json) -> Json:
    """Create the schema of each setting: its value, a string in place of the value, or `others`."""
    schemas: Json = {}
    template = "#/components/schemas/{model}Asked"
    for name, schema in model.model_json_schema(ref_template=template)["properties"].items():
        options = schema.get("anyOf", [schema])
        value, *_ = (option for option in options if option.get("type") != "null")
        plain = {
            _BOUNDS.get(key, key): bound
            for key, bound in value.items()
            if key not in {"title", "default"}
        }
        nulls = (option for option in options if option == {"type": "null"})
        schemas[name] = {
            **_combine_schemas(*_list_value_schemas(plain, model, name), *nulls, *others),
            "description": find_description(model, name),
        }
    return schemas


def _list_value_schemas(plain: Json, model: type[BaseModel], name: str) -> list[Json]:
    """Return the schema of a value, and the schema of a string that may replace the value."""
    field, kind = model.model_fields[name], plain.get("type", "")
    for function, (meaning, string_schema) in _BY_PARSER.items():
        if _has_parser(function, [field.annotation, field.metadata]):
            return [{**plain, "description": meaning}, create_ref("schemas", string_schema)]
    if "enum" in plain and kind == "integer":
        return [plain, {"enum": [str(value) for value in plain["enum"]]}]
    if kind not in _STRING_BY_TYPE:
        return [plain]
    return [plain, create_ref("schemas", _STRING_BY_TYPE[kind])]


def _combine_schemas(*options: Json) -> Json:
    distinct = [option for n, option in enumerate(options) if option not in options[:n]]
    return {"anyOf": distinct} if len(distinct) > 1 else distinct[0]


def _has_parser(function: Any, hint: Any) -> bool:
    """Return True if a type is annotated with a validator that calls `function`."""
    if isinstance(hint, list | tuple):
        return any(_has_parser(function, part) for part in hint)
    if getattr(hint, "func", None) is function:
        return True
    parts = (*getattr(hint, "__metadata__", ()), *getattr(hint, "__args__", ()))
    return _has_parser(function, parts)
