"""What operations share: parameters, refusals, headers, and the ways to say who asks."""

from __future__ import annotations

from typing import Any

from sidecar.kit.http.auth.operators import COOKIE
from sidecar.kit.http.auth.session import CSRF_HEADER
from sidecar.kit.http.openapi import Json, shape, text, whole
from sidecar.kit.http.request_parameters import LIST_LIMIT, MAX_OFFSET


def _query(name: str, description: str, schema: Json, **more: Any) -> Json:
    return {"name": name, "in": "query", "description": description, "schema": schema, **more}


def _in_path(name: str, description: str, schema: Json, example: str) -> Json:
    return {
        "name": name, "in": "path", "required": True, "description": description,
        "schema": schema, "example": example,
    }  # fmt: skip


def _header(name: str, description: str, schema: Json, *, required: bool = False) -> Json:
    return {
        "name": name, "in": "header", "description": description, "schema": schema,
        "required": required,
    }  # fmt: skip


def parameters() -> Json:
    return {
        "Room": _in_path("room", "A room that is configured.", shape("Room"), "shop"),
        "Visitor": _in_path("visitor", "The visitor's id, as lists and the log tell it.",
                            shape("VisitorId"), "hQmVzkXy3c1tA9bWn0Lr-Q"),
        "Offset": _query("offset", "How many to leave out.", whole(maximum=MAX_OFFSET, default=0)),
        "Limit": _query("limit", "How many to tell, at most.",
                        whole(maximum=LIST_LIMIT, default=100)),
        "Operator": _header("X-Waitroom-Operator", "Who says so, for the log: 64 characters at "
                            "most. Ignored with a session of the dashboard.", text()),
    }  # fmt: skip


def headers() -> Json:
    return {
        "RetryAfter": {"description": "Seconds.", "required": True, "schema": whole(minimum=1)},
        "RateLimitPolicy": {
            "description": "As in draft-ietf-httpapi-ratelimit-headers: `q`, the key's limit; `w`, "
            "its window, where that has whole seconds. Not where nothing is limited.",
            "schema": text(
                pattern='^"[a-z0-9_-]+";q=[0-9]+(;w=[0-9]+|;qu="concurrent-requests")?$'
            ),
            "example": '"pay";q=20;w=1',
        },
        "RateLimit": {
            "description": "From the same draft: `r`, how much may go now; `t`, in how many "
            "seconds all of it may again; for whoever was refused, when to ask again.",
            "schema": text(pattern='^"[a-z0-9_-]+";r=[0-9]+(;t=[0-9]+)?$'),
            "example": '"pay";r=3;t=1',
        },
        "Authenticate": {"required": True, "schema": text(pattern="^Bearer ")},
        "NoStore": {"required": True, "schema": {"const": "no-store"}},
    }


def _refusal(description: str, example: Json, **more: str) -> Json:
    """A problem document; `more` are headers by name."""
    refs = {name: {"$ref": f"#/components/headers/{header}"} for name, header in more.items()}
    content = {"schema": shape("Problem"), "example": {"type": "about:blank", **example}}
    return {
        "description": description,
        "headers": {"Cache-Control": {"$ref": "#/components/headers/NoStore"}, **refs},
        "content": {"application/problem+json": content},
    }


def responses() -> Json:
    wait = {"Retry-After": "RetryAfter"}
    return {
        "NoToken": _refusal(
            "No token, or a wrong one.",
            {"title": "The token is wrong", "status": 401,
             "detail": "It is not this replica's admin_token."},
            **{"WWW-Authenticate": "Authenticate"},
        ),
        "TooManyGuesses": _refusal(
            "Ten wrong tokens came from this address within a minute: for the rest of it none is "
            "looked at. Sessions of the dashboard go on.",
            {"title": "Too many wrong tokens", "status": 429, "retry_after": 42,
             "detail": "They came from your address, 192.0.2.7; perhaps a program has an old "
             "token. Try again in 42 s. Sessions of the dashboard go on."}, **wait,
        ),
        "Forbidden": _refusal(
            "No `admin_token` is set, or a session's request is not the dashboard's own.",
            {"title": "Administration is off", "status": 403,
             "detail": "Set admin_token (WAITROOM_ADMIN_TOKEN) first."},
        ),
        "UnknownRoom": _refusal(
            "No such room.",
            {"title": "Unknown room", "status": 404, "detail": "no room is named 'shoop'"},
        ),
        "UnknownVisitor": _refusal(
            "No such room, or no such visitor in it.",
            {"title": "Unknown visitor", "status": 404,
             "detail": "hQmVzkXy3c1tA9bWn0Lr-Q is not in line"},
        ),
        "Conflict": _refusal(
            "The line is not as the call supposes: nobody fits between those who joined at once, "
            "nobody moved the visitor before, the pre-queue is not drawn yet, or the line was "
            "reset after the file was made.",
            {"title": "No place is free there", "status": 409,
             "detail": "Those who stand there joined at once; try 1."},
        ),
        "Unreadable": _refusal(
            "The body is not of its Content-Encoding.",
            {"title": "The body cannot be read", "status": 400},
        ),
        "TooLarge": _refusal(
            "A body of more than 256 KB; on the edge listener, of more than 64 KB.",
            {"title": "Request Entity Too Large", "status": 413}
        ),
        "NotAllowed": _refusal(
            "Something in the request is not allowed; `errors` names each such thing.",
            {"title": "The request is not allowed", "status": 422, "detail": "Nothing was changed.",
             "errors": ["poll_limit: Input should be greater than or equal to 1 (got 0)"]},
        ),
        "StoreAway": _refusal(
            "The store does not answer.",
            {"title": "The store does not answer", "status": 503, "retry_after": 5}, **wait,
        ),
    }  # fmt: skip


def security_schemes() -> Json:
    return {
        "token": {"type": "http", "scheme": "bearer", "description": "The `admin_token`."},
        "service": {
            "type": "http", "scheme": "bearer",
            "description": "The `service_token` or one of `tokens`, for programs, as far as its "
            "`scopes` go. The `admin_token` will do too.",
        },
        "session": {
            "type": "apiKey", "in": "cookie", "name": COOKIE,
            "description": "Of somebody who logged in at /dashboard.",
        },
        "csrf": {
            "type": "apiKey", "in": "header", "name": CSRF_HEADER,
            "description": "With a session's changes; /dashboard/session tells it.",
        },
    }  # fmt: skip
