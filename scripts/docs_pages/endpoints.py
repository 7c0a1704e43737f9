"""Generator of the pages of endpoints, one for each product, from a replica's OpenAPI document."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from scripts.docs_pages.fields import Documents
from scripts.docs_pages.markdown import bullet, indented, one_line
from sidecar.app.openapi.document import build_document
from sidecar.app.openapi.operations import Json
from sidecar.http import problem_kinds

_OVERVIEW = """\
# Endpoints

All endpoints of a replica. Each replica also describes them in an OpenAPI 3.1 document at
`/openapi.json` on the ops listener. Tokens, pages of a list, long polls and errors are explained
in [the API](api.md)."""
_INTRODUCTION = """\
# {title}

A parameter is optional unless it says "required". A field of a document is always there unless it
says "optional". Ignore fields that you do not know: later versions may add some. [All
endpoints](endpoints.md), [how to use the API](api.md).

An endpoint with parameters or a body may also return these errors, which are not repeated below:
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
#: Each page's title and groups.
_PAGES = {
    "endpoints-visitors.md": ("Endpoints for visitors and proxies",
                              ("visitor", "proxy", "operations")),
    "endpoints-rooms.md": ("Endpoints of rooms", ("administration", "history", "webhooks")),
    "endpoints-leases.md": ("Endpoints of leases", ("leases",)),
    "endpoints-limits.md": ("Endpoints of rate limits", ("limits",)),
    "endpoints-jobs.md": ("Endpoints of jobs", ("jobs", "targets")),
}  # fmt: skip
#: The errors of reading a request, which any endpoint with parameters or a body may return.
_USUAL = {kind.code: kind.status for kind in (
    problem_kinds.UNREADABLE, problem_kinds.NOT_FOUND, problem_kinds.TOO_LARGE,
    problem_kinds.INVALID_REQUEST,
)}  # fmt: skip
_METHODS = ("get", "post", "put", "patch", "delete")
#: The operations that answer all methods alike.
_ANY_METHOD = {"check", "gate"}


def pages() -> dict[str, Callable[[], str]]:
    """Return the function that writes each page, by its file."""
    products = {name: partial(_product_page, title, tags) for name, (title, tags) in _PAGES.items()}
    return {"endpoints.md": _overview, **products}


def _overview() -> str:
    described = build_document()
    parts = [_OVERVIEW]
    for name, (title, tags) in _PAGES.items():
        found = [one for one in _operations(described) if one["tags"][0] in tags]
        links = (f"[{_heading(one)}]({name}#{_anchor(_heading(one))})" for one in found)
        rows = (f"| {link} | {one['summary']} |" for link, one in zip(links, found, strict=True))
        parts += [f"## [{title}]({name})", "\n".join(["| endpoint | |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _product_page(title: str, tags: Sequence[str]) -> str:
    described = _restrict(build_document(), tags)
    documents = Documents(described)
    by_tag = sorted(_operations(described), key=lambda one: tags.index(one["tags"][0]))
    meanings = {tag["name"]: tag["description"] for tag in described["tags"]}
    parts = [_INTRODUCTION.format(title=title, problems=_linked(_USUAL))]
    for tag, found in groupby(by_tag, key=lambda one: one["tags"][0]):
        heading, guide = _GROUPS[tag]
        operations = list(found)
        shared = set.intersection(*(set(_codes(one)) for one in operations))
        about = f" More: [the guide]({guide})." if guide else ""
        parts += [f"## {heading}", meanings[tag] + about]
        if shared:
            codes = {code: status for code, status in _codes(operations[0]).items()
                     if code in shared}  # fmt: skip
            parts.append(f"All of these endpoints may return {_linked(codes)}.")
        for operation in operations:
            parts += _endpoint(operation, documents, shared)
    parts += documents.section()
    return "\n\n".join(parts) + "\n"


def _restrict(described: Json, tags: Sequence[str]) -> Json:
    """Return the document with only the operations of these tags."""
    paths = {
        path: {key: part for key, part in item.items()
               if key not in _METHODS or part["tags"][0] in tags}
        for path, item in described["paths"].items()
    }  # fmt: skip
    return {**described, "paths": paths}


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
    yield f"### {_heading(operation)}"
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


def _heading(operation: Json) -> str:
    is_any = operation["operationId"] in _ANY_METHOD
    return f"{'Any method' if is_any else operation['method'].upper()} {operation['path']}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


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
