"""The waiting side: status (a heartbeat), join, leave, and the page itself."""

import math
import time
from typing import Any

from aiohttp import web

from sidecar.gate.app_keys import LEAVE_LIMIT, MEMORY, RECENT_POLLS, STAMPS, gate_of
from sidecar.gate.ask import ask
from sidecar.gate.check import BRIEF_CACHE_S
from sidecar.gate.contract import Gate, is_resource, label
from sidecar.gate.cookies import set_cookie
from sidecar.gate.page import status_document
from sidecar.gate.page.responses import NO_STORE, render_page
from sidecar.gate.return_address import next_in_form, next_in_query
from sidecar.gate.schemas import (
    FROM_ELSEWHERE,
    CookieGiven,
    Form,
    Onward,
    Site,
    Status,
    StatusParameters,
)
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.json_text import to_json
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problem_kinds import GENERAL, STORE_UNAVAILABLE, TOO_LARGE, UNREADABLE
from sidecar.http.problems import STORE_RETRY_S, problem
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.addresses import AddressLimit
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Ticket, VisitorState

#: How many places an address may give up a second, and at once: more than a company's or a mobile
#: network's visitors do by hand. Each is remembered for as long as its ticket would be valid, which
#: makes some 60 MB a day of the store's memory.
LEAVES_PER_S, LEAVES_AT_ONCE = 5, 200

_JSON = {**NO_STORE, "Content-Type": "application/json; charset=utf-8"}
_KEPT_JSON = {**_JSON, "X-Accel-Expires": BRIEF_CACHE_S}

_STANDS = (Status, "Where the visitor stands.", CookieGiven)
_PROBLEMS = (UNKNOWN_ROOM, GENERAL[429], GENERAL[503], STORE_UNAVAILABLE)
_PAGE: dict[str, Any] = {
    "parameters": RoomAddress,
    "form": Form,
    "other_media": {"text/html": "The waiting page."},
    "problems": (UNREADABLE, *_PROBLEMS, TOO_LARGE),
    "is_hand_made": True,
}

ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.get(
    "/_waitroom/{room}/status",
    ANYBODY,
    parameters=StatusParameters,
    replies={200: _STANDS},
    problems=_PROBLEMS,
    is_hand_made=True,
)
async def get_status(request: web.Request, room: Gate | None = None) -> web.Response:
    """Get the visitor's state and position.

    Each request is the heartbeat that keeps the place. Ask again after `refresh_after_seconds`, and
    no sooner. It takes no place: use join. Send the cookie `waitroom_<room>` of earlier responses.
    Without it the visitor is unknown.
    """
    # `room` is given where the address names it without a pattern.
    room = room or gate_of(request)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    answer = await ask(request, room, visitor_request, "status")
    return _status_response(request, room, answer)


@ENDPOINTS.post(
    "/_waitroom/{room}/join",
    ANYBODY,
    headers=Site,
    replies={200: _STANDS, 303: (NO_BODY, "Inside, for a browser: on to `next`.", Onward)},
    **_PAGE,
)
async def join(request: web.Request, room: Gate | None = None) -> web.Response:
    """Join the queue.

    A visitor who has a place keeps it. A browser that asks for a page gets the waiting page, or is
    redirected to `next`. While the shield is up, newcomers get `not_queued`, and with it a
    `join_url`: send the next POST there after `refresh_after_seconds`.
    """
    room = room or gate_of(request)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    may_join = not (visitor_request.is_cross_site or visitor_request.is_prefetch)
    if not visitor_request.wants_page:
        answer = await ask(request, room, visitor_request, "join", may_join=may_join)
        return _status_response(request, room, answer)
    visitor_request.uri = following = await next_in_form(request)
    answer = await ask(request, room, visitor_request, "join", may_join=may_join)
    return _page_response(request, room, answer, following)


@ENDPOINTS.post(
    "/_waitroom/{room}/leave",
    ANYBODY,
    replies={
        200: (Status, "Where the visitor stands."),
        204: (NO_BODY, "Fetched ahead (prefetch, prerender), or for a picture: nothing done."),
    },
    **{**_PAGE, "problems": (FROM_ELSEWHERE, *_PAGE["problems"])},
)
async def leave(request: web.Request) -> web.Response:
    """Give up the place or the session.

    The next visitor has the slot at once. Without a cookie nothing happens, and that is no error.
    429: this address gave up too many places. A place also ends by itself without polls.
    """
    room = gate_of(request)
    # Only nginx can say so: it passes no header of the visitor's on but those it names.
    release = request.headers.get("X-Waitroom-Release")
    by_site = release in {"site", "anywhere"}
    visitor_request = (
        VisitorRequest.from_nginx(request.headers, room)
        if by_site
        else VisitorRequest.from_page(request, room)
    )
    is_ours = release == "anywhere" or visitor_request.is_same_site
    if not visitor_request.is_script_or_navigation or (by_site and not is_ours):
        return web.Response(status=204, headers=NO_STORE)
    if not is_ours:
        return problem(FROM_ELSEWHERE, detail=FROM_ELSEWHERE.remedy)
    token = visitor_request.token
    # The number of sessions is limited, and a place in the queue costs nothing.
    if isinstance(token, Ticket) and not (by_site or is_resource(room)):
        wait_s = request.app[LEAVE_LIMIT].wait_s(visitor_request.address, time.monotonic())
        if wait_s:
            request.app[METRICS].of(RoomMetrics).refused_leaves.labels(room.name).inc()
            return problem(
                429,
                "Too many places given up",
                detail="Your network gave up too many places at once. Without your polls this one "
                "ends by itself.",
                retry_after=math.ceil(wait_s),
            )
    await room.leave(token, why="released" if by_site else "left")
    request.app[METRICS].requests.count(label(room), "leave", VisitorState.NOT_QUEUED)
    if visitor_request.wants_page:
        return render_page(request, room, None, await next_in_form(request))
    return web.json_response(status_document.build_document(room, None), headers=NO_STORE)


def leave_limit() -> AddressLimit:
    return AddressLimit(per_s=LEAVES_PER_S, burst=LEAVES_AT_ONCE)


async def page(request: web.Request) -> web.Response:
    """Show the waiting page with its numbers. It enters by itself when the turn comes."""
    room = gate_of(request)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    may_join = visitor_request.wants_place
    answer = await ask(request, room, visitor_request, "page", may_join=may_join)
    return _page_response(request, room, answer, next_in_query(request))


def poll_refusal(answer: Answer) -> web.Response | None:
    """Return the response if Redis is unavailable and knows no place of the visitor, or if they
    poll too often."""
    if answer.store_unavailable and answer.joined_ms is None:
        return problem(503, "The store does not answer", retry_after=STORE_RETRY_S)
    limited_ms = answer.standing.limited_ms if answer.standing else 0
    if limited_ms and answer.state is VisitorState.WAITING:
        return problem(
            429,
            "Too many polls",
            detail="Your place is kept. Ask again after Retry-After seconds.",
            retry_after=math.ceil(limited_ms / 1000),
        )
    return None


def _status_response(request: web.Request, room: Gate, answer: Answer) -> web.Response:
    refusal = poll_refusal(answer)
    if refusal is not None:
        return refusal
    document = status_document.build_document(room, answer)
    has_query = "?" in request.raw_path
    if has_query and "client" in request.query:
        # Their own address, as nginx names it, where the room is kept, and whether nginx's key is
        # ours: `waitroom doctor` finds a wrong address, store or key by it.
        document["client"] = request.headers.get("X-Real-IP")
        document["store"] = status_document.store_id(room, memory=request.app[MEMORY])
        document["nginx_key"] = request.app[STAMPS].nginx_key
        document["eviction"] = request.app[METRICS].eviction
    is_kept = not has_query and _is_repeatable(request, room, answer)
    headers = _KEPT_JSON if is_kept else _JSON
    if answer.token is not None:
        headers = {**headers, "Set-Cookie": set_cookie(request.headers, room, answer.token)}
    return QuickResponse(headers=headers, body=to_json(document))


def _is_repeatable(request: web.Request, room: Gate, answer: Answer) -> bool:
    """Return whether nginx may repeat the response to the same question for a moment. What nobody
    will read again it need not keep, and of waiting visitors only some poll again so soon."""
    if request.method != "GET" or answer.token is not None:
        return False
    if answer.store_unavailable or answer.uncounted:  # an exempt client's is not for others
        return False
    # An exempt address gets another response, and nginx' key does not say the address.
    if is_resource(room) or room.settings.exempt_addresses:
        return False
    if answer.visitor is None:
        return "Cookie" not in request.headers
    is_early = request.app[RECENT_POLLS].is_repeated(answer.visitor, time.monotonic())
    return is_early and answer.state is VisitorState.WAITING


def _page_response(
    request: web.Request, room: Gate, answer: Answer, following: str
) -> web.Response:
    response: web.Response
    if answer.state is VisitorState.ADMITTED:
        response = web.Response(status=303, headers={"Location": following, **NO_STORE})
    else:
        response = render_page(request, room, answer, following)
    if answer.token is not None:
        response.headers["Set-Cookie"] = set_cookie(request.headers, room, answer.token)
    return response
