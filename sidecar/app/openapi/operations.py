"""Builds the paths and schemas of the OpenAPI document from the declared endpoints."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, TypeAlias

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from sidecar.http.endpoint import Endpoint
from sidecar.http.models import NO_BODY, NO_JSON, Schema
from sidecar.http.problem_kinds import Kind

Json: TypeAlias = dict[str, Any]
#: Maps the id() of a model and a mode ("validation" or "serialization") to a JSON Schema.
_ByModel: TypeAlias = dict[tuple[int, Any], Json]


def create_ref(kind: str, name: str) -> Json:
    """Create a reference ($ref) to a component of the document, such as a schema."""
    return {"$ref": f"#/components/{kind}/{name}"}


_REF = "#/components/schemas/{model}"
_NO_STORE = {"Cache-Control": create_ref("headers", "NoStore")}
#: Maps an HTTP status to the headers of its problem documents.
_PROBLEM_HEADERS = {
    401: {"WWW-Authenticate": create_ref("headers", "Authenticate")},
    429: {"Retry-After": create_ref("headers", "RetryAfter")},
    503: {"Retry-After": create_ref("headers", "RetryAfter")},
}


class DescribedSchema(Schema):
    """A JSON Schema generator that uses the docstrings below fields as descriptions. pydantic's
    own option for that would read the source files at each start of a replica."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        json_schema = super().model_schema(schema)
        model = schema["cls"]
        for name, field in model.model_fields.items():
            serialized_name = field.serialization_alias if self.mode == "serialization" else None
            member = json_schema.get("properties", {}).get(serialized_name or field.alias or name)
            if member is not None and (text := find_description(model, name)):
                member["description"] = text
        return json_schema


def find_description(model: type[BaseModel], name: str) -> str:
    """Return the docstring below the declaration of a model's field, or ""."""
    for base in model.__mro__:
        if name in inspect.get_annotations(base):
            return _read_field_docs(base.__module__).get((base.__name__, name), "")
    return ""


@cache
def _read_field_docs(module: str) -> dict[tuple[str, str], str]:
    """Map the class and field of each model in a module to the docstring below the field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    docs = {}
    for model in tree.body:
        if isinstance(model, ast.ClassDef):
            for before, after in pairwise(model.body):
                match before, after:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                        docs[model.name, name] = inspect.cleandoc(text)
    return docs


def describe_paths(endpoints: Sequence[Endpoint], servers: Mapping[str, Json]) -> tuple[Json, Json]:
    """Return the OpenAPI paths of the endpoints, and the schemas to which the paths refer.
    `servers` maps a tag to the server of its endpoints, if that is not the default server."""
    inputs = _list_models(endpoints)
    own, shared = TypeAdapter.json_schemas(
        [(number, mode, TypeAdapter(model)) for number, (model, mode) in enumerate(inputs)],
        ref_template=_REF,
        schema_generator=DescribedSchema,
    )
    by_model = {(id(model), mode): own[number, mode] for number, (model, mode) in enumerate(inputs)}
    schemas: Json = dict(shared.get("$defs", {}))
    paths: Json = {}
    for endpoint in endpoints:
        item = paths.setdefault(endpoint.canonical, {})
        in_path, others = _describe_parameters(endpoint, schemas)
        if endpoint.path.startswith("/admin/") and endpoint.method != "GET":
            others.append(create_ref("parameters", "Operator"))
        if endpoint.tag in servers:
            item["servers"] = [servers[endpoint.tag]]
        if in_path:
            item["parameters"] = in_path
        item["get" if endpoint.method == "*" else endpoint.method.lower()] = {
            "operationId": endpoint.operation_id,
            "tags": [endpoint.tag],
            "summary": endpoint.summary,
            **({"description": endpoint.description} if endpoint.description else {}),
            **({"parameters": others} if others else {}),
            **_describe_body(endpoint, by_model),
            "responses": _describe_responses(endpoint, by_model, schemas),
            "security": _describe_security(endpoint),
            **endpoint.openapi_members,
        }
    return paths, schemas


def _list_models(endpoints: Sequence[Endpoint]) -> list[tuple[Any, Any]]:
    """List every model of a request or response body once, with Pydantic's mode for its schema."""
    models = []
    for endpoint in endpoints:
        if endpoint.body is not None:
            models.append((endpoint.body, "validation"))
        if endpoint.form is not None:
            models.append((endpoint.form, "validation"))
        replies = [model for model, *_ in endpoint.replies.values()]
        replies += endpoint.problem_members.values()
        no_models = (None, NO_BODY, NO_JSON)
        models += [(model, "serialization") for model in replies if model not in no_models]
    return list({(id(model), mode): (model, mode) for model, mode in models}.values())


def _describe_parameters(endpoint: Endpoint, schemas: Json) -> tuple[list[Json], list[Json]]:
    """Describe the parameters of an endpoint: first those in the path, then all others."""
    in_path: list[Json] = []
    others: list[Json] = []
    names = re.findall(r"{(\w+)", endpoint.canonical)
    if endpoint.parameters is not None:
        for name, field in _describe_fields(endpoint.parameters, schemas):
            if name in names:
                in_path.append({"name": name, "in": "path", **field})
            else:
                others.append({"name": name, "in": "query", **field})
    if endpoint.headers is not None:
        headers = _describe_fields(endpoint.headers, schemas)
        others += [{"name": name, "in": "header", **field} for name, field in headers]
    return in_path, others


def _describe_fields(model: type[BaseModel], schemas: Json) -> Iterator[tuple[str, Json]]:
    """Yield the name and the description of each parameter or header in a model."""
    model_schema = model.model_json_schema(ref_template=_REF, schema_generator=DescribedSchema)
    schemas |= model_schema.get("$defs", {})
    for name, schema in model_schema.get("properties", {}).items():
        parameter_keys = {key: schema.pop(key) for key in _PARAMETER_KEYS if key in schema}
        is_required = name in model_schema.get("required", [])
        yield name, {"required": is_required, **parameter_keys, "schema": _remove_null(schema)}


#: The keys that belong to a parameter itself and not to its schema.
_PARAMETER_KEYS = ("description", "allowEmptyValue")


def _remove_null(schema: Json) -> Json:
    """Remove null from a parameter's schema, because an optional parameter is never null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == len(schema.get("anyOf", [])):
        return schema
    others = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
    return others | (options[0] if len(options) == 1 else {"anyOf": options})


def _describe_body(endpoint: Endpoint, by_model: _ByModel) -> Json:
    if endpoint.form is not None:
        schema = by_model[id(endpoint.form), "validation"]
        content = {"application/x-www-form-urlencoded": {"schema": schema}}
        return {"requestBody": {"content": content}}
    if endpoint.body is None:
        return {}
    content = {"application/json": {"schema": by_model[id(endpoint.body), "validation"]}}
    return {"requestBody": {"required": not endpoint.is_body_optional, "content": content}}


def _describe_responses(endpoint: Endpoint, by_model: _ByModel, schemas: Json) -> Json:
    """Describe the responses by status. If a status has both a reply and problem documents, which
    differ in the media type, merge them."""
    responses = _describe_problems(endpoint, by_model)
    for status, reply in _describe_replies(endpoint, by_model, schemas).items():
        problem = responses.get(status, {})
        responses[status] = {
            **reply,
            **{key: {**problem.get(key, {}), **reply[key]} for key in ("headers", "content")},
        }
    return responses


def _describe_replies(endpoint: Endpoint, by_model: _ByModel, schemas: Json) -> Json:
    responses = {}
    for status, (model, meaning, *headers) in endpoint.replies.items():
        content: Json = {}
        if model is None:
            content["application/octet-stream"] = {}
        elif model not in {NO_BODY, NO_JSON}:
            content["application/json"] = {"schema": by_model[id(model), "serialization"]}
        if model is not NO_BODY:
            for media_type, text in endpoint.other_media.items():
                content[media_type] = {"schema": {"description": text, "type": "string"}}
        own_headers = {
            name: field for group in headers for name, field in _describe_fields(group, schemas)
        }
        no_store = {} if endpoint.is_cacheable else _NO_STORE
        responses[str(status)] = {
            "description": meaning,
            "headers": {**no_store, **_describe_headers(endpoint), **own_headers},
            "content": content,
        }
    return responses


def _describe_problems(endpoint: Endpoint, by_model: _ByModel) -> Json:
    by_status: dict[int, list[Kind]] = {}
    for kind in endpoint.all_problems():
        by_status.setdefault(kind.status, []).append(kind)
    responses = {}
    for status, kinds in sorted(by_status.items()):
        codes = {"type": "object", "properties": {"code": {"enum": [kind.code for kind in kinds]}}}
        schemas = [create_ref("schemas", "Problem"), codes]
        if status in endpoint.problem_members:
            schemas.append(by_model[id(endpoint.problem_members[status]), "serialization"])
        responses[str(status)] = {
            "description": "\n".join(f"`{kind.code}`: {kind.meaning}" for kind in kinds),
            "headers": {
                **_NO_STORE,
                **_PROBLEM_HEADERS.get(status, {}),
                **(_describe_headers(endpoint) if status == 429 else {}),
            },
            "content": {"application/problem+json": {"schema": {"allOf": schemas}}},
        }
    return responses


def _describe_headers(endpoint: Endpoint) -> Json:
    components = endpoint.reply_headers.items()
    return {name: create_ref("headers", component) for name, component in components}


def _describe_security(endpoint: Endpoint) -> list[Json]:
    """Return the alternatives for access to an endpoint: a service token with a scope, the admin
    token, or a session with a role, which needs a CSRF token for changes."""
    access = endpoint.access
    if access.is_open:
        return []
    alternatives: list[Json] = [{"service": [scope]} for scope in sorted(access.scopes)]
    alternatives.append({"token": []})
    csrf: Json = {} if endpoint.method == "GET" else {"csrf": []}
    return [*alternatives, {"session": [access.role], **csrf}]
