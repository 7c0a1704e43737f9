"""Builds and serves the OpenAPI 3.1 document of both listeners' endpoints, except HTML pages."""

import json
from functools import cache
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from sidecar import __version__
from sidecar.app.endpoints import JOBS, OPS, PROXY, VISITOR
from sidecar.app.openapi import settings
from sidecar.app.openapi.operations import DescribedSchema, Json, describe_paths
from sidecar.http.auth.operators import COOKIE
from sidecar.http.auth.session import CSRF_HEADER
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import Headers, Reply, optional
from sidecar.jobs.settings import TargetSettings
from sidecar.rooms.adaptive.settings import AdaptiveSettings
from sidecar.rooms.appearance import Link
from sidecar.rooms.hold import Hold
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.classes import SubQueueSettings, VisitorClass

_DESCRIPTION = """\
A virtual waiting room beside your proxy. Of the two listeners of a replica, visitors reach the \
edge listener through the proxy, under `/_waitroom/`; the ops listener, which serves this \
document, is private.

Errors are problem documents (RFC 9457). Times named `..._at` are ISO 8601 with a zone, those \
named `..._ms` are ms since 1970; both by the clock of Redis. Durations are in seconds. If a query \
names a parameter twice, the first one counts. A request that is not HTTP gets a 400 in \
plain text, an unknown URL with a 404, and a method that a URL does not support with a 405. \
Later versions may add members to documents.

Pages and their files (`/dashboard`, the waiting page) are not described here.\
"""
_TAGS = {
    "visitor": "Endpoints of your site, below `/_waitroom/`, through the proxy. No token needed: "
    "the cookie `waitroom_<room>` identifies the visitor.",
    "proxy": "Endpoints of the edge listener, for the proxy in front of the replicas.",
    "operations": "Endpoints of the ops listener that need no token.",
    "administration": "Endpoints of the ops listener, for operators.",
    "leases": "Endpoints of the ops listener, for programs that lease resources.",
    "limits": "Endpoints of the ops listener, for programs that limit their calls.",
    "jobs": "Endpoints of the ops listener, for programs that submit jobs.",
    "targets": "Endpoints of the ops listener for the targets of jobs. Programs can read targets, "
    "and operators can change them.",
    "webhooks": "Endpoints of the ops listener, for operators: messages sent, waiting and failed.",
    "history": "Endpoints of the ops listener, for operators, if `history` is set.",
}
#: Maps a tag to the server of its endpoints, if these are not on the ops listener.
_SERVERS = {
    "visitor": {
        "url": "https://{site}",
        "description": "Your site: the proxy passes /_waitroom/ on to the edge listener.",
        "variables": {"site": {"default": "www.example.com"}},
    },
    "proxy": {
        "url": "http://{edge}",
        "description": "The edge listener (edge_listen), which only your proxies can reach.",
        "variables": {"edge": {"default": "127.0.0.1:8400"}},
    },
}
#: The response headers of the document. It is cacheable, as it changes only with the version.
_HEADERS = {"Cache-Control": "max-age=300"}
_OPERATOR = {
    "name": "X-Waitroom-Operator",
    "in": "header",
    "description": "The operator's name for the log, at most 64 characters. It is ignored with a "
    "session of the dashboard.",
    "schema": {"type": "string"},
    "required": False,
}
_RESPONSE_HEADERS: Json = {
    "RetryAfter": {
        "description": "How many seconds to wait before a retry.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "RateLimitPolicy": {
        "description": "As in draft-ietf-httpapi-ratelimit-headers: `q`, the key's limit; `w`, "
        "its window, if that has whole seconds. Missing if there is no limit.",
        "schema": {
            "type": "string",
            "pattern": '^"[a-z0-9_-]+";q=[0-9]+(;w=[0-9]+|;qu="concurrent-requests")?$',
        },
        "example": '"pay";q=20;w=1',
    },
    "RateLimit": {
        "description": "From the same draft: `r`, how many calls are left; `t`, the seconds until "
        "the whole limit is available or, after a refusal, until a retry.",
        "schema": {"type": "string", "pattern": '^"[a-z0-9_-]+";r=[0-9]+(;t=[0-9]+)?$'},
        "example": '"pay";r=3;t=1',
    },
    "Authenticate": {"required": True, "schema": {"type": "string", "pattern": "^Bearer "}},
    "NoStore": {"required": True, "schema": {"const": "no-store"}},
}
_SECURITY_SCHEMES = {
    "token": {"type": "http", "scheme": "bearer", "description": "The `admin_token`."},
    "service": {
        "type": "http",
        "scheme": "bearer",
        "description": "For programs: the `service_token` or one of `tokens`, within its `scopes`. "
        "The `admin_token` is accepted too.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The session of an operator who logged in at /dashboard.",
    },
    "csrf": {
        "type": "apiKey",
        "in": "header",
        "name": CSRF_HEADER,
        "description": "Required for changes with a session. /dashboard/session returns it.",
    },
}


class ProblemDocument(Reply, title="Problem"):
    """A problem document (RFC 9457)."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri"})]
    """`urn:waitroom:problem:` and the code. `about:blank` with the code `other`: the problem says
    no more than its status."""
    title: str
    """What went wrong."""
    status: Annotated[int, Field(ge=400, le=599)]
    """The HTTP status."""
    code: str
    """The kind of the problem, for programs. docs/problems.md lists all kinds."""
    detail: Annotated[str, optional] = ""
    """What to do."""
    errors: Annotated[list[str], Field(default_factory=list), optional]
    """A text for each thing that is wrong. It begins with the name of the member or setting."""
    retry_after_seconds: Annotated[int, Field(ge=0), optional] = 0
    """The same number as in Retry-After."""


def build_document() -> Json:
    """Build the OpenAPI document."""
    # Describe each listener by itself, because both may have models with the same name.
    edge_paths, edge_schemas = describe_paths((*VISITOR, *PROXY), _SERVERS)
    del edge_schemas["VisitorState"]  # gate/schemas.py describes it where it is used
    paths, schemas = describe_paths((*ENDPOINTS, *OPS, *JOBS), _SERVERS)
    paths, schemas = edge_paths | paths, edge_schemas | schemas
    schemas |= settings.create_schemas(
        RoomSettings, AdaptiveSettings, Hold, VisitorClass, SubQueueSettings, RoomEvent, Link
    )
    schemas["TargetChanges"] |= {
        "properties": settings.describe_settings(TargetSettings),
        "additionalProperties": False,
    }
    schemas["Problem"] = ProblemDocument.model_json_schema(
        mode="serialization", schema_generator=DescribedSchema
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waitroom", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "The ops listener (ops_listen)."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {"Operator": _OPERATOR},
            "headers": _RESPONSE_HEADERS,
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


@cache
def _encode_document() -> bytes:
    return json.dumps(build_document(), separators=(",", ":")).encode()


class OpenapiDocument(Reply):
    openapi: str
    """The version of OpenAPI."""
    paths: dict[str, Any]
    """The endpoints."""


class Cacheable(Headers):
    """The headers of a response that clients may cache."""

    cache_control: str


ENDPOINTS = Endpoints("operations")


@ENDPOINTS.get(
    "/openapi.json",
    ANYBODY,
    replies={200: (OpenapiDocument, "OpenAPI 3.1.", Cacheable)},
    bypasses_models=True,
    is_cacheable=True,
)
async def get_openapi(_request: web.Request) -> web.Response:
    """Get the OpenAPI document."""
    # It needs no token, because the document is the same in every installation.
    return web.Response(body=_encode_document(), content_type="application/json", headers=_HEADERS)
