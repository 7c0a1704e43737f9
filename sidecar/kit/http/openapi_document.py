"""The part of the OpenAPI document that comes from declared endpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from sidecar.kit.http.models import Schema
from sidecar.kit.http.openapi import CHANGES, OPERATORS, READS, SERVICE, Json, ref, shape, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecar.kit.http.endpoint import Endpoint
    from sidecar.kit.http.problem_kinds import Kind

_REF = "#/components/schemas/{model}"
_NO_STORE = {"Cache-Control": ref("headers", "NoStore")}
#: Headers that a problem of a status comes with.
_HEADERS = {
    401: {"WWW-Authenticate": ref("headers", "Authenticate")},
    429: {"Retry-After": ref("headers", "RetryAfter")},
    503: {"Retry-After": ref("headers", "RetryAfter")},
}


def describe(endpoints: Sequence[Endpoint], servers: Sequence[Json] = ()) -> tuple[Json, Json]:
    """Paths, and the schemas that they refer to. `servers`: where they are other than usual."""
    inputs = _models(endpoints)
    made, shared = TypeAdapter.json_schemas(
        [(number, mode, TypeAdapter(model)) for number, (model, mode) in enumerate(inputs)],
        ref_template=_REF,
        schema_generator=Schema,
    )
    by_model = {
        (id(model), mode): made[number, mode] for number, (model, mode) in enumerate(inputs)
    }
    schemas: Json = dict(shared.get("$defs", {}))
    paths: Json = {}
    for endpoint in endpoints:
        item = paths.setdefault(endpoint.canonical, {})
        in_path, in_query = _parameters(endpoint, schemas)
        if servers:
            item["servers"] = list(servers)
        if in_path:
            item["parameters"] = in_path
        item[endpoint.method.lower()] = {
            "operationId": endpoint.operation_id,
            "tags": [endpoint.tag],
            "summary": endpoint.summary,
            **({"description": endpoint.description} if endpoint.description else {}),
            **({"parameters": in_query} if in_query else {}),
            **_request_body(endpoint, by_model),
            "responses": {**_replies(endpoint, by_model), **_problems(endpoint, by_model)},
            "security": _security(endpoint),
            **endpoint.described,
        }
    return paths, schemas


def _models(endpoints: Sequence[Endpoint]) -> list[tuple[Any, Any]]:
    found = []
    for endpoint in endpoints:
        if endpoint.body is not None:
            found.append((endpoint.body, "validation"))
        replies = [model for model, _ in endpoint.replies.values()]
        replies += endpoint.problem_members.values()
        found += [(model, "serialization") for model in replies if model is not None]
    return list({(id(model), mode): (model, mode) for model, mode in found}.values())


def _parameters(endpoint: Endpoint, schemas: Json) -> tuple[list[Json], list[Json]]:
    """In the path, in the query."""
    if endpoint.parameters is None:
        return [], []
    made = endpoint.parameters.model_json_schema(ref_template=_REF, schema_generator=Schema)
    schemas |= made.get("$defs", {})
    in_path: list[Json] = []
    in_query: list[Json] = []
    names = re.findall(r"{(\w+)", endpoint.canonical)
    for name, schema in made["properties"].items():
        place = "path" if name in names else "query"
        parameter = {"name": name, "in": place, "required": name in made.get("required", [])}
        beside = {key: schema.pop(key) for key in ("description", "deprecated") if key in schema}
        parameter |= {**beside, "schema": _without_null(schema)}
        (in_path if place == "path" else in_query).append(parameter)
    return in_path, in_query


def _without_null(schema: Json) -> Json:
    """A parameter that may be null is one that need not be there."""
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    if len(options) == len(schema.get("anyOf", [])):
        return schema
    made = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
    return {**made, **options[0]} if len(options) == 1 else {**made, "anyOf": options}


def _request_body(endpoint: Endpoint, by_model: dict[tuple[int, Any], Json]) -> Json:
    if endpoint.body is None:
        return {}
    schema = by_model[id(endpoint.body), "validation"]
    return {
        "requestBody": {
            "required": not endpoint.is_body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    }


def _json(model: Any, by_model: dict[tuple[int, Any], Json]) -> Json:
    """Without a model it is bytes of any type."""
    if model is None:
        return {"application/octet-stream": {}}
    return {"application/json": {"schema": by_model[id(model), "serialization"]}}


def _replies(endpoint: Endpoint, by_model: dict[tuple[int, Any], Json]) -> Json:
    return {
        str(status): {
            "description": meaning,
            "headers": {**({} if endpoint.is_cacheable else _NO_STORE), **_extra(endpoint)},
            "content": {
                **_json(model, by_model),
                **{media: {"schema": text(looks)} for media, looks in endpoint.other_media.items()},
            },
        }
        for status, (model, meaning) in endpoint.replies.items()
    }


def _problems(endpoint: Endpoint, by_model: dict[tuple[int, Any], Json]) -> Json:
    by_status: dict[int, list[Kind]] = {}
    for kind in endpoint.all_problems():
        by_status.setdefault(kind.status, []).append(kind)
    made = {}
    for status, found in sorted(by_status.items()):
        codes = {"type": "object", "properties": {"code": {"enum": [kind.code for kind in found]}}}
        schemas = [shape("Problem"), codes]
        if status in endpoint.problem_members:
            schemas.append(by_model[id(endpoint.problem_members[status]), "serialization"])
        made[str(status)] = {
            "description": "\n".join(f"`{kind.code}`: {kind.meaning}" for kind in found),
            "headers": {
                **_NO_STORE,
                **_HEADERS.get(status, {}),
                **(_extra(endpoint) if status == 429 else {}),
            },
            "content": {"application/problem+json": {"schema": {"allOf": schemas}}},
        }
    return made


def _extra(endpoint: Endpoint) -> Json:
    return {name: ref("headers", component) for name, component in endpoint.reply_headers.items()}


def _security(endpoint: Endpoint) -> list[Json]:
    access = endpoint.access
    if access.is_open:
        return []
    by_session = (READS if endpoint.method == "GET" else CHANGES) if access.by_session else []
    tokens = SERVICE if access.scopes else OPERATORS
    return [*tokens, *(way for way in by_session if way not in tokens)]
