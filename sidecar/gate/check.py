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
from sidecar.gate.contract import Gate, is_resource, label
from sidecar.gate.cookies import read_bearer, read_given, read_token, set_cookie, stamp_cookie
from sidecar.gate.onward import own_host
from sidecar.gate.page import cloudflare
from sidecar.gate.page.status_document import document, refresh_s, shown_position
from sidecar.gate.page.template import as_header, find_template, refresh_of
from sidecar.gate.schemas import CheckPassed, CheckRefused, CheckRequest
from sidecar.http.auth_request import (
    close_if_body,
    is_preflight,
    log_unknown,
    logged_once,
    original_method,
)
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS, Metrics
from sidecar.http.models import NO_BODY
from sidecar.http.quick_response import QuickResponse
from sidecar.kit.clock import iso
from sidecar.rooms.bearer import Bearer
from sidecar.rooms.exemptions import may_stamp
from sidecar.rooms.metrics import RoomMetrics
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Pass, State, Token
from sidecar.visitors.verdict_lifetime import BRIEF_TTL_MS, VERDICT_TTL_MS

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
#: Where browsers, new and old, say that they fetch ahead.
_PURPOSES = (istr("Sec-Purpose"), istr("Purpose"), istr("X-Moz"))

#: What is said of a name in place of a visitor's state.
UNKNOWN_ROOM = "unknown-room"
UNKNOWN_RESOURCE = "unknown-resource"

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
    """May this request pass?

    For nginx's `auth_request`, with the visitor's own headers: Cookie, Accept and the like. Any
    method is answered alike. Nothing has a body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Room", "")
    room = request.app[GATES].find(name)
    metrics = request.app[METRICS]
    if room is None:
        said = {"X-Waitroom-State": find_unknown(request, name, "check")}
        return close_if_body(request, web.Response(status=403, headers=said))
    method = original_method(headers)
    if is_preflight(headers, method):
        said = {"X-Waitroom-State": State.ADMITTED.value}
        return close_if_body(request, web.Response(status=204, headers=said))
    if not room.clock.is_known:
        _hear_time(room, headers.get("X-Waitroom-Msec", ""))
    given = read_given(headers, room) if "X-Waitroom-Given" in headers else None
    token = _unshown(given) or read_token(headers, room)
    # Of no other proxy's: those pass on what a visitor says in headers that they do not know.
    uri, exempt = headers.get("X-Original-URI", ""), headers.get("X-Waitroom-Exempt", "")
    class_name = headers.get("X-Waitroom-Class", "")
    bearer = read_bearer(
        headers, room, uri=uri, exempt=exempt, grant_uri=uri, class_name=class_name
    )
    count_grant(metrics, room, bearer)
    may_join = may_take_place(room, headers, method)
    answer = await room.check(token, may_join=may_join, bearer=bearer)
    if given is not None and answer.token is None:
        answer = replace(answer, token=given)  # what nginx forgets unless it is said again
    count_answer(metrics, room, "check", answer)
    said = answer_headers(room, answer, headers)
    if answer.state is not State.ADMITTED and (template := find_template(request, room)):
        numbers = document(room, answer)
        said["X-Waitroom-Document"] = as_header(numbers)
        said["Refresh"] = refresh_of(template, numbers)
    if is_shared(answer, headers):
        said["X-Accel-Expires"] = _KEEP_S if answer.state is State.ADMITTED else KEEP_BRIEFLY_S
        if "X-Waitroom-Stamp" in headers:
            _give_stamp(request, room, answer, said)
    return close_if_body(request, QuickResponse(status=_STATUS[answer.state], headers=said))


def _unshown(given: Token | None) -> Token | None:
    """What nginx repeats of our own answer, the browser has not shown."""
    if isinstance(given, Pass) and given.is_first:
        return replace(given, renewed_ms=given.renewed_ms + 1)
    return given


def _give_stamp(request: web.Request, room: Gate, answer: Answer, said: dict[str, str]) -> None:
    """For a verdict that may be kept: what lets nginx repeat it by itself, for no longer."""
    if answer.state is State.ADMITTED and not answer.uncounted and may_stamp(room.settings):
        stamps = request.app[STAMPS]
        stamp = stamps.sign(request.headers["X-Waitroom-Stamp"], room.name)
        if stamp is not None:
            said["X-Waitroom-Stamp"] = stamp_cookie(request.headers, stamp)
        elif stamps.nginx_key == "unknown" and ("nginx", "key") not in logged_once:
            logged_once.add(("nginx", "key"))
            log.error(
                "unknown_nginx_key", hint="stamps are off: `waitroom nginx-key`, reload nginx"
            )


def _hear_time(room: Gate, said: str) -> None:
    """What nginx says in its requests, while the store has not said the time since the start."""
    if _MSEC.match(said) is None:
        return
    clock, was_doubtful = room.clock, room.clock.is_doubtful
    clock.hear(int(said.replace(".", "")))
    if clock.is_doubtful and not was_doubtful:
        hint = "nobody is let in until the store says the time; set this machine's clock or nginx's"
        log.error("clocks_apart", room=room.name, nginx=iso(clock.now_ms()), hint=hint)


def count_answer(metrics: Metrics, room: Gate, endpoint: str, answer: Answer) -> None:
    metrics.requests.count(label(room), endpoint, answer.uncounted or answer.state)
    if answer.failed_open:
        metrics.of(RoomMetrics).let_in_alone.labels(room.name).inc()
    pass_ = answer.token
    # Given now, and not prolonged, to somebody who had not just come.
    if isinstance(pass_, Pass) and pass_.joined_ms < pass_.started_ms == pass_.renewed_ms:
        waited_s = (pass_.started_ms - pass_.joined_ms) / 1000
        metrics.of(RoomMetrics).wait_seconds.labels(room.name).observe(waited_s)


def count_grant(metrics: Metrics, room: Gate, bearer: Bearer) -> None:
    """Counts what became of the grant that somebody brought, if they did."""
    if bearer.grant_result:
        metrics.of(RoomMetrics).grants.labels(room.name, bearer.grant_result).inc()


def answer_headers(room: Gate, answer: Answer, headers: Mapping[str, str]) -> dict[str, str]:
    said = {"X-Waitroom-State": answer.state.value}
    if answer.token is not None:
        said["Set-Cookie"] = set_cookie(headers, room, answer.token)
    if answer.state is State.ADMITTED:
        if is_resource(room) and answer.standing is not None:
            said["X-Waitroom-Fence"] = str(answer.standing.order)
        return said
    said["X-Waitroom-Status"] = str(room.settings.queueing_status_code)
    has_said = answer.standing is not None or answer.state is State.CLOSED
    said["Retry-After"] = str(max(1, math.ceil(refresh_s(room, answer))) if has_said else 1)
    position, above = shown_position(room, answer.standing)
    if position is not None:
        said["X-Waitroom-Position"] = str(position)
    wait = answer.wait if position or above else None
    if wait is not None:
        said["X-Waitroom-Wait"] = str(wait.seconds)
    if room.settings.json_format == "cloudflare":
        # Whatever is accepted: nginx may keep this for others.
        numbers = document(room, answer)
        said["X-Waitroom-Json"] = cloudflare.json_of(numbers, room.settings)
    return said


_BROWSERS_SAY = (istr("Sec-Fetch-Mode"), istr("Sec-Fetch-Dest"), istr("Referer"))
_FRAMES = {"iframe", "frame", "embed", "object", "fencedframe"}


def is_shared(answer: Answer, headers: Mapping[str, str]) -> bool:
    """Whether nginx may keep the verdict for all requests with the same cookie, or with none.

    A denied visitor with a cookie is not one of them: of cookies that mean nothing there
    are as many as a flood cares to send.
    """
    if not answer.is_settled or answer.token is not None:
        return False
    return answer.state is State.ADMITTED or "Cookie" not in headers


def may_take_place(room: Gate, headers: Mapping[str, str], method: str) -> bool:
    """Whether a request without a cookie takes a slot or a place.

    While the room is free, a crawler's does too: it calls itself a browser, and never waits.
    """
    if is_posted_from_elsewhere(headers, method):
        return False
    return takes_place(headers) or (_may_be_program(headers) and _is_free(room))


def _is_free(room: Gate) -> bool:
    """Whether nobody waited in the last second, and a slot was free."""
    seen = room.snapshot
    return bool(seen and not seen.waiting and seen.active < room.settings.total_active_users)


def _may_be_program(headers: Mapping[str, str]) -> bool:
    """Whether nothing shows that a browser asks for a part of a page. A browser without
    Sec-Fetch-Mode names the page in Referer."""
    if is_fetched_ahead(headers) or any(name in headers for name in _BROWSERS_SAY):
        return False
    return not headers.get("Accept", "").startswith(("image/", "text/css"))


def takes_place(headers: Mapping[str, str]) -> bool:
    """Whether a request without a cookie comes from somebody who wants to get in.

    Navigations do, and programs. A page's images, scripts and background requests do not: of six
    at a time each would take a place. Nor does a browser that fetches ahead, or shows the page in a
    frame on another site, where it keeps no cookie: nobody would wait in those places.
    """
    if is_fetched_ahead(headers) or is_framed_elsewhere(headers):
        return False
    mode = headers.get("Sec-Fetch-Mode")
    if mode is not None:
        return mode == "navigate"
    dest = headers.get("Sec-Fetch-Dest")
    if dest is not None:
        return dest in {"document", "iframe", "frame"}
    accept = headers.get("Accept", "").lower()
    if "json" in accept or "text/html" in accept:
        return True
    # No browser of the last years: a program says */* or nothing at all, an old browser's
    # script or image says */* or image/*.
    from_browser = headers.get("User-Agent", "").startswith("Mozilla/")
    return accept in {"", "*/*"} and not from_browser


def is_fetched_ahead(headers: Mapping[str, str]) -> bool:
    """Whether the browser asks before the visitor does (prefetch, prerender): they may never go
    there."""
    for name in _PURPOSES:
        purpose = headers.get(name)
        if purpose and ("prefetch" in purpose.lower() or "prerender" in purpose.lower()):
            return True
    return False


def is_framed_elsewhere(headers: Mapping[str, str]) -> bool:
    return headers.get("Sec-Fetch-Dest") in _FRAMES and is_from_elsewhere(headers)


def is_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Whether another site made the browser ask. Of such a POST the browser leaves our cookie
    out (SameSite=Lax): its sender may well be inside, and a new cookie would take that
    from them."""
    return _site_of_sender(headers) == "cross-site"


def is_of_this_site(headers: Mapping[str, str]) -> bool:
    """Whether this site's own page made the browser ask, or the visitor, or a program."""
    return _site_of_sender(headers) in {"same-origin", "none"}


def _site_of_sender(headers: Mapping[str, str]) -> str:
    """Return the value of Sec-Fetch-Site. Where the browser sends none, find it by Origin: another
    host, or `null`, is cross-site."""
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site
    origin = headers.get("Origin")
    if not origin:
        return "none"
    is_own = origin.partition("://")[2] == own_host(headers)
    return "same-origin" if is_own else "cross-site"


def opens_page(headers: Mapping[str, str], method: str) -> bool:
    """Whether somebody gets to see the page: a navigation, a script's call or a program's, and no
    picture's address, no HEAD and nothing fetched ahead."""
    if method == "HEAD" or is_fetched_ahead(headers):
        return False
    is_navigation = headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
    return is_navigation or headers.get("Sec-Fetch-Dest", "empty") == "empty"


def is_posted_from_elsewhere(headers: Mapping[str, str], method: str) -> bool:
    return is_from_elsewhere(headers) and method not in {"GET", "HEAD"}


def find_unknown(request: web.Request, name: str, endpoint: str) -> str:
    """What a name that is none is said to be. A resource that its template does not have is an
    address that a visitor made up; an unknown room is a mistake in the proxy's configuration."""
    template = request.app[GATES].template_of(name)
    state = UNKNOWN_RESOURCE if template else UNKNOWN_ROOM
    if not template:
        log_unknown(name, "room")
    request.app[METRICS].requests.count(template, endpoint, state)
    return state
