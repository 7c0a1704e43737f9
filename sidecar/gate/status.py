"""The waiting side: status (a heartbeat), join, leave, and the page itself."""

import math
import time
from collections.abc import Awaitable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from multidict import istr

from sidecar.gate.app_keys import LEAVE_LIMIT, MEMORY, PAGE, REPEATS, STAMPS, gate_of
from sidecar.gate.check import (
    KEEP_BRIEFLY_S,
    count_answer,
    count_grant,
    is_fetched_ahead,
    is_from_elsewhere,
    is_of_this_site,
    opens_page,
    takes_place,
)
from sidecar.gate.contract import Gate, is_resource, label
from sidecar.gate.cookies import read_bearer, read_given, read_token, set_cookie
from sidecar.gate.onward import UNSENT, is_unsent, safe_next
from sidecar.gate.page import status_document
from sidecar.gate.page import template as page_template
from sidecar.gate.page.branding import branded
from sidecar.gate.page.render import opening_in_digits
from sidecar.gate.schemas import (
    FROM_ELSEWHERE,
    CookieGiven,
    Form,
    Onward,
    Site,
    Status,
    StatusParameters,
)
from sidecar.http.auth_request import original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.json_text import to_json
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problem_kinds import GENERAL, STORE_UNAVAILABLE, TOO_LARGE, UNREADABLE
from sidecar.http.problems import STORE_RETRY_S, problem
from sidecar.http.quick_response import QuickResponse
from sidecar.http.static_pages import CONTENT_SECURITY_POLICY
from sidecar.rooms.address_limit import AddressLimit
from sidecar.rooms.metrics import RoomMetrics
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State, Ticket
from sidecar.visitors.visitor_number import visitor_number

#: How many places an address may give up a second, and at once: more than a company's or a mobile
#: network's visitors do by hand. Each is remembered for as long as its ticket would be valid, which
#: makes some 60 MB a day of the store's memory.
LEAVES_PER_S, LEAVES_AT_ONCE = 5, 200

_NO_STORE = {"Cache-Control": "no-store"}
_JSON = {**_NO_STORE, "Content-Type": "application/json; charset=utf-8"}
_KEPT_JSON = {**_JSON, "X-Accel-Expires": KEEP_BRIEFLY_S}
_CLASS = istr("X-Waitroom-Class")


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
async def get_status(request: web.Request) -> web.Response:
    """Get the visitor's state and position.

    Each request is the heartbeat that keeps the place. Ask again after `refresh_after_seconds`, and
    no sooner. It takes no place: use join. Send the cookie `waitroom_<room>` of earlier responses.
    Without it the visitor is unknown.
    """
    return await answer_status(request, gate_of(request))


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
    # `room` is given where the address names it without a pattern.
    may_join = not (is_from_elsewhere(request.headers) or is_fetched_ahead(request.headers))
    room = room or gate_of(request)
    if _wants_page(request):
        return await _shown(request, room, "join", may_join=may_join)
    return await answer_status(request, room, "join", may_join=may_join)


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
    headers = request.headers
    # Only nginx can say so: it passes no header of the visitor's on but those it names.
    release = headers.get("X-Waitroom-Release")
    by_site = release in {"site", "anywhere"}
    is_ours = release == "anywhere" or is_of_this_site(headers)
    is_meant = opens_page(headers, original_method(headers) if by_site else request.method)
    if not is_meant or (by_site and not is_ours):
        return web.Response(status=204, headers=_NO_STORE)
    if not is_ours:
        return problem(FROM_ELSEWHERE, detail=FROM_ELSEWHERE.remedy)
    why = "released" if by_site else "left"
    token = read_given(headers, room) or read_token(headers, room)
    # A session that ends had a slot, of which there are so many; a place in the queue had nothing.
    if isinstance(token, Ticket) and not (by_site or is_resource(room)):
        address = headers.get("X-Real-IP", "")
        wait_s = request.app[LEAVE_LIMIT].wait_s(address, time.monotonic())
        if wait_s:
            request.app[METRICS].of(RoomMetrics).refused_leaves.labels(room.name).inc()
            return problem(
                429,
                "Too many places given up",
                detail="Your network gave up too many places at once. Without your polls this one "
                "ends by itself.",
                retry_after=math.ceil(wait_s),
            )
    await room.leave(token, why=why)
    request.app[METRICS].requests.count(label(room), "leave", State.NOT_QUEUED)
    if _wants_page(request):
        return render_page(request, room, None, await _form_next(request))
    return web.json_response(status_document.document(room, None), headers=_NO_STORE)


def leave_limit() -> AddressLimit:
    return AddressLimit(per_s=LEAVES_PER_S, burst=LEAVES_AT_ONCE)


async def page(request: web.Request) -> web.Response:
    """The waiting page with its numbers; enters by itself when the turn comes."""
    room = gate_of(request)
    return await _shown(request, room, "page", may_join=takes_place(request.headers))


async def answer_status(
    request: web.Request, room: Gate, endpoint: str = "status", *, may_join: bool = False
) -> web.Response:
    answer = await _ask(request, room, may_join=may_join, grant_uri=request.raw_path)
    count_answer(request.app[METRICS], room, endpoint, answer)
    if answer.store_unavailable and answer.joined_ms is None:
        return problem(503, "The store does not answer", retry_after=STORE_RETRY_S)
    limited_ms = answer.standing.limited_ms if answer.standing else 0
    if limited_ms and answer.state is State.WAITING:
        return problem(
            429,
            "Too many polls",
            detail="Your place is kept. Ask again after Retry-After seconds.",
            retry_after=math.ceil(limited_ms / 1000),
        )
    document = status_document.document(room, answer)
    has_query = "?" in request.raw_path
    if has_query and "client" in request.query:
        # Their own address, as nginx names it, where the room is kept, and whether nginx's key is
        # ours: `waitroom doctor` finds a wrong address, store or key by it.
        document["client"] = request.headers.get("X-Real-IP")
        document["store"] = status_document.store(room, memory=request.app[MEMORY])
        document["nginx_key"] = request.app[STAMPS].nginx_key
        document["eviction"] = request.app[METRICS].eviction
    is_kept = not has_query and _is_repeatable(request, room, answer)
    headers = _KEPT_JSON if is_kept else _JSON
    if answer.token is not None:
        headers = {**headers, "Set-Cookie": set_cookie(request.headers, room, answer.token)}
    return QuickResponse(headers=headers, body=to_json(document))


def _ask(request: web.Request, room: Gate, *, may_join: bool, grant_uri: str) -> Awaitable[Answer]:
    """`grant_uri` may hold a grant: the page's, or the one it leads to."""
    headers = request.headers
    class_name = headers.get(_CLASS, "")  # nginx's word here, as at /check
    bearer = read_bearer(headers, room, grant_uri=grant_uri, class_name=class_name)
    if may_join and room.tokens.may_join(_join_token(request)):
        bearer = replace(bearer, has_waited=True, address=headers.get("X-Real-IP", ""))
    count_grant(request.app[METRICS], room, bearer)
    token = read_token(headers, room)
    return room.check(token, may_join=may_join, from_page=True, bearer=bearer)


def _join_token(request: web.Request) -> str | None:
    """Of the address in `join_url`; the first, for the last may be part of `next`."""
    return request.query.get("token") if "token=" in request.raw_path else None


def _is_repeatable(request: web.Request, room: Gate, answer: Answer) -> bool:
    """Whether nginx shall answer the same question with the same words for a moment: what nobody
    will read again it need not keep. Of waiting visitors only some poll again so soon."""
    if request.method != "GET" or answer.token is not None:
        return False
    if answer.store_unavailable or answer.uncounted:  # an exempt client's is not for others
        return False
    # An exempt address gets another response, and nginx' key does not say the address.
    if is_resource(room) or room.settings.exempt_addresses:
        return False
    if answer.visitor is None:
        return "Cookie" not in request.headers
    is_early = request.app[REPEATS].is_repeated(answer.visitor, time.monotonic())
    return is_early and answer.state is State.WAITING


async def _shown(
    request: web.Request, room: Gate, endpoint: str, *, may_join: bool
) -> web.Response:
    following = await _form_next(request) if request.method == "POST" else _query_next(request)
    asked = following if request.method == "POST" else request.raw_path
    answer = await _ask(request, room, may_join=may_join, grant_uri=asked)
    count_answer(request.app[METRICS], room, endpoint, answer)
    response: web.Response
    if answer.state is State.ADMITTED:
        response = web.Response(status=303, headers={"Location": following, **_NO_STORE})
    else:
        response = render_page(request, room, answer, following)
    if answer.token is not None:
        response.headers["Set-Cookie"] = set_cookie(request.headers, room, answer.token)
    return response


def render_page(
    request: web.Request,
    room: Gate,
    answer: Answer | None,
    following: str,
    *,
    method: str | None = None,
) -> web.Response:
    """The page for somebody who waits, or has just left (`answer` is None), with the way to
    `following`. `method` is theirs, where the page stands in place of what they asked for."""
    before, _, _ = request.query_string.partition("next=")
    unsent = is_unsent(method) if method else UNSENT in before
    shown = request.app[PAGE]
    language = shown.languages.choose(request.headers.get("Accept-Language"))
    document = status_document.document(room, answer)
    view = status_document.view(document) if answer else "left"
    # Who left, or has no place, is not brought back by the page's own refresh; in place, or while
    # very many come, it is the way to a place for who has none yet.
    is_without = document["state"] == State.NOT_QUEUED
    stays = is_without and method is None and "join_url" not in document
    if not stays and (template := page_template.find_template(request, room)):
        return page_template.respond(request, room, template, document, following, unsent=unsent)
    if is_without and not stays:
        view = State.WAITING.value
    refresh = "" if stays else str(max(1, math.ceil(document["refresh_after_seconds"])))
    values = {
        "room": room.name,
        "method": method or ("POST" if unsent else ""),
        "state": document["state"],
        "phase": document["phase"],
        "next": following,
        "join": status_document.join_query(document) + UNSENT * unsent,
        "position": status_document.position_in_digits(document),
        "ahead": status_document.ahead_in_digits(document),
        "number": visitor_number(document["visitor"]) if document["visitor"] else "",
        "line": shown.line_in_words(language, document["line"]),
        "waiting": str(document["waiting"] if document["waiting"] is not None else ""),
        "wait": shown.wait_in_words(language, answer.wait if answer else None),
        "message": document["message"] or "",
        "unsent": shown.languages.texts(language)["unsent"] if unsent else "",
        "updated": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        "refresh": refresh,
    }
    event = status_document.event(status_document.moments_at(document, room.settings))
    opens = opening_in_digits(event) if event else ""
    headers = {
        **_NO_STORE,
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Content-Language": language,
        "Referrer-Policy": "same-origin",
    }
    page = shown.render(language=language, view=view, values=values, opens=opens)
    return web.Response(
        text=branded(page, room.settings),
        content_type="text/html",
        charset="utf-8",
        headers=headers,
    )


def _wants_page(request: web.Request) -> bool:
    accept = request.headers.get("Accept", "").lower()
    return "text/html" in accept and "json" not in accept


def _query_next(request: web.Request) -> str:
    """`next` is the last parameter and goes to the end: nginx cannot encode it."""
    _, found, value = request.rel_url.raw_query_string.partition("next=")
    return safe_next(value) if found else "/"


async def _form_next(request: web.Request) -> str:
    """Of the page's own form and no other kind: urlencoded, in UTF-8."""
    if request.content_type != "application/x-www-form-urlencoded":
        return "/"
    try:
        text = (await request.read()).decode(errors="replace")
        fields = parse_qs(text, keep_blank_values=True)
    except (ValueError, web.HTTPException):
        return "/"
    return safe_next(fields.get("next", ["/"])[0])
