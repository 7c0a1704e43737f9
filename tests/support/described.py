"""A check of the ops listener's responses against the API's description."""

import json
import re
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from sidecar.app.openapi.document import build_document


@cache
def _paths() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return every path as a pattern, those without variables first."""
    paths = sorted(build_document()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), item) for path, item in paths]


def _resolve(part: dict[str, Any]) -> dict[str, Any]:
    """Return the object that a $ref names."""
    for name in part.get("$ref", "#").split("/")[1:]:
        part = document_of(name) if name == "components" else part[name]
    return part


@cache
def document_of(name: str) -> dict[str, Any]:
    return build_document()[name]


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": document_of("components")})


def _check(schema: dict[str, Any], value: Any) -> None:
    _validator(json.dumps(schema)).validate(value)


async def check_answer(method: str, path: str, answer: Any) -> None:
    """Fail if status, type, headers or document are not as described. Paths and methods without a
    description are not checked."""
    item = next((item for pattern, item in _paths() if pattern.fullmatch(path)), {})
    if method.lower() not in item or answer.status == 405:
        return
    described = item[method.lower()]["responses"]
    assert str(answer.status) in described, f"{method} {path}: {answer.status} is not described"
    response = _resolve(described[str(answer.status)])
    content = response["content"][answer.content_type]
    _check(content["schema"], json.loads(await answer.read()))
    for name, header in response.get("headers", {}).items():
        described_header = _resolve(header)
        assert name in answer.headers or not described_header.get("required"), (
            f"{method} {path}: no {name}"
        )
        if name in answer.headers:
            value = answer.headers[name]
            is_number = described_header["schema"].get("type") == "integer"
            _check(described_header["schema"], int(value) if is_number else value)
