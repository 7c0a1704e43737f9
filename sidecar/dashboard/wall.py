"""Serves a room's figures to a wall display, by a signed link that allows no changes."""

import contextlib

from aiohttp import web

from sidecar.dashboard import pages
from sidecar.dashboard.live import LIVE
from sidecar.http.app_keys import STOPPING
from sidecar.http.auth.rights import covers
from sidecar.http.auth.session import OPERATORS, find_operator
from sidecar.http.problem_kinds import ROLE_TOO_LOW
from sidecar.http.problems import problem
from sidecar.rooms.service import ROOMS, WaitingRoom

#: These headers keep the URL out of Referer, because anybody can open the display by its URL.
_HEADERS = {**pages.HEADERS, "Referrer-Policy": "no-referrer"}


async def make_link(request: web.Request) -> web.Response:
    """Redirect an operator to the display of a room. Anybody can open its URL for 30 days."""
    operator = find_operator(request)
    if operator is None:
        return web.Response(status=303, headers={**_HEADERS, "Location": "/dashboard"})
    if not covers(operator.role, "operator"):
        detail = "The link opens the display to anybody: it needs the role operator."
        return problem(ROLE_TOO_LOW, detail=detail)
    name = request.query.get("room", "")
    if request.app[ROOMS].find(name) is None:
        return problem(404, "Unknown room", detail=f"There is no room {name[:64]!r}.")
    link = f"/dashboard/wall/{request.app[OPERATORS].sign_wall(name, operator)}"
    return web.Response(status=303, headers={**_HEADERS, "Location": link})


async def show_page(request: web.Request) -> web.Response:
    """Return the page of the display, or one that says that the link has expired."""
    if _find_room(request) is None:
        return pages.build_response("wall-over.html", 410)
    response = pages.build_response("wall.html")
    response.headers.update(_HEADERS)
    return response


async def stream_events(request: web.Request) -> web.StreamResponse:
    """Send the event `now` every second, with the room's figures but no ids."""
    room, live, stopping = _find_room(request), request.app[LIVE], request.app[STOPPING]
    if room is None:
        return problem(410, "The link is over")
    if stopping:
        return problem(503, "Stopping", retry_after=2)
    response = web.StreamResponse(headers={**pages.STREAM_HEADERS, **_HEADERS})
    await response.prepare(request)
    with live.count_viewer(request), contextlib.suppress(ConnectionResetError):
        while not (stopping or live.is_closed) and _find_room(request):
            await response.write(live.build_wall_event(room))
            await live.wait_for_update()
    return response


def _find_room(request: web.Request) -> WaitingRoom | None:
    """Return the room that the signed link in the path opens. None if the link is forged or
    expired, or the room no longer exists."""
    name = request.app[OPERATORS].read_wall(request.match_info["link"])
    return request.app[ROOMS].find(name or "")


ROUTES = (
    web.get("/dashboard/wall", make_link),
    web.get("/dashboard/wall/{link}", show_page),
    web.get("/dashboard/wall/{link}/events", stream_events, allow_head=False),
)
