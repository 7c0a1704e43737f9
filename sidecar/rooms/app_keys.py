"""The key under which the application holds its rooms."""

from aiohttp import web

from sidecar.rooms.service import Room, Rooms

ROOMS = web.AppKey("rooms", Rooms)


def room_of(request: web.Request) -> Room:
    """Return the room named in a request's path. Raises UnknownNameError."""
    return request.app[ROOMS].get(request.match_info["room"])
