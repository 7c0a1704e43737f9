"""The endpoint /check, which tells nginx to admit (204), queue (401) or refuse (403) a request.

A response has no other status, because auth_request turns others into 500. It has no body, because
a body costs the keepalive connection. It has at most one Set-Cookie, because nginx before 1.23 uses
only the first."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import structlog
from aiohttp import web
from multidict import istr

from sidecar.gate.ask import count_unknown, get_verdict
from sidecar.gate.contract import GATES, Gate, is_resource
from sidecar.gate.cookies import format_cookie, format_stamp_cookie
from sidecar.gate.page import cloudflare
from sidecar.gate.page.status_document import (
    build_document,
    choose_first_view,
    get_position,
    get_refresh_s,
)
from sidecar.gate.page.template import find_template, format_document, format_refresh
from sidecar.gate.schemas import CheckAdmittedHeaders, CheckRefusedHeaders, CheckRequestHeaders
from sidecar.gate.stamps import STAMPS, may_have_stamps
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.auth_request import close_if_body, logged_once
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_BODY
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.clock import iso
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import VisitorState
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS, VERDICT_TTL_MS

_COOKIE, _ROOM, _STAMP = istr("Cookie"), istr("X-Waitroom-Room"), istr("X-Waitroom-Stamp")
_STATUS = {
    VisitorState.ADMITTED: 204,
    VisitorState.WAITING: 401,
    VisitorState.NOT_QUEUED: 401,
    VisitorState.FULL: 403,
    VisitorState.CLOSED: 403,
}
#: How many seconds nginx may cache a verdict about a pass. nginx counts in whole seconds and may
#: cache up to a second longer, so this is a second less than VERDICT_TTL_MS.
_PASS_CACHE_S = str(VERDICT_TTL_MS // 1000 - 1)
#: How many seconds nginx may cache any other response (BRIEF_TTL_MS).
BRIEF_CACHE_S = str(BRIEF_TTL_MS // 1000 - 1)
#: The form of nginx's $msec: seconds since 1970 with three decimals.
_MSEC = re.compile(r"[0-9]{9,11}\.[0-9]{3}\Z")
log = structlog.get_logger()


ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.declare(
    "*",
    "/check",
    ANYBODY,
    headers=CheckRequestHeaders,
    replies={
        204: (NO_BODY, "The request may pass.", CheckAdmittedHeaders),
        401: (NO_BODY, "The visitor has to wait.", CheckRefusedHeaders),
        403: (NO_BODY, "The room is full, closed or unknown.", CheckRefusedHeaders),
    },
    is_cacheable=True,
    bypasses_models=True,
)
async def check(request: web.Request) -> web.Response:
    """Check whether a request may pass.

    This endpoint is for nginx's `auth_request`, with the visitor's own headers, such as Cookie and
    Accept. All methods have the same effect. Responses have no body."""
    headers = request.headers
    name = headers.get(_ROOM, "")
    room = request.app[GATES].find(name)
    if room is None:
        reply = {"X-Waitroom-State": count_unknown(request, name, "check")}
        return close_if_body(request, web.Response(status=403, headers=reply))
    if not room.clock.is_known:
        _set_clock_from_nginx(room, headers.get("X-Waitroom-Msec", ""))
    visitor_request = VisitorRequest.from_nginx(headers, room)
    if visitor_request.is_preflight:
        reply = {"X-Waitroom-State": VisitorState.ADMITTED.value}
        return close_if_body(request, web.Response(status=204, headers=reply))
    may_join = visitor_request.may_take_place(room)
    answer = await get_verdict(request, room, visitor_request, "check", may_join=may_join)
    if visitor_request.earlier_token is not None and answer.token is None:
        # nginx keeps only the last response's Set-Cookie, so repeat that of the first response.
        answer = replace(answer, token=visitor_request.earlier_token)
    reply = build_headers(room, answer, headers)
    if answer.state is not VisitorState.ADMITTED:
        reply["X-Waitroom-View"] = choose_first_view(room, answer)
        if template := find_template(request, room):
            document = build_document(room, answer)
            reply["X-Waitroom-Document"] = format_document(document)
            reply["Refresh"] = format_refresh(template, document)
    if is_cacheable(answer, visitor_request):
        is_admitted = answer.state is VisitorState.ADMITTED
        reply["X-Accel-Expires"] = _PASS_CACHE_S if is_admitted else BRIEF_CACHE_S
        if _STAMP in headers:
            _add_stamp(request, room, answer, reply)
    return close_if_body(request, QuickResponse(status=_STATUS[answer.state], headers=reply))


def _add_stamp(request: web.Request, room: Gate, answer: Answer, reply: dict[str, str]) -> None:
    """Add a stamp, with which nginx itself admits the visitor while the verdict may be cached."""
    is_counted = answer.state is VisitorState.ADMITTED and not answer.uncounted
    if is_counted and may_have_stamps(room.settings):
        stamps = request.app[STAMPS]
        stamp = stamps.sign(request.headers[_STAMP], room.name)
        if stamp is not None:
            reply["X-Waitroom-Stamp"] = format_stamp_cookie(request.headers, stamp)
        elif stamps.nginx_key == "unknown" and ("nginx", "key") not in logged_once:
            logged_once.add(("nginx", "key"))
            log.error(
                "unknown_nginx_key", hint="stamps are off: `waitroom nginx-key`, reload nginx"
            )


def _set_clock_from_nginx(room: Gate, msec: str) -> None:
    """Set the room's clock by nginx's $msec, until Redis has told the replica the time."""
    if _MSEC.match(msec) is None:
        return
    clock, was_doubtful = room.clock, room.clock.is_doubtful
    clock.set_from_proxy(int(msec.replace(".", "")))
    if clock.is_doubtful and not was_doubtful:
        hint = "nobody is let in until the store says the time; set this machine's clock or nginx's"
        log.error("clocks_apart", room=room.name, nginx=iso(clock.now_ms()), hint=hint)


def build_headers(room: Gate, answer: Answer, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers that tell a proxy the verdict. `headers` are the request's."""
    reply = {"X-Waitroom-State": answer.state.value}
    if answer.token is not None:
        reply["Set-Cookie"] = format_cookie(headers, room, answer.token)
    if answer.state is VisitorState.ADMITTED:
        if is_resource(room) and answer.standing is not None:
            reply["X-Waitroom-Fence"] = str(answer.standing.order)
        return reply
    reply["X-Waitroom-Status"] = str(room.settings.queueing_status_code)
    has_refresh = answer.standing is not None or answer.state is VisitorState.CLOSED
    reply["Retry-After"] = str(max(1, math.ceil(get_refresh_s(room, answer))) if has_refresh else 1)
    position, above = get_position(room, answer.standing)
    if position is not None:
        reply["X-Waitroom-Position"] = str(position)
    wait = answer.wait if position or above else None
    if wait is not None:
        reply["X-Waitroom-Wait"] = str(wait.seconds)
    if room.settings.json_format == "cloudflare":
        # nginx may send the cached response to other clients, which accept JSON.
        document = build_document(room, answer)
        reply["X-Waitroom-Json"] = cloudflare.format_json(document, room.settings)
    return reply


def is_cacheable(answer: Answer, visitor_request: VisitorRequest) -> bool:
    """Return True if nginx may cache the verdict for all requests with the same cookie, or with
    none. A refusal for a cookie is not cached, because made-up cookies would fill the cache."""
    if not answer.is_settled or answer.token is not None:
        return False
    return answer.state is VisitorState.ADMITTED or _COOKIE not in visitor_request.headers
