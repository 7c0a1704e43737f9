"""The waiting side: status (a heartbeat), join, leave, and the page itself."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from aiohttp import web

from sidecar.base.clock import iso
from sidecar.base.model import Outcome, State
from sidecar.web.asked import room_of
from sidecar.web.check import KEEP_BRIEFLY_S, count_answer, is_from_elsewhere, takes_place
from sidecar.web.cookies import read_bearer, read_given, read_token, set_cookie
from sidecar.web.keys import METRICS, PAGE
from sidecar.web.page import CONTENT_SECURITY_POLICY, choose_language
from sidecar.web.problems import STORE_RETRY_S, problem

if TYPE_CHECKING:
    from sidecar.core.rooms import Answer, Room

#: When to look again while nothing better is known, seconds.
DEFAULT_REFRESH_S = 5.0
_NO_STORE = {"Cache-Control": "no-store"}
_JSON = {**_NO_STORE, "Content-Type": "application/json; charset=utf-8"}


async def status(request: web.Request) -> web.Response:
    """Where the visitor stands. Asking is the heartbeat; it takes no place."""
    return await _answer(request, "status", may_join=False)


async def join(request: web.Request) -> web.Response:
    """Takes a place; a visitor who has one keeps it."""
    may_join = not is_from_elsewhere(request.headers)
    if _wants_page(request):
        return await _shown(request, "join", may_join=may_join)
    return await _answer(request, "join", may_join=may_join)


async def leave(request: web.Request) -> web.Response:
    """Gives up the place or the session."""
    room = room_of(request)
    # Only nginx can say so: it passes no header of the visitor's on but those it names.
    by_site = request.headers.get("X-Waitroom-Release") == "site"
    why = "released" if by_site else "left"
    token = read_given(request.headers, room) or read_token(request.headers, room)
    await room.leave(token, why=why)
    request.app[METRICS].count_request(room.name, "leave", State.NOT_QUEUED)
    if _wants_page(request):
        return render_page(request, room, None, await _form_next(request))
    return web.json_response(_document(room, None), headers=_NO_STORE)


async def page(request: web.Request) -> web.Response:
    """The waiting page with its numbers; enters by itself when the turn comes."""
    return await _shown(request, "page", may_join=takes_place(request.headers))


def safe_next(value: str) -> str:
    """A path on this site, or "/" for whatever could lead elsewhere."""
    if not value.startswith("/") or value[1:2] in {"/", "\\"}:
        return "/"
    if any(ord(c) <= 32 or ord(c) == 127 or c == "\\" for c in value):
        return "/"
    # A header's bytes that are no UTF-8 could not be said again.
    return "/" if any("\ud800" <= c <= "\udfff" for c in value) else value


async def _answer(request: web.Request, door: str, *, may_join: bool) -> web.Response:
    room = room_of(request)
    token = read_token(request.headers, room)
    bearer = read_bearer(request.headers, room)
    answer = await room.check(token, may_join=may_join, is_asked=True, bearer=bearer)
    count_answer(request.app[METRICS], room, door, answer)
    if answer.store_away and answer.joined_ms is None:
        return problem(503, "The store does not answer", retry_after=STORE_RETRY_S)
    limited_ms = answer.standing.limited_ms if answer.standing else 0
    if limited_ms and answer.state is State.WAITING:
        return problem(
            429,
            "Too many polls",
            detail="Your place is kept. Ask again after Retry-After seconds.",
            retry_after=math.ceil(limited_ms / 1000),
        )
    document = _document(room, answer)
    if "client" in request.query:
        # Their own address, as nginx names it: `waitroom doctor` finds a wrong one by it.
        document["client"] = request.headers.get("X-Real-IP")
    response = web.Response(body=json.dumps(document).encode(), headers=_JSON)
    _give_cookie(request, room, answer, response)
    if _is_repeatable(request, answer):
        response.headers["X-Accel-Expires"] = KEEP_BRIEFLY_S
    return response


def _is_repeatable(request: web.Request, answer: Answer) -> bool:
    """Whether nginx may answer the same question with the same words for a moment."""
    if request.method != "GET" or answer.token is not None or request.query_string:
        return False
    if answer.store_away or answer.uncounted:  # what an exempt one is told is not for others
        return False
    return answer.state is State.WAITING or "Cookie" not in request.headers


async def _shown(request: web.Request, door: str, *, may_join: bool) -> web.Response:
    room = room_of(request)
    token = read_token(request.headers, room)
    bearer = read_bearer(request.headers, room)
    answer = await room.check(token, may_join=may_join, is_asked=True, bearer=bearer)
    count_answer(request.app[METRICS], room, door, answer)
    following = await _form_next(request) if request.method == "POST" else _query_next(request)
    response: web.Response
    if answer.state is State.ADMITTED:
        response = web.Response(status=303, headers={"Location": following, **_NO_STORE})
    else:
        response = render_page(request, room, answer, following)
    _give_cookie(request, room, answer, response)
    return response


def render_page(
    request: web.Request,
    room: Room,
    answer: Answer | None,
    following: str,
    *,
    method: str | None = None,
) -> web.Response:
    """The page for somebody who waits, or has just left (`answer` is None), with the way to
    `following`. `method` is theirs, where the page stands in place of what they asked for."""
    language = choose_language(request.headers.get("Accept-Language"))
    document = _document(room, answer)
    shown = request.app[PAGE]
    view = answer.state.value if answer else "left"
    # Who left, or has no place, is not brought back by the page's own refresh; in place, it is
    # the way to a place for who has none yet.
    is_without = document["state"] == State.NOT_QUEUED
    stays = is_without and method is None
    if is_without and not stays:
        view = State.WAITING.value
    refresh = "" if stays else str(max(1, math.ceil(document["refresh_after_seconds"])))
    values = {
        "room": room.name,
        "method": method or "",
        "state": document["state"],
        "next": following,
        "position": str(document["position"] or ""),
        "waiting": str(document["waiting"] if document["waiting"] is not None else ""),
        "wait": shown.wait_in_words(language, answer.wait if answer else None),
        "message": document["message"] or "",
        "updated": datetime.now(UTC).strftime("%H:%M:%S UTC"),
        "refresh": refresh,
    }
    headers = {
        **_NO_STORE,
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Content-Language": language,
        "Referrer-Policy": "same-origin",
    }
    return web.Response(
        text=shown.render(language=language, view=view, values=values),
        content_type="text/html",
        charset="utf-8",
        headers=headers,
    )


def _document(room: Room, answer: Answer | None) -> dict[str, Any]:
    """The status document; `answer` None is somebody who has just left."""
    state = answer.state if answer else State.NOT_QUEUED
    standing = answer.standing if answer else None
    # While places come back, somebody ahead may be missing: a number told now might grow.
    is_placed = (
        standing is not None
        and standing.outcome is Outcome.WAITING
        and standing.recovery_stage == 0
    )
    wait = answer.wait if answer else None
    refresh_s = standing.refresh_ms / 1000 if standing and standing.refresh_ms else None
    waiting = standing.waiting if standing else room.snapshot.waiting if room.snapshot else None
    document: dict[str, Any] = {
        "state": state.value,
        "position": standing.ahead + 1 if standing and is_placed else None,
        "waiting": waiting,
        "ahead": standing.ahead if standing and is_placed else None,
        "wait_seconds": wait.seconds if wait else None,
        "wait_seconds_low": wait.low if wait else None,
        "wait_seconds_high": wait.high if wait else None,
        "joined_at": iso(answer.joined_ms) if answer and answer.joined_ms else None,
        "updated_at": iso(standing.now_ms if standing else room.clock.now_ms()),
        "refresh_after_seconds": refresh_s or DEFAULT_REFRESH_S,
        "message": room.settings.message,
        "room": room.name,
    }
    if answer and (answer.store_away or (standing and standing.recovery_stage == 2)):
        document["paused"] = True
    return document


def _give_cookie(request: web.Request, room: Room, answer: Answer, response: web.Response) -> None:
    if answer.token is not None:
        response.headers["Set-Cookie"] = set_cookie(request.headers, room, answer.token)


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
