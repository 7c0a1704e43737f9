"""The endpoints of the waiting page: status (a heartbeat), join, and the page itself."""

import time
from typing import Any

from aiohttp import web

from sidecar.gate.ask import get_verdict
from sidecar.gate.check import BRIEF_CACHE_S
from sidecar.gate.contract import Gate, get_gate, is_resource
from sidecar.gate.cookies import format_cookie
from sidecar.gate.page import status_document
from sidecar.gate.page.responses import NO_STORE, render_page
from sidecar.gate.polls import RECENT_POLLS, refuse_poll
from sidecar.gate.return_address import read_next_in_form, read_next_in_query
from sidecar.gate.schemas import (
    CookieHeader,
    PageForm,
    RedirectHeaders,
    SiteHeader,
    Status,
    StatusParameters,
)
from sidecar.gate.stamps import STAMPS
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.json_text import to_json
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problem_kinds import GENERAL, STORE_UNAVAILABLE, TOO_LARGE, UNREADABLE
from sidecar.http.quick_response import QuickResponse
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import VisitorState

#: The id of the store in this process's memory. Empty if the store is Redis.
MEMORY = web.AppKey("memory", str)
_JSON = {**NO_STORE, "Content-Type": "application/json; charset=utf-8"}
_CACHEABLE_JSON = {**_JSON, "X-Accel-Expires": BRIEF_CACHE_S}

_STATUS_REPLY = (Status, "The visitor's state and position.", CookieHeader)
_PROBLEMS = (UNKNOWN_ROOM, GENERAL[429], GENERAL[503], STORE_UNAVAILABLE)
PAGE_ENDPOINT: dict[str, Any] = {
    "parameters": RoomAddress,
    "form": PageForm,
    "other_media": {"text/html": "The waiting page."},
    "problems": (UNREADABLE, *_PROBLEMS, TOO_LARGE),
    "bypasses_models": True,
}

ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.get(
    "/_waitroom/{room}/status",
    ANYBODY,
    parameters=StatusParameters,
    replies={200: _STATUS_REPLY},
    problems=_PROBLEMS,
    bypasses_models=True,
)
async def get_status(request: web.Request, room: Gate | None = None) -> web.Response:
    """Get the visitor's state and position.

    Each request is the heartbeat that keeps the place. Poll again after `refresh_after_seconds`,
    not earlier. To take a place, use join. Send the cookie `waitroom_<room>` of earlier
    responses. Without the cookie, the visitor is unknown."""
    room = room or get_gate(request)  # a route without a pattern passes its room (app/routes.py)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    answer = await get_verdict(request, room, visitor_request, "status")
    return _make_status_response(request, room, answer)


@ENDPOINTS.post(
    "/_waitroom/{room}/join",
    ANYBODY,
    headers=SiteHeader,
    replies={
        200: _STATUS_REPLY,
        303: (NO_BODY, "Admitted: a browser is redirected to `next`.", RedirectHeaders),
    },
    **PAGE_ENDPOINT,
)
async def join(request: web.Request, room: Gate | None = None) -> web.Response:
    """Join the queue.

    A visitor who has a place keeps the place. A browser that requests a page gets the waiting page,
    or is redirected to `next`. While the shield is up, newcomers get the state `not_queued` and a
    `join_url`: send the next POST to that URL after `refresh_after_seconds`."""
    room = room or get_gate(request)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    may_join = not (visitor_request.is_cross_site or visitor_request.is_prefetch)
    if not visitor_request.wants_page:
        answer = await get_verdict(request, room, visitor_request, "join", may_join=may_join)
        return _make_status_response(request, room, answer)
    visitor_request.uri = next_url = await read_next_in_form(request)
    answer = await get_verdict(request, room, visitor_request, "join", may_join=may_join)
    return _make_page_response(request, room, answer, next_url)


async def show_page(request: web.Request) -> web.Response:
    """Show the waiting page. It reloads itself, until the called visitor is sent on to the site."""
    room = get_gate(request)
    visitor_request = VisitorRequest.from_page(request, room, request.raw_path)
    may_join = visitor_request.wants_place
    answer = await get_verdict(request, room, visitor_request, "page", may_join=may_join)
    return _make_page_response(request, room, answer, read_next_in_query(request))


def _make_status_response(request: web.Request, room: Gate, answer: Answer) -> web.Response:
    refusal = refuse_poll(answer)
    if refusal is not None:
        return refusal
    document = status_document.build_document(room, answer)
    has_query = "?" in request.raw_path
    if has_query and "client" in request.query:
        # With these members, `waitroom doctor` detects a wrong IP address, store or nginx key.
        document["client"] = request.headers.get("X-Real-IP")
        document["store"] = status_document.get_store_id(room, memory=request.app[MEMORY])
        document["nginx_key"] = request.app[STAMPS].nginx_key
        document["eviction"] = request.app[METRICS].eviction
    is_cacheable = not has_query and _is_cacheable(request, room, answer)
    headers = _CACHEABLE_JSON if is_cacheable else _JSON
    if answer.token is not None:
        headers = {**headers, "Set-Cookie": format_cookie(request.headers, room, answer.token)}
    return QuickResponse(headers=headers, body=to_json(document))


def _is_cacheable(request: web.Request, room: Gate, answer: Answer) -> bool:
    """Return True if nginx may cache the response for the same request. A waiting visitor's
    response is cached only if the visitor polls again within the cache time."""
    if request.method != "GET" or answer.token is not None or is_resource(room):
        return False
    # nginx's cache key has no IP address, so other clients would get an exempt client's response.
    if answer.store_unavailable or answer.uncounted or room.settings.exempt_addresses:
        return False
    if answer.visitor is None:
        return "Cookie" not in request.headers
    is_repeated = request.app[RECENT_POLLS].is_repeated(answer.visitor, time.monotonic())
    return is_repeated and answer.state is VisitorState.WAITING


def _make_page_response(
    request: web.Request, room: Gate, answer: Answer, next_url: str
) -> web.Response:
    if answer.state is VisitorState.ADMITTED:
        response = web.Response(status=303, headers={"Location": next_url, **NO_STORE})
    else:
        response = render_page(request, room, answer, next_url)
    if answer.token is not None:
        response.headers["Set-Cookie"] = format_cookie(request.headers, room, answer.token)
    return response
