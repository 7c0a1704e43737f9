"""The parameters of an operator's request: a page, a body. What is wrong is a ConfigError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sidecar.kit.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web


LIST_LIMIT = 1000
MAX_OFFSET = 10**9


def page_of(request: web.Request) -> tuple[int, int]:
    """Offset and limit."""
    problems, numbers = [], []
    for name, default, most in (("offset", 0, MAX_OFFSET), ("limit", 100, LIST_LIMIT)):
        text = request.query.get(name, str(default))
        # Not more digits than Python would read.
        if text.isascii() and text.isdigit() and len(text) <= 100 and int(text) <= most:
            numbers.append(int(text))
        else:
            problems.append(f"{name}: a whole number from 0 to {most} (got {text[:40]!r})")
    if problems:
        raise ConfigError(problems)
    return numbers[0], numbers[1]


def whole_of(value: object) -> int | None:
    """A whole number of JSON, where 1.0 is one too; None: it is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


async def json_of(request: web.Request) -> Any:
    try:
        return json.loads(await request.text())
    except (ValueError, LookupError, RecursionError):
        raise ConfigError(["the body is not JSON"]) from None


async def object_of(request: web.Request) -> dict[str, Any]:
    body = await json_of(request)
    if not isinstance(body, dict):
        raise ConfigError(["the body must be a JSON object"])
    return body
