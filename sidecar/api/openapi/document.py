"""The OpenAPI 3.1 document: all doors that programs use, of both listeners."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from aiohttp import web

from sidecar import __version__
from sidecar.api.endpoints import JOBS, OPS, PROXY, VISITOR
from sidecar.api.openapi import common, shapes
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.http.endpoint import ANYBODY, Endpoints
from sidecar.kit.http.models import Headers, Reply
from sidecar.kit.http.openapi_document import describe
from sidecar.kit.http.settings_schema import as_asked

_DESCRIPTION = """\
A virtual waiting room beside your proxy. Of the two listeners of a replica, visitors reach the \
edge listener through the proxy, under `/_waitroom/`; the ops listener, which serves this \
document, is private.

Errors are problem documents (RFC 9457). Times named `..._at` are ISO 8601 with a zone, those \
named `..._ms` are ms since 1970; both by the store's clock. Durations are seconds. Where a query \
names a parameter twice, the first counts. What cannot be read as HTTP is answered with a 400 in \
plain text, an unknown address with a 404, a method that an address does not know with a 405. \
Later versions may add members to documents.

Pages and their files (`/dashboard`, the waiting page) are not described here.\
"""
_TAGS = {
    "visitor": "For whoever waits: through the proxy.",
    "proxy": "For the proxy in front: on the edge listener.",
    "operations": "Health and metrics.",
    "administration": "Rooms and visitors, for operators.",
    "leases": "Resources that few may hold at a time, for programs.",
    "limits": "How often something may be called, for programs.",
    "jobs": "Calls that wait their turn, for programs.",
    "targets": "What jobs may call, and how much of it: for programs to see, for operators to "
    "change.",
    "history": "Who queued when, where a history is kept.",
}
_SITE = {
    "url": "https://{site}",
    "description": "Your site: the proxy passes /_waitroom/ on to the edge listener.",
    "variables": {"site": {"default": "www.example.com"}},
}
_EDGE = {
    "url": "http://{edge}",
    "description": "The edge listener (edge_listen), which only your proxies can reach.",
    "variables": {"edge": {"default": "127.0.0.1:8400"}},
}
#: A new version may bring another document; until then it is the same.
_HEADERS = {"Cache-Control": "max-age=300"}


def document() -> dict[str, Any]:
    paths, schemas = describe((*ENDPOINTS, *OPS, *JOBS))
    proxy_paths, proxy_schemas = describe(PROXY, [_EDGE])
    visitor_paths, visitor_schemas = describe(VISITOR, [_SITE])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waitroom", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The ops listener (ops_listen)."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {
            **visitor_paths,
            **proxy_paths,
            **paths,
        },
        "components": {
            "schemas": {
                **proxy_schemas,
                **visitor_schemas,
                **schemas,
                **shapes.schemas(),
                "TargetChanges": schemas["TargetChanges"]
                | {"properties": as_asked(TargetSettings), "additionalProperties": False},
            },
            "parameters": common.parameters(),
            "headers": common.headers(),
            "responses": common.responses(),
            "securitySchemes": common.security_schemes(),
        },
    }


@cache
def _text() -> bytes:
    return json.dumps(document(), separators=(",", ":")).encode()


class OpenapiDocument(Reply):
    openapi: str
    paths: dict[str, Any]


class Cacheable(Headers):
    cache_control: str


ENDPOINTS = Endpoints("operations")


@ENDPOINTS.get(
    "/openapi.json",
    ANYBODY,
    replies={200: (OpenapiDocument, "OpenAPI 3.1.", Cacheable)},
    is_hand_made=True,
    is_cacheable=True,
)
async def get_openapi(_request: web.Request) -> web.Response:
    """This document."""
    # For everybody who reaches the listener: it says what any copy of the program says.
    return web.Response(body=_text(), content_type="application/json", headers=_HEADERS)
