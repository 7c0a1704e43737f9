"""The doors to a draw: what is public of it."""

from __future__ import annotations

from sidecar.kit.http.openapi import (
    Json,
    moment,
    or_null,
    parameters,
    ref,
    refusals,
    reply,
    rows,
    shape,
    text,
    thing,
    whole,
)
from sidecar.kit.http.request_parameters import MAX_OFFSET
from sidecar.lottery.commitment import REVEAL_AFTER_MS
from sidecar.lottery.endpoints import PLACES_LIMIT

_NAME = "^[a-z0-9][a-z0-9_-]{0,31}$"
_AFTER = f"{REVEAL_AFTER_MS // 1000} s after the opening"
_EVENT = {
    "name": "event", "in": "query", "schema": text(pattern=_NAME),
    "description": "An event with a pre-queue. Otherwise the one that is on, else the coming one, "
    "else the last one.",
}  # fmt: skip
_ID = "hQmVzkXy3c1tA9bWn0Lr-Q"


def _hex(description: str) -> Json:
    return text(description, pattern="^[0-9a-f]{64}$")


def _draw() -> Json:
    return thing(
        {
            "room": shape("Room"),
            "event": text("The event.", pattern=_NAME),
            "events": rows(text(), "All of the room's events with a pre-queue, by time."),
            "prequeue_from": moment("From when on places are taken."),
            "opens_at": moment(),
            "revealed_at": moment("When the secret and the places are published."),
            "updated_at": moment("The room's time now."),
            "commitment": _hex("SHA-256 of the secret's text."),
            "secret": or_null(_hex(f"Null until {_AFTER}.")),
            "count": or_null(whole("How many places were drawn; null until the list is known.")),
            "places_sha256": or_null(
                _hex("SHA-256 over a line `place id` for each, in order of place. Published once.")
            ),
            "places_url": or_null(text("Where the list is; null until it is published, and when "
                                       "it is no longer kept.")),
            "store_emptied_at": or_null(moment("Where the store was emptied since the pre-queue "
                                               "began: the list is of those who came back.")),
        }
    )  # fmt: skip


def _places() -> Json:
    row = {
        "type": "array", "prefixItems": [shape("VisitorId"), whole(minimum=1)], "items": False,
        "description": "A visitor's id, and its place.",
    }  # fmt: skip
    return thing(
        {
            "room": shape("Room"),
            "event": text(pattern=_NAME),
            "offset": whole(),
            "next": or_null(whole("The offset of the next page; null: this was the last.")),
            "places": rows(row),
        }
    )


def _number(name: str, description: str, most: int, default: int) -> Json:
    schema = whole(maximum=most, default=default)
    return {"name": name, "in": "query", "description": description, "schema": schema}


def paths(servers: list[Json]) -> Json:
    drawn = reply(
        "What is public of the draw.",
        _draw(),
        example={
            "room": "shop", "event": "autumn", "events": ["autumn"],
            "prequeue_from": "2026-11-27T17:30:00.000+00:00",
            "opens_at": "2026-11-27T18:00:00.000+00:00",
            "revealed_at": "2026-11-27T18:00:03.000+00:00",
            "updated_at": "2026-11-20T09:12:44.120+00:00", "commitment": "5d" * 32,
            "secret": None, "count": None, "places_sha256": None, "places_url": None,
            "store_emptied_at": None,
        },
        headers={"Cache-Control": ref("headers", "NoStore")},
    )  # fmt: skip
    drawn["content"]["text/html"] = {"schema": text("A page that shows the draw and checks it.")}
    listed = reply(
        "Places, in their order.",
        _places(),
        example={
            "room": "shop", "event": "autumn", "offset": 0, "next": None,
            "places": [[_ID, 1]],
        },
    )  # fmt: skip
    return {
        "/_waitroom/{room}/draw": {
            "servers": servers,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "getDraw",
                "tags": ["visitor"],
                "summary": "What is public of a pre-queue's draw",
                "description": "The commitment, long before the pre-queue begins; the secret and "
                f"where the places are from {_AFTER} on. 404 also where the room has no such "
                "event.",
                "parameters": [_EVENT],
                "responses": {"200": drawn, **refusals("404", "503")},
                "security": [],
            },
        },
        "/_waitroom/{room}/draw/places": {
            "servers": servers,
            "parameters": parameters("Room"),
            "get": {
                "operationId": "getDrawnPlaces",
                "tags": ["visitor"],
                "summary": "Every place that was drawn",
                "description": "In pages, in order of place. 404 until they are published, and "
                "when another pre-queue has begun since.",
                "parameters": [
                    _EVENT,
                    _number("offset", "How many to leave out.", MAX_OFFSET, 0),
                    _number("limit", "How many to tell, at most.", PLACES_LIMIT, PLACES_LIMIT),
                ],
                "responses": {"200": listed, **refusals("404", "422", "503")},
                "security": [],
            },
        },
    }  # fmt: skip
