"""The endpoint by which a visitor gives up the place or the session."""

import math
import time

from aiohttp import web

from sidecar.gate.contract import get_gate, get_label, is_resource
from sidecar.gate.page import status_document
from sidecar.gate.page.responses import NO_STORE, render_page
from sidecar.gate.return_address import read_next_in_form
from sidecar.gate.schemas import FROM_ELSEWHERE, Status
from sidecar.gate.status import PAGE_ENDPOINT
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problems import problem
from sidecar.kit.addresses import AddressLimit
from sidecar.rooms.metrics import RoomMetrics
from sidecar.visitors.model import Ticket, VisitorState

#: Limits how many places each IP address gives up.
LEAVE_LIMIT = web.AppKey("leave_limit", AddressLimit)
#: How many places an IP address may give up per second, and at once: more than the visitors of a
#: company or a mobile network give up by hand. Redis stores each place given up for as long as its
#: ticket would be valid, so one IP address can fill 60 MB of memory a day.
LEAVES_PER_S, LEAVES_AT_ONCE = 5, 200

ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.post(
    "/_waitroom/{room}/leave",
    ANYBODY,
    replies={
        200: (Status, "The visitor's state and position."),
        204: (NO_BODY, "A prefetch, a prerender or a request for an image changes nothing."),
    },
    **{**PAGE_ENDPOINT, "problems": (FROM_ELSEWHERE, *PAGE_ENDPOINT["problems"])},
)
async def leave(request: web.Request) -> web.Response:
    """Give up the place or the session.

    The next visitor gets the slot at once. Without a cookie, nothing happens, which is no error.
    429: this IP address gave up too many places. Without polls, the place expires anyway."""
    room = get_gate(request)
    # Only nginx can have set this header, because nginx removes it from visitors' requests.
    release = request.headers.get("X-Waitroom-Release")
    by_site = release in {"site", "anywhere"}
    visitor_request = (
        VisitorRequest.from_nginx(request.headers, room)
        if by_site
        else VisitorRequest.from_page(request, room)
    )
    is_allowed = release == "anywhere" or visitor_request.site in {"same-origin", "none"}
    if not visitor_request.is_script_or_navigation or (by_site and not is_allowed):
        return web.Response(status=204, headers=NO_STORE)
    if not is_allowed:
        return problem(FROM_ELSEWHERE, detail=FROM_ELSEWHERE.remedy)
    token = visitor_request.token
    # Places cost nothing, so an attacker could take and give up any number. Sessions are limited.
    if isinstance(token, Ticket) and not (by_site or is_resource(room)):
        wait_s = request.app[LEAVE_LIMIT].wait_s(visitor_request.address, time.monotonic())
        if wait_s:
            request.app[METRICS].of(RoomMetrics).refused_leaves.labels(room.name).inc()
            detail = "Your network gave up too many places at once. Without your polls this one "
            detail += "ends by itself."
            retry_after = math.ceil(wait_s)
            return problem(429, "Too many places given up", detail=detail, retry_after=retry_after)
    await room.leave(token, why="released" if by_site else "left")
    request.app[METRICS].requests.count(get_label(room), "leave", VisitorState.NOT_QUEUED)
    if visitor_request.wants_page:
        return render_page(request, room, None, await read_next_in_form(request))
    return web.json_response(status_document.build_document(room, None), headers=NO_STORE)
