"""A room's promises and looks, the same for all visitors: about, style.css, keep.js."""

import json
from pathlib import Path
from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from sidecar.gate.app_keys import gate_of
from sidecar.gate.contract import is_resource
from sidecar.gate.page.branding import style
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON, Reply
from sidecar.rooms.appearance import Link
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.rooms.settings import RoomSettings

#: For nginx and for browsers: an operator's change is seen within this time, seconds.
_KEPT_S = 10
_HEADERS = {"Cache-Control": f"max-age={_KEPT_S}", "X-Accel-Expires": str(_KEPT_S)}

_KEEP = Path(__file__).with_name("keep.js").read_text(encoding="utf-8")

_Seconds = Annotated[float, Field(gt=0)]


class About(Reply):
    """What a room promises. Durations are in seconds; null: the room does not have it."""

    room: str
    claim_seconds: _Seconds | None = None
    """How long a call is held at least for a page that does not poll (claim_window at most)."""
    session_seconds: _Seconds | None = None
    """How long a visit lasts (session_duration)."""
    session_max_seconds: _Seconds | None = None
    """How long it lasts at most, however often it is renewed (session_max_duration)."""
    is_renewed: bool = True
    """Whether each request begins session_seconds anew."""
    place_seconds: _Seconds | None = None
    """How long a browser's cookie keeps its place after the last poll (rejoin_window)."""
    site_name: str | None = None
    """The site's name. Null: the one that the page has."""
    logo: str | None = None
    """The path of its logo. Null: the one that the page has."""
    footer: tuple[Link, ...] = ()
    """Links below the page. Empty: those that the page has."""


ENDPOINTS = Endpoints("visitor")
_SHARED: dict[str, Any] = {
    "parameters": RoomAddress,
    "problems": (UNKNOWN_ROOM,),
    "is_cacheable": True,
    "is_hand_made": True,
}


@ENDPOINTS.get(
    "/_waitroom/{room}/about",
    ANYBODY,
    replies={200: (About, "What the room promises.")},
    **_SHARED,
)
async def get_about(request: web.Request) -> web.Response:
    """Get what a waiting page says about the room.

    The same for all visitors; nginx keeps it for 10 seconds.
    """
    room = gate_of(request)
    # A resource's term is the lease's.
    document = About(room=room.name) if is_resource(room) else about(room.name, room.settings)
    return document.response(headers=_HEADERS)


@ENDPOINTS.get(
    "/_waitroom/{room}/style.css",
    ANYBODY,
    replies={200: (NO_JSON, "The room's colours, font and rules; empty where it has none.")},
    other_media={"text/css": "A style sheet."},
    **_SHARED,
)
async def get_style(request: web.Request) -> web.Response:
    """Get the style sheet that the room's pages have after waiting.css.

    The same for all visitors; nginx keeps it for 10 seconds.
    """
    room = gate_of(request)
    return _file("" if is_resource(room) else style(room.settings), "text/css")


@ENDPOINTS.get(
    "/_waitroom/{room}/keep.js",
    ANYBODY,
    replies={200: (NO_JSON, "The script; without effect for a leased resource.")},
    other_media={"text/javascript": "A script."},
    **_SHARED,
)
async def get_keep(request: web.Request) -> web.Response:
    """Get a script that renews the session while its visitor types or scrolls.

    For pages with long forms. Its bound is the room's `keepalive_max_duration`. The same for all
    visitors; nginx keeps it for 10 seconds.
    """
    room = gate_of(request)
    text = "" if is_resource(room) else keep_script(room.name, room.settings)
    return _file(text, "text/javascript")


def _file(text: str, content_type: str) -> web.Response:
    headers = {**_HEADERS, "X-Content-Type-Options": "nosniff"}
    return web.Response(text=text, content_type=content_type, charset="utf-8", headers=headers)


def keep_script(room: str, settings: RoomSettings) -> str:
    """Return keep.js with the room's numbers. The script asks four times per `session_duration`,
    so a visitor may pause for three quarters of it."""
    numbers = {
        "address": f"/_waitroom/{room}/status",
        "every": int(max(settings.session_duration / 4, 5) * 1000),
        "most": int(settings.keepalive_max_duration * 1000),
    }
    beginning = f"const {{ address, every, most }} = {json.dumps(numbers)};"
    return f"'use strict';\n{{\n{beginning}\n{_KEEP}}}\n"


def about(room: str, settings: RoomSettings) -> About:
    return About(
        room=room,
        claim_seconds=settings.shortest_claim_s,
        session_seconds=settings.session_duration,
        session_max_seconds=settings.session_max_duration,
        is_renewed=not settings.disable_session_renewal,
        place_seconds=settings.rejoin_window or None,
        site_name=settings.site_name,
        logo=settings.logo,
        footer=settings.footer,
    )
