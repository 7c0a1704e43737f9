"""The OpenAPI 3.1 document: all doors that programs use, of both listeners."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from aiohttp import web

from sidecar import __version__
from sidecar.api.endpoints import EDGE, JOBS, OPS
from sidecar.api.openapi import common, operations, shapes
from sidecar.gate.openapi import proxy, visitor
from sidecar.jobs.settings import TargetSettings
from sidecar.kit.http.openapi_document import describe
from sidecar.kit.http.settings_schema import as_asked
from sidecar.rooms.openapi import administration

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
#: A new version may bring another document; until then it is the same.
_HEADERS = {"Cache-Control": "max-age=300"}


def document() -> dict[str, Any]:
    paths, schemas = describe((*OPS, *JOBS))
    edge_paths, edge_schemas = describe(EDGE, visitor.SERVERS)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waitroom", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The ops listener (ops_listen)."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": {
            **visitor.paths(),
            **proxy.paths(),
            **operations.paths(),
            **administration.paths(),
            **edge_paths,
            **paths,
        },
        "components": {
            "schemas": {
                **shapes.schemas(),
                **edge_schemas,
                **schemas,
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


async def show(_request: web.Request) -> web.Response:
    """For everybody who reaches the listener: it tells what any copy of the program tells."""
    return web.Response(body=_text(), content_type="application/json", headers=_HEADERS)
