"""Endpoints for visitors: through the proxy, at the site's own address."""

from __future__ import annotations

from sidecar.gate.openapi import turn_elsewhere as elsewhere
from sidecar.kit.http.openapi import Json, parameters, ref, refusals, reply, shape, text

SERVERS = [
    {
        "url": "https://{site}",
        "description": "Your site: the proxy passes /_waitroom/ on to the edge listener.",
        "variables": {"site": {"default": "www.example.com"}},
    }
]
_COOKIE = (
    " A visitor is known by the cookie `waitroom_<room>`, which answers give and requests send "
    "back; without it nobody is known."
)
_EXAMPLE = {
    "state": "waiting", "visitor": "hQmVzkXy3c1tA9bWn0Lr-Q", "position": 18,
    "position_above": None, "line": None, "waiting": 240, "ahead": 17, "wait_seconds": 95,
    "wait_seconds_low": 60, "wait_seconds_high": 140,
    "joined_at": "2026-11-27T18:00:03.120+00:00", "updated_at": "2026-11-27T18:02:10.004+00:00",
    "refresh_after_seconds": 9.6, "message": None, "room": "shop", "phase": "open",
    "event": "sale", "prequeue_from": "2026-11-27T17:30:00.000+00:00",
    "opens_at": "2026-11-27T18:00:00.000+00:00", "closes_at": None,
}  # fmt: skip
_HEADERS = {
    "Set-Cookie": ref("headers", "Cookie"),
    "Cache-Control": ref("headers", "NoStore"),
}
_STANDING = reply("Where the visitor stands.", shape("Status"), example=_EXAMPLE, headers=_HEADERS)
_PAGE = {"text/html": {"schema": text("The waiting page.")}}
_FORM = {
    "description": "Of the page's form; JSON needs no body.",
    "content": {
        "application/x-www-form-urlencoded": {
            "schema": {
                "type": "object",
                "properties": {"next": text("A path on the site, to go to once inside.")},
            }
        }
    },
}


def paths() -> Json:
    return {
        "/_waitroom/{room}/status": {
            "servers": SERVERS,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "getStatus",
                "tags": ["visitor"],
                "summary": "Where the visitor stands",
                "description": "Asking is the heartbeat that keeps the place: ask again after "
                "`refresh_after_seconds`, and no sooner. `admitted`: the site lets this cookie in. "
                "It takes no place: that is what join is for." + _COOKIE,
                "parameters": [
                    {
                        "name": "client", "in": "query", "schema": text(), "allowEmptyValue": True,
                        "description": "Adds `client`, the address that the proxy names, and "
                        "`store`.",
                    }
                ],
                "responses": {"200": _STANDING, **refusals("404", "429", "503")},
                "security": [],
            },
        },
        "/_waitroom/{room}/join": {
            "servers": SERVERS,
            "parameters": parameters("Room"),
            "post": {
                "operationId": "join",
                "tags": ["visitor"],
                "summary": "Take a place",
                "description": "A visitor who has one keeps it. A browser that asks for a page "
                "gets the waiting page, or is sent to `next`." + _COOKIE,
                "parameters": parameters("Site"),
                "requestBody": _FORM,
                "responses": {
                    "200": {**_STANDING, "content": {**_STANDING["content"], **_PAGE}},
                    "303": {
                        "description": "Inside, for a browser: on to `next`.",
                        "headers": {"Location": {"required": True, "schema": text()}},
                    },
                    **refusals("400", "404", "413", "429", "503"),
                },
                "security": [],
            },
        },
        "/_waitroom/{room}/leave": {
            "servers": SERVERS,
            "parameters": parameters("Room"),
            "post": {
                "operationId": "leave",
                "tags": ["visitor"],
                "summary": "Give up the place or the session",
                "description": "The slot is free at once for the next visitor. Without a cookie "
                "there is nothing to give up, and that is no error. 429: this address gave up too "
                "many places in the queue; a place ends by itself without polls." + _COOKIE,
                "requestBody": _FORM,
                "responses": {
                    "200": {**_STANDING, "content": {**_STANDING["content"], **_PAGE}},
                    "204": {"description": "Fetched ahead (prefetch, prerender): nothing done."},
                    **refusals("400", "404", "413", "429", "503"),
                },
                "security": [],
            },
        },
        **elsewhere.paths(SERVERS),
    }  # fmt: skip
