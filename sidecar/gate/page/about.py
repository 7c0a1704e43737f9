"""Endpoints whose responses are the same for all visitors of a room: about, style.css, keep.js."""

import json
from pathlib import Path
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from sidecar.gate.contract import get_gate, is_resource
from sidecar.gate.page.branding import build_style_sheet
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON, Reply
from sidecar.rooms.appearance import Link
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.rooms.settings import RoomSettings

#: How many seconds nginx and browsers may cache a response. A change may show that much later.
_CACHE_S = 10
_HEADERS = {"Cache-Control": f"max-age={_CACHE_S}", "X-Accel-Expires": str(_CACHE_S)}

_KEEP_SCRIPT = Path(__file__).with_name("keep.js").read_text(encoding="utf-8")

_Seconds = Annotated[float, Field(gt=0)]


class About(Reply):
    """The facts about a room that its page shows. Durations are in seconds, null if the room has
    none."""

    room: str
    claim_seconds: _Seconds | None = None
    """The minimum time that a call is held for a page that does not poll (up to claim_window)."""
    session_seconds: _Seconds | None = None
    """How long a session lasts (session_duration)."""
    session_max_seconds: _Seconds | None = None
    """The maximum duration of a session with renewals (session_max_duration)."""
    is_renewed: bool = True
    """True if each request restarts session_seconds."""
    place_seconds: _Seconds | None = None
    """How long a visitor keeps the place after the last poll (rejoin_window)."""
    site_name: str | None = None
    """The site's name. If null, the page shows the name in its file."""
    logo: str | None = None
    """The path of the site's logo. If null, the page shows the logo in its file."""
    lines: dict[str, dict[str, str]] = Field(default={})
    """The labels of the sub-queues that the page shows, by name and language (lines)."""
    footer: tuple[Link, ...] = ()
    """The links at the bottom of the page. If empty, the page shows the links in its file."""


ENDPOINTS = Endpoints("visitor")
_SHARED: dict[str, Any] = {
    "parameters": RoomAddress,
    "problems": (UNKNOWN_ROOM,),
    "is_cacheable": True,
    "bypasses_models": True,
}


@ENDPOINTS.get(
    "/_waitroom/{room}/about",
    ANYBODY,
    replies={200: (About, "The facts about the room.")},
    **_SHARED,
)
async def get_about(request: web.Request) -> web.Response:
    """Get the facts about the room that a waiting page shows.

    The facts are the same for all visitors. nginx caches the response for 10 seconds."""
    room = get_gate(request)
    # A resource has no session durations, because its lease decides how long it lasts.
    document = About(room=room.name) if is_resource(room) else build_about(room.name, room.settings)
    return document.response(headers=_HEADERS)


@ENDPOINTS.get(
    "/_waitroom/{room}/style.css",
    ANYBODY,
    replies={200: (NO_JSON, "The room's colours, font and rules. Empty if it has none.")},
    other_media={"text/css": "A style sheet."},
    **_SHARED,
)
async def get_style(request: web.Request) -> web.Response:
    """Get the style sheet that the room's pages load after waiting.css.

    The style sheet is the same for all visitors. nginx caches the response for 10 seconds."""
    room = get_gate(request)
    style = "" if is_resource(room) else build_style_sheet(room.settings)
    return _make_file_response(style, "text/css")


@ENDPOINTS.get(
    "/_waitroom/{room}/keep.js",
    ANYBODY,
    replies={200: (NO_JSON, "The script. Empty for a leased resource.")},
    other_media={"text/javascript": "A script."},
    **_SHARED,
)
async def get_keep(request: web.Request) -> web.Response:
    """Get a script that renews the session while its visitor types or scrolls.

    The script is for pages with long forms. It stops after the room's `keepalive_max_duration`. It
    is the same for all visitors. nginx caches the response for 10 seconds."""
    room = get_gate(request)
    text = "" if is_resource(room) else build_keep_script(room.name, room.settings)
    return _make_file_response(text, "text/javascript")


def _make_file_response(text: str, content_type: str) -> web.Response:
    headers = {**_HEADERS, "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, content_type=content_type, charset="utf-8", headers=headers)


def build_keep_script(room: str, settings: RoomSettings) -> str:
    """Return keep.js with the room's values. An active visitor's browser sends four requests per
    `session_duration`, so the visitor may pause for three quarters of that time."""
    values = {
        "address": f"/_waitroom/{room}/status",
        "intervalMs": int(max(settings.session_duration / 4, 5) * 1000),
        "maxMs": int(settings.keepalive_max_duration * 1000),
    }
    beginning = f"const {{ address, intervalMs, maxMs }} = {json.dumps(values)};"
    return f"'use strict';\n{{\n{beginning}\n{_KEEP_SCRIPT}}}\n"


def build_about(room: str, settings: RoomSettings) -> About:
    return About(
        room=room,
        claim_seconds=settings.shortest_claim_s,
        session_seconds=settings.session_duration,
        session_max_seconds=settings.session_max_duration,
        is_renewed=not settings.disable_session_renewal,
        place_seconds=settings.rejoin_window or None,
        site_name=settings.site_name,
        logo=settings.logo,
        lines=settings.line_labels,
        footer=settings.footer,
    )
