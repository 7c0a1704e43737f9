"""Endpoints that notify visitors of their call: an event stream, and a link."""

from __future__ import annotations

from typing import Any

from sidecar.kit.http.openapi import Json, parameters, ref, refusals, text

_PAGE = {"text/html": {"schema": text("A page that says so, in the visitor's language.")}}
_LINK: list[Json] = [
    {
        "name": "token", "in": "query", "required": True, "schema": text(),
        "description": "As webhooks receive it, in `claim_url`.",
    },
    {
        "name": "next", "in": "query", "schema": text(),
        "description": "A path on the site, to go on to. The last parameter: it goes to the end.",
    },
]  # fmt: skip
_STREAM = """\
Server-sent events. `status`, with the same document as the status door, whenever a poll would be \
due: it is the heartbeat. `called` when the turn has come, with `room`, `visitor` and `path`: go \
there, or ask for the site again, with the cookie that you have; then the stream ends. Comments \
in between are signs of life.\
"""


def _page(description: str, **headers: Json) -> Json:
    sent = {"Cache-Control": ref("headers", "NoStore"), **headers}
    return {"description": description, "headers": sent, "content": _PAGE}


def paths(servers: list[dict[str, Any]]) -> Json:
    pages = {
        "400": _page("The link is not one of ours, not complete, or too old."),
        "410": _page("The visit has begun elsewhere, or the place is gone."),
        "503": _page("The store does not answer.", **{"Retry-After": ref("headers", "RetryAfter")}),
    }
    return {
        "/_waitroom/{room}/events": {
            "servers": servers,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "streamEvents",
                "tags": ["visitor"],
                "summary": "Where the visitor stands, as a stream",
                "description": "Only where `event_streams` is set; as many at a time. It takes no "
                "place: without one there is one `status`, and the end. A stream that ends before "
                "`called` is opened again, unless the state was `not_queued`.",
                "responses": {
                    "200": {
                        "description": _STREAM,
                        "headers": {
                            "Set-Cookie": ref("headers", "Cookie"),
                            "Cache-Control": ref("headers", "NoStore"),
                        },
                        "content": {"text/event-stream": {"schema": text()}},
                    },
                    **refusals("404", "429", "503"),
                },
                "security": [],
            },
        },
        "/_waitroom/{room}/claim": {
            "servers": servers,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "showClaim",
                "tags": ["visitor"],
                "summary": "The page of a link to another browser",
                "description": "It changes nothing and sets no cookie; its button does.",
                "parameters": _LINK,
                "responses": {
                    "200": _page("The place or the turn is there to be taken."),
                    **pages,
                    **refusals("404"),
                },
                "security": [],
            },
            "post": {
                "operationId": "takeClaim",
                "tags": ["visitor"],
                "summary": "Take a place or a turn to this browser",
                "description": "Gives the ticket as a cookie. The turn is claimed by the next "
                "request to the site.",
                "parameters": [*_LINK, *parameters("Site")],
                "responses": {
                    "200": _page("Another site made the browser ask: nothing was given."),
                    "303": {
                        "description": "On to `next`, with the ticket.",
                        "headers": {
                            "Location": {"required": True, "schema": text()},
                            "Set-Cookie": ref("headers", "Cookie"),
                            "Cache-Control": ref("headers", "NoStore"),
                        },
                    },
                    **pages,
                    **refusals("404"),
                },
                "security": [],
            },
        },
    }
