"""Where handlers find the rooms in their application, and the one that a request names."""

from aiohttp import web

from sidecar.rooms.service import Room, Rooms

ROOMS = web.AppKey("rooms", Rooms)


def room_of(request: web.Request) -> Room:
    """Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])
