"""The JSON of a request. Raises ConfigError for what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sidecar.kit.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web


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
