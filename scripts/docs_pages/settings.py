"""Generator of docs/settings.md from the models of all settings.

The string below a setting's field says what the setting does. Its type, range and default come from
the field. Examples and links to guides are in scripts/docs_pages/setting_sections.py.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types as bounds
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from scripts.docs_pages.setting_sections import INTRODUCTION, SECTIONS, Section
from sidecar.app.openapi.operations import find_description
from sidecar.limits.settings import MAX_LIMIT, UNLIMITED
from sidecar.settings.model import Settings

#: Types in plain words, by the name of the function that reads the value.
_READ_BY = {
    "parse_duration": "duration",
    "parse_moment": "time",
    "check_listen": "address `host:port` or `unix:/path`",
    "_check_optional_listen": "address `host:port` or `unix:/path`",
    "check_store": "address `redis://…`, `rediss://…` (TLS), `unix:///path`, `redis+sentinel://…`, "
    "`rediss+sentinel://…`, `redis+cluster://…`, `rediss+cluster://…` or `memory://`",
    "check_database": "address `sqlite:///path`, `mysql://…`, `mariadb://…` or `postgresql://…`",
    "_check_value": f"whole number from 0 to {MAX_LIMIT:,}, or {UNLIMITED}",
}
_TYPES = {
    int: "whole number",
    float: "number",
    str: "text",
    Path: "folder",
    bool: "`true` or `false`",
}
#: Units, by the end of the name of a setting that is a number.
_UNITS = {"_per_minute": "a minute", "_percent": "percent", "_body": "bytes", "_result": "bytes"}
_DURATIONS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_NAME = re.compile(r"`(\w+)`")


def page() -> str:
    parts = [INTRODUCTION]
    for section in SECTIONS:
        names = sorted(section.model.model_fields, key=lambda name: name in section.last)
        links = " · ".join(f"[`{name}`](#{_anchor(section, name)})" for name in names)
        parts += [f"## {section.title}", section.text, links]
        for name in names:
            parts += _setting(section, name)
    return "\n\n".join(parts) + "\n"


def _setting(section: Section, name: str) -> Iterator[str]:
    field = section.model.model_fields[name]
    yield f"### `{name}`" + (f" ({section.of_what})" if section.of_what else "")
    yield f"{_type(field, name)} · default: {_default(section.model, field, name)}"
    text = " ".join(find_description(section.model, name).split())
    if link := section.more.get(name):
        text += f" More: {link}."
    yield _linked(section, name, text)
    yield f"Example: `{example(section, name)}`"


def _anchor(section: Section, name: str) -> str:
    return f"{name}-{section.of_what}" if section.of_what else name


def _linked(section: Section, name: str, text: str) -> str:
    """Turn the first mention of other settings of the section into links, except in values."""
    seen = {name, *_words(section.model.model_fields[name])}
    sections = [section, *(one for one in SECTIONS if one.title == section.belongs_to)]

    def link(found: re.Match[str]) -> str:
        known = (one for one in sections if found[1] in one.model.model_fields)
        if found[1] in seen or not (one := next(known, None)):
            return found[0]
        seen.add(found[1])
        return f"[{found[0]}](#{_anchor(one, found[1])})"

    return _NAME.sub(link, text)


def _parts(hint: Any) -> Iterator[Any]:
    """Yield a type and all types, validators and bounds that it consists of."""
    yield hint
    for part in (*get_args(hint), *getattr(hint, "__metadata__", ())):
        yield from _parts(part)


def _of_field(field: FieldInfo) -> list[Any]:
    return [part for hint in (field.annotation, *field.metadata) for part in _parts(hint)]


def _words(field: FieldInfo) -> list[str | int]:
    return [part for part in _of_field(field) if isinstance(part, str | int)]


def _type(field: FieldInfo, name: str) -> str:
    """Return a description of a type in plain words, with the allowed values."""
    parts = _of_field(field)
    readers = [_READ_BY.get(getattr(getattr(part, "func", None), "__name__", "")) for part in parts]
    plain = _plain_type(field.annotation)
    kind = plain if plain == "table" else next(filter(None, readers), plain)
    if _is_duration(field) or kind in {"whole number", "number"}:
        unit = next((f" ({text})" for end, text in _UNITS.items() if name.endswith(end)), "")
        return f"{kind.capitalize()}{_range(field)}{unit}"
    if kind == "word":
        return "One of " + ", ".join(f"`{word}`" for word in _words(field))
    if kind == "list of words":
        return "List of " + ", ".join(f"`{word}`" for word in _words(field))
    longest = next((part.max_length for part in parts if hasattr(part, "max_length")), None)
    if kind == "text" and longest:
        kind = f"text, {longest} characters at most"
    return kind[0].upper() + kind[1:]


def _plain_type(hint: Any) -> str:
    """Return a type in plain words, such as "list of texts", without validators."""
    inner = [one for one in get_args(hint) if one is not type(None)]
    origin = get_origin(hint)
    if origin is Literal:
        return "word"
    if origin in {list, tuple}:
        inside = _plain_type(inner[0])
        return {"table": "list of tables", "word": "list of words"}.get(inside, "list of texts")
    if origin is dict:
        inside = _plain_type(inner[1])
        return "tables by name" if inside == "table" else "table"
    if origin is not None:  # Annotated, or a choice with None
        return _plain_type(inner[0])
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "table"
    return _TYPES[hint]


def _is_duration(field: FieldInfo) -> bool:
    names = (getattr(getattr(part, "func", None), "__name__", "") for part in _of_field(field))
    return "parse_duration" in names


def _range(field: FieldInfo) -> str:
    found = {type(part): part for part in _of_field(field) if isinstance(part, bounds.BaseMetadata)}
    least, most = found.get(bounds.Ge), found.get(bounds.Le)
    over = found.get(bounds.Gt)
    text = ""
    if least:
        text = f" from {_written(field, least.ge)}"
    elif over:
        text = f" over {_written(field, over.gt)}"
    return f"{text} to {_written(field, most.le)}" if most else text


def _written(field: FieldInfo, value: Any) -> str:
    return f"`{written_duration(value)}`" if _is_duration(field) else f"{value:,}"


def written_duration(seconds: float) -> str:
    """Format a duration as short as in a setting, such as 5m or 500ms."""
    for unit, size in _DURATIONS.items():
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds * 1000:.0f}ms" if seconds else "0s"


def _default(model: type[BaseModel], field: FieldInfo, name: str) -> str:
    if field.is_required() or (model is Settings and name in _needed()):
        return "none, you must set it"
    value = field.default
    if value is None:
        return "none"
    if value in ("", [], {}, ()):
        return "empty"
    if _is_duration(field) or type(value) is int:
        return _written(field, value)
    return f"`{value}`" if isinstance(value, str) else f"`{_toml(field, value)}`"


def _needed() -> set[str]:
    """Return the settings that a replica with jobs requires."""
    try:
        Settings.model_validate({"jobs": "sqlite:///jobs.db"})
    except ValidationError as error:
        return {str(problem["loc"][0]) for problem in error.errors()}
    return set()


def _toml(field: FieldInfo, value: Any) -> str:
    if _is_duration(field):
        value = written_duration(value)
    return json.dumps([*value] if isinstance(value, tuple) else value, default=str)


def example(section: Section, name: str) -> str:
    """Return a line of a configuration with a value other than the default."""
    if line := section.examples.get(name):
        return line
    field = section.model.model_fields[name]
    default = field.default
    if isinstance(default, bool):
        value: Any = not default
    elif words := [word for word in _words(field) if word != default]:
        value = words[0]
    elif isinstance(default, int | float) and default:
        found = (part.le for part in _of_field(field) if isinstance(part, bounds.Le))
        most = next(found, default * 2)
        value = default * 2 if default * 2 <= most else default / 2
        value = int(value) if value == int(value) else value
    else:
        raise ValueError(f"{section.title}: {name} needs an example")
    return f"{name} = {_toml(field, value)}"
