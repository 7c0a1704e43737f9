"""The operator's page: live, for those who are logged in."""

from __future__ import annotations

import contextlib

from aiohttp import web

from sidecar.dashboard import page as desk
from sidecar.dashboard.app_keys import LIVE
from sidecar.history.app_keys import HISTORY
from sidecar.jobs.app_keys import JOBS
from sidecar.kit.http.app_keys import OPERATORS, SETTINGS, STOPPING
from sidecar.kit.http.auth.session import is_same_origin, operator_of
from sidecar.kit.http.problems import problem

_STREAM = {
    **desk.HEADERS,
    "Content-Type": "text/event-stream; charset=utf-8",
    "X-Accel-Buffering": "no",  # an nginx in front passes each event on at once
}
#: A browser whose connection broke tries again after this many ms.
_RETRY = b"retry: 1000\n\n"
_END = b"event: end\ndata: {}\n\n"


async def page(request: web.Request) -> web.Response:
    """The dashboard, or the way in to it."""
    if not request.app[OPERATORS].is_on:
        return desk.off()
    return desk.page() if operator_of(request) else desk.login()


async def asset(request: web.Request) -> web.Response:
    found = desk.asset(request.match_info["name"])
    return problem(404, "Not Found") if found is None else found


async def session(request: web.Request) -> web.Response:
    """Who is logged in, what the page sends along with every change, whether a history is kept
    and there are jobs, and whether the store is this replica's memory."""
    operator = operator_of(request)
    if operator is None:
        return problem(401, "Nobody is logged in")
    told = {
        "operator": operator.name,
        "csrf": request.app[OPERATORS].csrf(operator),
        "history": HISTORY in request.app,
        "jobs": JOBS in request.app,
        "in_memory": request.app[SETTINGS].is_in_memory,
    }
    return web.json_response(told, headers=desk.HEADERS)


async def events(request: web.Request) -> web.StreamResponse:
    """Server-sent events: `now` every second, `study` for a room whenever that has changed, `end`
    when the session does."""
    operators, live = request.app[OPERATORS], request.app[LIVE]
    operator = operator_of(request)
    if operator is None or not is_same_origin(request.headers):
        return problem(401, "Nobody is logged in")
    stopping = request.app[STOPPING]
    if stopping:
        return problem(503, "Stopping", retry_after=2)
    response = web.StreamResponse(headers=_STREAM)
    await response.prepare(request)
    seen: dict[str, bytes] = {}
    # A browser that has gone away is noticed when it is written to.
    with live.watched(request), contextlib.suppress(ConnectionResetError):
        await response.write(_RETRY)
        while not (stopping or live.is_closed):
            if operators.is_over(operator):
                await response.write(_END)
                break
            await response.write(live.text(seen))
            await live.news()
    return response
