"""The endpoint for the time series of a room's figures, for charts."""

from aiohttp import web

from sidecar.http.endpoint import VIEWERS, Endpoints
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.schemas.series import Series, SeriesEvent, SeriesParameters
from sidecar.rooms.service import room_of
from sidecar.rooms.statistics import HOUR_MS, steps

ENDPOINTS = Endpoints("administration", find=room_of, problems=(UNKNOWN_ROOM,))


@ENDPOINTS.get("/admin/rooms/{room}/series", VIEWERS, replies={200: "The steps."})
async def get_series(request: web.Request, at: SeriesParameters) -> Series:
    """Get a room's figures over time, at most for the last 24 hours.

    The counts of all steps add up to the growth of the room's counters. Redis keeps one sample a
    minute for two hours, and one every five minutes for 24 hours.
    """
    room = room_of(request)
    until_ms = room.clock.now_ms() if at.until is None else at.until
    from_ms = until_ms - HOUR_MS if at.from_ is None else at.from_
    found = steps(await room.store.lists.minutes(), from_ms, until_ms, at.step * 1000)
    return Series(
        room=room.name,
        steps=found,
        events=[SeriesEvent.model_validate(event) for event in room.settings.events],
    )
