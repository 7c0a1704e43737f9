"""Endpoints where proxies ask whether a request may pass: on the edge listener only."""

from __future__ import annotations

from sidecar.kit.http.openapi import (
    ROOM,
    Json,
    or_null,
    parameters,
    ref,
    shape,
    text,
    thing,
    whole,
    words,
)
from sidecar.queue.model import State

#: A room, or a resource that is leased.
NAMED = ROOM.removesuffix("$") + r"(~[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127})?$"
_SERVERS = [
    {
        "url": "http://{edge}",
        "description": "The edge listener (edge_listen), which only your proxies can reach.",
        "variables": {"edge": {"default": "127.0.0.1:8400"}},
    }
]


def _asked(name: str, description: str, *, required: bool = False, pattern: str = "") -> Json:
    schema = text(pattern=pattern) if pattern else text()
    return {
        "name": name, "in": "header", "required": required, "description": description,
        "schema": schema,
    }  # fmt: skip


_ABOUT = [
    _asked("X-Original-URI", "What the visitor asked for; X-Forwarded-Uri is understood too."),
    _asked("X-Original-Method", "How, otherwise GET; X-Forwarded-Method is understood too."),
    _asked("X-Real-IP", "The visitor's address, for rooms that ask for it."),
    _asked("X-Forwarded-Proto", "https makes the cookie Secure."),
]
_STATE = {
    "required": True,
    "schema": {"enum": [*(state.value for state in State), "unknown-room", "unknown-resource"]},
}
_SAID = {
    "X-Waitroom-State": _STATE,
    "Set-Cookie": ref("headers", "Cookie"),
    "X-Waitroom-Fence": {
        "description": "The lease's fencing number, of its holder: it only grows.",
        "schema": whole(minimum=1),
    },
    "X-Accel-Expires": {
        "description": "For how many seconds the verdict about this very cookie may be kept; "
        "without it, not at all.",
        "schema": whole(),
    },
}
_REFUSED = {
    **_SAID,
    "X-Waitroom-Status": {
        "description": "The status that the room's visitors are to get.",
        "schema": {"type": "integer", "enum": [200, 202, 429, 503]},
    },
    "Retry-After": {"description": "Seconds.", "schema": whole(minimum=1)},
    "X-Waitroom-Position": {"schema": whole(minimum=1)},
    "X-Waitroom-Wait": {"description": "Seconds.", "schema": whole()},
}
_PERMIT_DOUBTS = ("none", "forged", "expired", "used", "over")
_PERMIT_SAID = {
    "Cache-Control": ref("headers", "NoStore"),
    "X-Waitroom-State": {
        "required": True,
        "schema": words("admitted", *_PERMIT_DOUBTS, "permit-away", "unknown-target"),
    },
}
_LIMIT_SAID = {
    "X-Waitroom-State": {
        "required": True,
        "schema": words("admitted", "limited", "limit-away", "unknown-limit"),
    },
    "X-Waitroom-Limit": {"description": "The rule, of what passes.", "schema": text()},
    "RateLimit-Policy": {
        "description": "The rule's name, its limit (q) and window (w, seconds), as "
        "draft-ietf-httpapi-ratelimit-headers has it. Missing where nothing is limited, or "
        "nobody knows.",
        "schema": text(),
    },
    "RateLimit": {
        "description": "The rule's name, how many calls are left (r), and seconds (t) until all "
        "are, or until a refused one may be tried again.",
        "schema": text(),
    },
    "Retry-After": {"description": "Seconds, of a refusal.", "schema": whole(minimum=1)},
}
_NUMBERS = {
    "allOf": [
        shape("Problem"),
        thing(
            {
                "room": shape("Room"),
                "state": {"enum": [state.value for state in State]},
                "position": or_null(whole(minimum=1)),
                "wait_seconds": or_null(whole()),
                "retry_after_seconds": whole(minimum=1),
                "status_url": text(format="uri-reference"),
                "join_url": text(format="uri-reference"),
            },
            optional=("room", "state", "position", "wait_seconds", "retry_after_seconds",
                      "status_url", "join_url"),
            description="Where the visitor stands; not of an unknown room.",
        ),
    ]
}  # fmt: skip
_WAITING = {
    "description": "Waits, or is refused: the waiting page; for programs the numbers. The status "
    "is the room's `queueing_status_code`, where that is a refusal. 503 without "
    "`X-Waitroom-Status`: unknown room.",
    "headers": _REFUSED,
    "content": {
        "text/html": {"schema": text("The waiting page.")},
        "application/problem+json": {"schema": _NUMBERS},
    },
}


def paths() -> Json:
    return {
        "/check": {
            "servers": _SERVERS,
            "get": {
                "operationId": "check",
                "tags": ["proxy"],
                "summary": "May this request pass?",
                "description": "For nginx's `auth_request`, with the visitor's own headers: "
                "Cookie, Accept and the like. Any method is answered alike. Nothing has a body.",
                "parameters": [
                    _asked("X-Waitroom-Room", "The room; or a resource that is leased, with its "
                           "template's name, such as seat~17.", required=True, pattern=NAMED),
                    *_ABOUT,
                    _asked("X-Waitroom-Exempt", "Not empty: let it pass, uncounted."),
                    _asked("X-Waitroom-Class", "The visitor's class, where the room says "
                           "class_header."),
                    _asked("X-Waitroom-Msec", "The proxy's time, seconds since 1970 with three "
                           "decimals. A replica goes by it until its store has said the time."),
                    _asked("X-Waitroom-Given", "The Set-Cookie of the last answer, where a request "
                           "is asked about twice."),
                ],
                "responses": {
                    "204": {"description": "It may.", "headers": _SAID},
                    "401": {"description": "The visitor waits.", "headers": _REFUSED},
                    "403": {
                        "description": "The room is full or closed, or there is unknown room.",
                        "headers": _REFUSED,
                    },
                },
                "security": [],
            },
        },
        "/check-permit": {
            "servers": _SERVERS,
            "get": {
                "operationId": "checkPermit",
                "tags": ["proxy"],
                "summary": "Does the permit of an online job let this request pass?",
                "description": "For nginx's `auth_request`. A permit passes once. Nothing has a "
                "body.",
                "parameters": [
                    _asked("X-Waitroom-Target", "What is called.", required=True, pattern=ROOM),
                    _asked("X-Waitroom-Permit", "The permit. Without one nothing passes."),
                    _asked("X-Waitroom-Given", "The X-Waitroom-Job of the last answer, where a "
                           "request is asked about twice."),
                ],
                "responses": {
                    "204": {
                        "description": "It does.",
                        "headers": {
                            **_PERMIT_SAID,
                            "X-Waitroom-Job": {
                                "required": True, "description": "Whose permit it was.",
                                "schema": text(),
                            },
                        },
                    },
                    "403": {
                        "description": "It does not; or Redis is unavailable; or there is no "
                        "target.",
                        "headers": {
                            **_PERMIT_SAID,
                            "X-Waitroom-Reason": {
                                "description": "over: it is not called any more.",
                                "schema": words(*_PERMIT_DOUBTS),
                            },
                            "Retry-After": {"description": "Seconds, while Redis is unavailable.",
                                            "schema": whole(minimum=1)},
                        },
                    },
                },
                "security": [],
            },
        },
        "/check-limit": {
            "servers": _SERVERS,
            "get": {
                "operationId": "checkLimit",
                "tags": ["proxy"],
                "summary": "Does a rate limit let this request pass?",
                "description": "For nginx's `auth_request`. A rule that paces holds the answer "
                "until the request may go, for at most 25 s; what would be later is refused. "
                "Nothing has a body.",
                "parameters": [
                    _asked("X-Waitroom-Limit", "The rule.", required=True, pattern=ROOM),
                    _asked("X-Waitroom-Key", "The whole key that calls are counted by. What "
                           "a key may not contain is percent-encoded; one that is too long is its "
                           "digest, and an IPv6 address by its network of 64 bits. Without it, "
                           "all without it are one."),
                    _asked("X-Original-Method", "How the visitor asked, otherwise GET: a CORS "
                           "preflight passes uncounted."),
                    _asked("X-Waitroom-Given", "The X-Waitroom-Limit of the last answer, where a "
                           "request is asked about twice: it counts once. RateLimit and "
                           "RateLimit-Policy are sent with it then."),
                ],
                "responses": {
                    "204": {"description": "It does.", "headers": _LIMIT_SAID},
                    "403": {
                        "description": "It does not; or Redis is unavailable, and the rule refuses "
                        "then; or the rule is unknown.",
                        "headers": _LIMIT_SAID,
                    },
                },
                "security": [],
            },
        },
        "/gate/{room}": {
            "servers": _SERVERS,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "gate",
                "tags": ["proxy"],
                "summary": "May this request pass? If not, what to answer",
                "description": "For proxies that hand a refusal on as it is. Any method is "
                "answered alike. What follows the room's name in the address, if anything, is "
                "taken for the address that the visitor asked for.",
                "parameters": _ABOUT,
                "responses": {
                    "200": {"description": "It may.", "headers": _SAID},
                    "429": _WAITING,
                    "503": _WAITING,
                },
                "security": [],
            },
        },
    }  # fmt: skip
