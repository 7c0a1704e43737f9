"""Settings as JSON Schema, made of the models that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.http.openapi import or_null, shape
from sidecar.kit.moments import parse_moment
from sidecar.kit.setting_types import parse_duration

if TYPE_CHECKING:
    from typing import Any

    from pydantic import BaseModel

    from sidecar.kit.http.openapi import Json


#: A setting's text, for those whose value is no text: as a variable has it.
_AS_TEXT = {
    "integer": "CountAsText",
    "number": "NumberAsText",
    "array": "ListAsText",
    "object": "JsonAsText",
    "boolean": "SwitchAsText",
}

_BOUNDS = {"ge": "minimum", "le": "maximum"}


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
