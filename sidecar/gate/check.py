"""nginx asks here about every request. 204 passes, 401 waits, 403 is refused.

Never another status (auth_request makes a 500 of it), never a body (it costs the
keepalive connection), at most one Set-Cookie (nginx before 1.23 keeps only the first).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import structlog
from aiohttp import web
from multidict import istr

from sidecar.gate.app_keys import GATES, STAMPS
from sidecar.gate.ask import ask, count_unknown
from sidecar.gate.contract import Gate, is_resource
from sidecar.gate.cookies import set_cookie, stamp_cookie
from sidecar.gate.page import cloudflare
from sidecar.gate.page.status_document import build_document, refresh_s, visible_position
from sidecar.gate.page.template import find_template, format_header, refresh_header
from sidecar.gate.schemas import CheckPassed, CheckRefused, CheckRequest
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.auth_request import close_if_body, logged_once
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_BODY
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.clock import iso
from sidecar.rooms.exemptions import may_stamp
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS, VERDICT_TTL_MS

_ROOM, _STAMP = istr("X-Waitroom-Room"), istr("X-Waitroom-Stamp")
_STATUS = {
    State.ADMITTED: 204,
    State.WAITING: 401,
    State.NOT_QUEUED: 401,
    State.FULL: 403,
    State.CLOSED: 403,
}
#: How long nginx may keep the verdict about a pass. It counts whole seconds, by a clock of
#: whole seconds, so it keeps a verdict for up to a second longer.
_KEEP_S = str(VERDICT_TTL_MS // 1000 - 1)
#: How long it may keep what changes sooner: a visitor's numbers, a raised shield.
KEEP_BRIEFLY_S = str(BRIEF_TTL_MS // 1000 - 1)
#: nginx's $msec: seconds since 1970 with three decimals.
_MSEC = re.compile(r"[0-9]{9,11}\.[0-9]{3}\Z")
log = structlog.get_logger()


ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.declare(
    "*",
    "/check",
    ANYBODY,
    headers=CheckRequest,
    replies={
        204: (NO_BODY, "It may.", CheckPassed),
        401: (NO_BODY, "The visitor waits.", CheckRefused),
        403: (NO_BODY, "The room is full or closed, or unknown.", CheckRefused),
    },
    is_cacheable=True,
    is_hand_made=True,
)
async def check(request: web.Request) -> web.Response:
    """Check whether a request may pass.

    For nginx's `auth_request`, with the visitor's own headers: Cookie, Accept and the like. Any
    method is answered alike. Nothing has a body.
    """
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
        reply = {"X-Waitroom-State": State.ADMITTED.value}
        return close_if_body(request, web.Response(status=204, headers=reply))
    may_join = visitor_request.may_take_place(room)
    answer = await ask(request, room, visitor_request, "check", may_join=may_join)
    if visitor_request.repeated is not None and answer.token is None:
        # nginx forgets the token unless each response has it.
        answer = replace(answer, token=visitor_request.repeated)
    reply = verdict_headers(room, answer, headers)
    if answer.state is not State.ADMITTED and (template := find_template(request, room)):
        numbers = build_document(room, answer)
        reply["X-Waitroom-Document"] = format_header(numbers)
        reply["Refresh"] = refresh_header(template, numbers)
    if is_shared(answer, visitor_request):
        reply["X-Accel-Expires"] = _KEEP_S if answer.state is State.ADMITTED else KEEP_BRIEFLY_S
        if _STAMP in headers:
            _add_stamp(request, room, answer, reply)
    return close_if_body(request, QuickResponse(status=_STATUS[answer.state], headers=reply))


def _add_stamp(request: web.Request, room: Gate, answer: Answer, reply: dict[str, str]) -> None:
    """Add to a verdict that nginx may keep what lets nginx repeat it by itself, for no longer."""
    if answer.state is State.ADMITTED and not answer.uncounted and may_stamp(room.settings):
        stamps = request.app[STAMPS]
        stamp = stamps.sign(request.headers[_STAMP], room.name)
        if stamp is not None:
            reply["X-Waitroom-Stamp"] = stamp_cookie(request.headers, stamp)
        elif stamps.nginx_key == "unknown" and ("nginx", "key") not in logged_once:
            logged_once.add(("nginx", "key"))
            log.error(
                "unknown_nginx_key", hint="stamps are off: `waitroom nginx-key`, reload nginx"
            )


def _set_clock_from_nginx(room: Gate, msec: str) -> None:
    """Set the clock to nginx's $msec, which counts until Redis has said the time."""
    if _MSEC.match(msec) is None:
        return
    clock, was_doubtful = room.clock, room.clock.is_doubtful
    clock.hear(int(msec.replace(".", "")))
    if clock.is_doubtful and not was_doubtful:
        hint = "nobody is let in until the store says the time; set this machine's clock or nginx's"
        log.error("clocks_apart", room=room.name, nginx=iso(clock.now_ms()), hint=hint)


def verdict_headers(room: Gate, answer: Answer, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in which proxies get a verdict; `headers` are the request's."""
    reply = {"X-Waitroom-State": answer.state.value}
    if answer.token is not None:
        reply["Set-Cookie"] = set_cookie(headers, room, answer.token)
    if answer.state is State.ADMITTED:
        if is_resource(room) and answer.standing is not None:
            reply["X-Waitroom-Fence"] = str(answer.standing.order)
        return reply
    reply["X-Waitroom-Status"] = str(room.settings.queueing_status_code)
    has_moment = answer.standing is not None or answer.state is State.CLOSED
    reply["Retry-After"] = str(max(1, math.ceil(refresh_s(room, answer))) if has_moment else 1)
    position, above = visible_position(room, answer.standing)
    if position is not None:
        reply["X-Waitroom-Position"] = str(position)
    wait = answer.wait if position or above else None
    if wait is not None:
        reply["X-Waitroom-Wait"] = str(wait.seconds)
    if room.settings.json_format == "cloudflare":
        # Whatever is accepted: nginx may keep this for others.
        reply["X-Waitroom-Json"] = cloudflare.json_of(build_document(room, answer), room.settings)
    return reply


def is_shared(answer: Answer, visitor_request: VisitorRequest) -> bool:
    """Return whether nginx may keep the verdict for all requests with the same cookie, or with
    none.

    A denied visitor with a cookie is not one of them: of cookies that mean nothing there are as
    many as a flood cares to send.
    """
    if not answer.is_settled or answer.token is not None:
        return False
    return answer.state is State.ADMITTED or not visitor_request.has_cookies
