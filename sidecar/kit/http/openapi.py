"""The pieces that descriptions of doors are put together from."""

from __future__ import annotations

from typing import Any, TypeAlias

from sidecar.kit.names import NAME

Json: TypeAlias = dict[str, Any]

#: As JSON Schema writes it, which knows no \Z.
ROOM = "^" + NAME.pattern.replace(r"\Z", "$")
VISITOR_ID = "^[A-Za-z0-9_-]{22}$"
#: One of these lets a caller in; a change by the session needs its CSRF token as well.
READS: list[Json] = [{"token": []}, {"session": []}]
CHANGES: list[Json] = [{"token": []}, {"session": [], "csrf": []}]
#: Programs, and operators by their token.
SERVICE: list[Json] = [{"service": []}, {"token": []}]
#: At leases and limits a session of the dashboard does not do.
OPERATORS: list[Json] = [{"token": []}]


def ref(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}


def shape(name: str) -> Json:
    return ref("schemas", name)


def parameters(*names: str) -> list[Json]:
    return [ref("parameters", name) for name in names]


def or_null(schema: Json) -> Json:
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def whole(description: str = "", **more: Any) -> Json:
    """A whole number from 0 on."""
    return {**told(description), "type": "integer", "minimum": 0, **more}


def words(*allowed: str, description: str = "") -> Json:
    return {**told(description), "type": "string", "enum": list(allowed)}


def text(description: str = "", **more: Any) -> Json:
    return {**told(description), "type": "string", **more}


def moment(description: str = "") -> Json:
    return text(description, format="date-time")


def told(description: str) -> Json:
    return {"description": description} if description else {}


def thing(properties: Json, *, optional: tuple[str, ...] = (), description: str = "") -> Json:
    """An object that has all of these but the optional ones. Later versions may add more."""
    required = [name for name in properties if name not in optional]
    return {
        **told(description), "type": "object", "properties": properties, "required": required,
    }  # fmt: skip


def rows(of: Json, description: str = "") -> Json:
    return {**told(description), "type": "array", "items": of}


def reply(
    description: str, schema: Json, *, example: Any = None, headers: Json | None = None
) -> Json:
    """A JSON document."""
    content: Json = {"schema": schema}
    if example is not None:
        content["example"] = example
    answer: Json = {"description": description, "content": {"application/json": content}}
    return {**answer, "headers": headers} if headers else answer


def body(schema: Json, examples: dict[str, Any], description: str = "") -> Json:
    """A JSON document that is needed."""
    shown = {name: {"value": value} for name, value in examples.items()}
    content = {"application/json": {"schema": schema, "examples": shown}}
    return {**told(description), "required": True, "content": content}


#: The components that tell of a refusal, by what goes wrong.
_REFUSALS = {
    "400": "Unreadable",
    "401": "NoToken",
    "403": "Forbidden",
    "409": "Conflict",
    "413": "TooLarge",
    "422": "NotAllowed",
    "503": "StoreAway",
}


def refusals(
    *statuses: str, unknown: str = "UnknownRoom", away: str = "StoreAway", off: str = "Forbidden"
) -> Json:
    """Answers that are problem documents. `unknown`: what a 404 is; `away`: what a 503 is; `off`:
    what a 403 is."""
    names = {**_REFUSALS, "403": off, "404": unknown, "503": away}
    made = {status: ref("responses", names[status]) for status in statuses}
    if "401" in made and off == "Forbidden":
        made["429"] = ref("responses", "TooManyGuesses")
    return made
