"""Generator of docs/endpoints.md from the OpenAPI document that a replica serves."""

from collections.abc import Iterator
from itertools import groupby

from scripts.docs_pages.fields import Documents
from scripts.docs_pages.markdown import bullet, indented, one_line
from sidecar.app.openapi.document import build_document
from sidecar.app.openapi.operations import Json
from sidecar.http import problem_kinds

_INTRODUCTION = """\
# Endpoints

All endpoints of a replica, with their parameters, fields and errors. Each replica serves the same
as an OpenAPI 3.1 document at `/openapi.json` on the ops listener. How to log in, read pages, wait
for an answer and handle errors: [the API](api.md).

A parameter may be left out, unless it says "required". A field of a document is always there,
unless it says "optional". Later versions may add fields: ignore those that you do not know.

An endpoint with parameters or a body may also answer these errors, which are not repeated below:
{problems}."""
#: A group's heading, and the page that says what it is for.
_GROUPS = {
    "visitor": ("Visitors", ""),
    "proxy": ("Proxies", ""),
    "operations": ("Health and metrics", ""),
    "administration": ("Rooms and their visitors", ""),
    "history": ("History of a room", "history.md"),
    "leases": ("Leases", "leases.md"),
    "limits": ("Rate limits", "limits.md"),
    "jobs": ("Jobs", "jobs.md"),
    "targets": ("Targets of jobs", "jobs.md"),
    "webhooks": ("Webhooks", "webhooks.md"),
}
#: Of reading a request.
_USUAL = {kind.code: kind.status for kind in (
    problem_kinds.UNREADABLE, problem_kinds.NOT_FOUND, problem_kinds.TOO_LARGE,
    problem_kinds.INVALID_REQUEST,
)}  # fmt: skip
_METHODS = ("get", "post", "put", "patch", "delete")
#: They answer any method alike.
_ANY_METHOD = {"check", "gate"}


def page() -> str:
    described = build_document()
    documents = Documents(described)
    by_tag = sorted(_operations(described), key=lambda one: [*_GROUPS].index(one["tags"][0]))
    meanings = {tag["name"]: tag["description"] for tag in described["tags"]}
    parts = [_INTRODUCTION.format(problems=_linked(_USUAL))]
    for tag, found in groupby(by_tag, key=lambda one: one["tags"][0]):
        title, guide = _GROUPS[tag]
        operations = list(found)
        shared = set.intersection(*(set(_codes(one)) for one in operations))
        about = f" More: [the guide]({guide})." if guide else ""
        parts += [f"## {title}", meanings[tag] + about]
        if shared:
            codes = {code: status for code, status in _codes(operations[0]).items()
                     if code in shared}  # fmt: skip
            parts.append(f"All of them may answer {_linked(codes)}.")
        for operation in operations:
            parts += _endpoint(operation, documents, shared)
    parts += documents.section()
    return "\n\n".join(parts) + "\n"


def _operations(described: Json) -> Iterator[Json]:
    """Yield all operations with method, path and parameters."""
    shared = described["components"]["parameters"]
    for path, item in described["paths"].items():
        for method in _METHODS:
            if method in item:
                asked = [*item.get("parameters", []), *item[method].get("parameters", [])]
                asked = [shared[one["$ref"].rpartition("/")[2]] if "$ref" in one else one
                         for one in asked]  # fmt: skip
                yield {**item[method], "method": method, "path": path, "asked": asked}


def _endpoint(operation: Json, documents: Documents, shared: set[str]) -> Iterator[str]:
    is_any = operation["operationId"] in _ANY_METHOD
    method = "Any method" if is_any else operation["method"].upper()
    yield f"### {method} {operation['path']}"
    summary = operation["summary"]
    yield f"**{summary}{'' if summary.endswith('?') else '.'}**"
    if "description" in operation:
        yield operation["description"]
    if operation["security"]:
        yield f"Access: {_access(operation['security'])}."
    yield from _request(operation, documents)
    yield "Response:"
    yield "\n".join(line for line in _responses(operation, documents) if line)
    own = {
        code: status
        for code, status in _codes(operation).items()
        if code not in shared | set(_USUAL)
    }
    if own:
        yield f"Errors: {_linked(own)}."


def _access(ways: list[Json]) -> str:
    scopes = [scope for way in ways for scope in way.get("service", [])]
    programs = " or ".join(f"`{scope}`" for scope in scopes)
    return ", or ".join([
        *([f"a program's token with the scope {programs}"] if scopes else []),
        "the `admin_token`",
        *(["a session of the dashboard"] if any("session" in way for way in ways) else []),
    ])  # fmt: skip


def _request(operation: Json, documents: Documents) -> Iterator[str]:
    if operation["asked"]:
        yield "Parameters:"
        yield "\n".join(
            documents.field(
                one["name"],
                {**one["schema"], "description": one.get("description", "")},
                notes=[f"in the {one['in']}", *(["required"] if one["required"] else [])],
            )
            for one in operation["asked"]
        )  # fmt: skip
    if "requestBody" not in operation:
        return
    body = operation["requestBody"]
    ((media, content),) = body["content"].items()
    kind = "JSON" if media == "application/json" else "a form"
    yield f"Body, {kind}{'' if body.get('required') else ', optional'}:"
    yield from documents.body(content["schema"])


def _responses(operation: Json, documents: Documents) -> Iterator[str]:
    shown: dict[str, str] = {}
    for status, response in sorted(operation["responses"].items()):
        content = dict(response["content"])
        members = documents.members(content.pop("application/problem+json", {}))
        if members:
            members = f"The problem document also has the fields of {members}."
        if content or not response["content"]:
            looks = [f"`{kind}`" for kind in content if kind != "application/json"]
            also = f"As {', '.join(looks)}." if looks else ""
            yield bullet(" ".join(filter(None, [
                f"**{status}**: {one_line(response['description'])}", also, members,
            ])))  # fmt: skip
            fields = "\n".join(_fields(response, content, documents))
            first = shown.setdefault(fields, status)
            is_again = first != status and "\n" in fields
            yield from [indented(bullet(f"The same as with {first}.") if is_again else fields)]
        elif members:
            yield bullet(f"**{status}**: {members}")


def _fields(response: Json, content: Json, documents: Documents) -> Iterator[str]:
    for name, header in response.get("headers", {}).items():
        if "$ref" not in header and name != "Cache-Control":
            field = {**header["schema"], "description": header.get("description", "")}
            yield documents.field(name, field, notes=["header"])
    if "application/json" in content:
        yield documents.listed(content["application/json"]["schema"])


def _codes(operation: Json) -> dict[str, int]:
    """Return the problem codes of an operation with the status of each."""
    found = {}
    for status, response in operation["responses"].items():
        for part in (
            response["content"]
            .get("application/problem+json", {})
            .get("schema", {})
            .get("allOf", [])
        ):
            for code in part.get("properties", {}).get("code", {}).get("enum", []):
                found[code] = int(status)
    return found


def _linked(codes: dict[str, int]) -> str:
    by_status = groupby(sorted(codes, key=lambda code: (codes[code], code)), key=codes.__getitem__)
    return ", ".join(
        f"{status} " + ", ".join(f"[`{code}`](problems.md#{code})" for code in found)
        for status, found in by_status
    )
