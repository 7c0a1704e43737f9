"""The endpoint for a room's figures over time, which charts are drawn from."""

from aiohttp import web

from sidecar.http.endpoint import VIEWERS, Endpoints
from sidecar.rooms.app_keys import room_of
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.schemas.series import Series, SeriesEvent, SeriesParameters
from sidecar.rooms.statistics import HOUR_MS, steps

ENDPOINTS = Endpoints("administration", find=room_of, problems=(UNKNOWN_ROOM,))


@ENDPOINTS.get("/admin/rooms/{room}/series", VIEWERS, replies={200: "The steps."})
async def get_series(request: web.Request, at: SeriesParameters) -> Series:
    """Get a room's figures in steps of time, for the last 24 hours.

    What happened in all steps together is what the room's counters went up by. Redis keeps a sample
    a minute for two hours, and one every five minutes for 24.
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
