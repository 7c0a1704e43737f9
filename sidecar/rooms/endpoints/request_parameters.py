"""The room that a request names, and its classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.http.problems import problem
from sidecar.rooms.app_keys import ROOMS
from sidecar.rooms.schemas.common import UNKNOWN_CLASS

if TYPE_CHECKING:
    from aiohttp import web

    from sidecar.rooms.service import Room


def room_of(request: web.Request) -> Room:
    """Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])


def unknown_class(room: Room) -> web.Response:
    known = ", ".join(room.settings.classes) or "it has none"
    return problem(UNKNOWN_CLASS, detail=f"The classes of {room.name}: {known}.")
