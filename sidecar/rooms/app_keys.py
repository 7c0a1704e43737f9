"""The application's key for its rooms."""

from aiohttp import web

from sidecar.rooms.service import Room, Rooms

ROOMS = web.AppKey("rooms", Rooms)


def room_of(request: web.Request) -> Room:
    """Return the room that a request names. Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])
