"""A look at what a room's events will do, for operators."""

from __future__ import annotations

from aiohttp import web

from sidecar.rooms.endpoints.request_parameters import room_of
from sidecar.rooms.openings_preview import preview, read_time


async def show(request: web.Request) -> web.Response:
    """All events of a room, and what holds now, or at the time that `at` names."""
    room = room_of(request)
    snapshot = await room.refresh()
    # Without what an open event replaces at the moment.
    settings, _ = room.file_settings.overridden(snapshot.overrides)
    at = request.query.get("at")
    at_ms = None if at is None else read_time(at, settings)
    document = preview(settings, now_ms=room.clock.now_ms(), at_ms=at_ms)
    return web.json_response({"room": room.name, **document})
