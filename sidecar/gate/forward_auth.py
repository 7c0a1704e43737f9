"""/check for proxies that hand a refusal on as it is: here it is the waiting page itself.

The room is named in the address, so that no header can name another. What is admitted is a
200 (Envoy takes no other), and what is refused never a 2xx.
"""

import html
from collections.abc import Mapping

from aiohttp import web

from sidecar.gate.app_keys import GATES
from sidecar.gate.check import (
    UNKNOWN_ROOM,
    answer_headers,
    count_answer,
    count_grant,
    find_unknown,
    is_framed_elsewhere,
    may_take_place,
)
from sidecar.gate.contract import Gate
from sidecar.gate.cookies import read_bearer, read_token
from sidecar.gate.onward import is_unsent, safe_next, sent_from
from sidecar.gate.schemas import Numbers, Original, Passed, Refused
from sidecar.gate.status import render_page
from sidecar.http.auth_request import close_if_body, is_preflight, original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY, NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.rooms.schemas.common import RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State

#: As HTML. The page says it three times, and a proxy may have to hold all of it in a buffer.
_MAX_NEXT = 2_048
_DEFAULT_STATUS = 503
#: Where a template does not have that resource. In English, and with no file that it needs.
_NOT_FOUND = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Page not found</title>
<h1>Page not found</h1>
<p>There is nothing at this address. <a href="/">Go to the home page.</a></p>
</html>
"""


_FRAMED = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>Open this page in its own tab</title>
<h1>Open this page in its own tab</h1>
<p>Here, your browser keeps no place in the queue. <a href="{}" target="_top">Open the page</a></p>
</html>
"""


ENDPOINTS = Endpoints("proxy")
_WAITING = (
    NO_JSON,
    """Waits, or is refused: the waiting page; for programs the numbers. The status is the room's
`queueing_status_code`, where that is a refusal. 503 without `X-Waitroom-Status`: unknown room.""",
    Refused,
)


@ENDPOINTS.declare(
    "*",
    "/gate/{room}",
    ANYBODY,
    parameters=RoomAddress,
    headers=Original,
    replies={
        200: (NO_BODY, "It may.", Passed),
        404: (NO_JSON, "A leased resource that its template does not have.", Refused),
        429: _WAITING,
        503: _WAITING,
    },
    other_media={"text/html": "The waiting page."},
    is_cacheable=True,
    problems=(GENERAL[404], GENERAL[429], GENERAL[503]),
    problem_members={429: Numbers, 503: Numbers},
    is_hand_made=True,
)
async def gate(request: web.Request) -> web.Response:
    """May this request pass? If not, what to answer.

    For proxies that pass a refusal on to the visitor. Any method gets the same answer. What follows
    the room's name is the address that the visitor asked for.
    """
    headers = request.headers
    name = request.match_info["room"]
    room = request.app[GATES].find(name)
    metrics = request.app[METRICS]
    if room is None:
        return close_if_body(request, _unknown(request, name))
    asked, method = _original(request, room)
    if is_preflight(headers, method):
        said = {"X-Waitroom-State": State.ADMITTED.value}
        return close_if_body(request, web.Response(headers=said))
    bearer = read_bearer(headers, room, grant_uri=asked)
    count_grant(metrics, room, bearer)
    answer = await room.check(
        read_token(headers, room),
        may_join=may_take_place(room, headers, method),
        bearer=bearer,
    )
    count_answer(metrics, room, "gate", answer)
    said = answer_headers(room, answer, headers)
    if answer.state is State.ADMITTED:
        return close_if_body(request, web.Response(headers=said))
    json_text = said.pop("X-Waitroom-Json", None)
    if _wants_problem(headers):
        if json_text is None:
            response = _numbers(room, answer, said)
        else:
            response = web.Response(text=json_text, content_type="application/json")
            response.set_status(_refusal(said["X-Waitroom-Status"]))
            response.headers["Cache-Control"] = "no-store"
    elif is_framed_elsewhere(headers):
        text = _FRAMED.format(html.escape(asked))
        response = web.Response(status=503, text=text, content_type="text/html")
        response.headers["Cache-Control"] = "no-store"
    else:
        way = _short(sent_from(headers)) if is_unsent(method) else asked
        response = render_page(request, room, answer, way, method=method)
        response.set_status(_refusal(said["X-Waitroom-Status"]))
    response.headers.update(said)
    return close_if_body(request, response)


def _unknown(request: web.Request, name: str) -> web.Response:
    state = find_unknown(request, name, "gate")
    if state == UNKNOWN_ROOM:
        detail = f"No room is called {name[:64]!r}. Compare the proxy's configuration."
        response = problem(503, "Unknown waiting room", detail=detail)
    elif _wants_problem(request.headers):
        response = problem(404, "Not found")
    else:
        response = web.Response(status=404, text=_NOT_FOUND, content_type="text/html")
        response.headers["Cache-Control"] = "no-store"
    response.headers["X-Waitroom-State"] = state
    return response


def _wants_problem(headers: Mapping[str, str]) -> bool:
    accept = headers.get("Accept", "").lower()
    return "json" in accept and "html" not in accept


def _original(request: web.Request, room: Gate) -> tuple[str, str]:
    """The address and the method that the visitor asked with.

    Envoy asks with both itself, the address behind the room's name; others say them in headers.
    """
    headers = request.headers
    if request.match_info.get("asked"):
        asked = request.raw_path.partition(f"/gate/{room.name}")[2]
        method = request.method
    else:
        asked = headers.get("X-Original-URI") or headers.get("X-Forwarded-Uri") or "/"
        method = original_method(headers)
    return _short(safe_next(asked)), method.encode("ascii", "replace").decode()


def _short(way: str) -> str:
    return way if len(html.escape(way)) <= _MAX_NEXT else "/"


def _refusal(status: str) -> int:
    """A proxy would take 200 and 202 for a yes."""
    return int(status) if int(status) >= 400 else _DEFAULT_STATUS


def _numbers(room: Gate, answer: Answer, said: dict[str, str]) -> web.Response:
    """What nginx tells a program: its numbers, and where to ask for them again."""
    status = _refusal(said["X-Waitroom-Status"])
    said["X-Waitroom-Status"] = str(status)
    position, wait = said.get("X-Waitroom-Position"), said.get("X-Waitroom-Wait")
    members = {
        "room": room.name,
        "state": answer.state.value,
        "position": int(position) if position else None,
        "wait_seconds": int(wait) if wait else None,
        "retry_after_seconds": int(said["Retry-After"]),
        "status_url": f"/_waitroom/{room.name}/status",
        "join_url": f"/_waitroom/{room.name}/join",
    }
    return problem(status, "Waiting room", **members)
