"""/check for proxies that hand a refusal on as it is: here the refusal is the waiting page.

The address names the room, so that no header can name another. Admitted is 200 (Envoy takes no
other), and refused never a 2xx.
"""

import html

from aiohttp import web

from sidecar.gate.app_keys import GATES
from sidecar.gate.ask import UNKNOWN_ROOM, ask, count_unknown
from sidecar.gate.check import verdict_headers
from sidecar.gate.contract import Gate
from sidecar.gate.page.responses import NO_STORE, render_page
from sidecar.gate.return_address import is_unsent, safe_next, sent_from
from sidecar.gate.schemas import Numbers, Original, Passed, Refused
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.auth_request import close_if_body, original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_BODY, NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.rooms.schemas.common import RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State

#: Of an escaped address. The page has it three times, and must fit into a proxy's buffer.
_MAX_NEXT = 2_048
_DEFAULT_STATUS = 503
#: In English, and with no file that the page would need.
_NOTICE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{0}</title>
<h1>{0}</h1>
<p>{1}</p>
</html>
"""
_NOT_FOUND = 'There is nothing at this address. <a href="/">Go to the home page.</a>'
_FRAMED = """Here, your browser keeps no place in the queue. \
<a href="{}" target="_top">Open the page</a>"""


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
    """Check whether a request may pass, and if not, answer it.

    For proxies that pass a refusal on to the visitor. Any method gets the same answer. What follows
    the room's name is the address that the visitor asked for.
    """
    headers = request.headers
    name = request.match_info["room"]
    room = request.app[GATES].find(name)
    if room is None:
        return close_if_body(request, _unknown(request, name))
    uri, method = _original(request, room)
    visitor_request = VisitorRequest.from_proxy(headers, room, method, uri)
    if visitor_request.is_preflight:
        reply = {"X-Waitroom-State": State.ADMITTED.value}
        return close_if_body(request, web.Response(headers=reply))
    may_join = visitor_request.may_take_place(room)
    answer = await ask(request, room, visitor_request, "gate", may_join=may_join)
    reply = verdict_headers(room, answer, headers)
    if answer.state is State.ADMITTED:
        return close_if_body(request, web.Response(headers=reply))
    status = _refusal_status(room)
    json_text = reply.pop("X-Waitroom-Json", None)
    if visitor_request.wants_json and json_text is None:
        reply["X-Waitroom-Status"] = str(status)
        response = _numbers(room, answer, status, reply)
    elif visitor_request.wants_json:
        response = web.Response(
            status=status, text=json_text, content_type="application/json", headers=NO_STORE
        )
    elif visitor_request.is_framed_cross_site:
        response = _notice(503, "Open this page in its own tab", _FRAMED.format(html.escape(uri)))
    else:
        following = _short(sent_from(visitor_request)) if is_unsent(method) else uri
        response = render_page(request, room, answer, following, method=method)
        response.set_status(status)
    response.headers.update(reply)
    return close_if_body(request, response)


def _unknown(request: web.Request, name: str) -> web.Response:
    state = count_unknown(request, name, "gate")
    if state == UNKNOWN_ROOM:
        detail = f"No room is called {name[:64]!r}. Compare the proxy's configuration."
        response = problem(503, "Unknown waiting room", detail=detail)
    elif VisitorRequest(request.headers, request.method).wants_json:
        response = problem(404, "Not found")
    else:
        response = _notice(404, "Page not found", _NOT_FOUND)
    response.headers["X-Waitroom-State"] = state
    return response


def _notice(status: int, title: str, html_text: str) -> web.Response:
    text = _NOTICE.format(title, html_text)
    return web.Response(status=status, text=text, content_type="text/html", headers=NO_STORE)


def _original(request: web.Request, room: Gate) -> tuple[str, str]:
    """Return the address and the method that the visitor asked with.

    Envoy asks with both itself, the address behind the room's name; others say them in headers.
    """
    headers = request.headers
    if request.match_info.get("asked"):
        uri = request.raw_path.partition(f"/gate/{room.name}")[2]
        method = request.method
    else:
        uri = headers.get("X-Original-URI") or headers.get("X-Forwarded-Uri") or "/"
        method = original_method(headers)
    return _short(safe_next(uri)), method.encode("ascii", "replace").decode()


def _short(path: str) -> str:
    return path if len(html.escape(path)) <= _MAX_NEXT else "/"


def _refusal_status(room: Gate) -> int:
    """Return the room's status for visitors who wait, or 503: a proxy takes 2xx for a yes."""
    status = room.settings.queueing_status_code
    return status if status >= 400 else _DEFAULT_STATUS


def _numbers(room: Gate, answer: Answer, status: int, reply: dict[str, str]) -> web.Response:
    """Return what nginx tells a program: its numbers, and where to ask for them again."""
    position, wait = reply.get("X-Waitroom-Position"), reply.get("X-Waitroom-Wait")
    members = {
        "room": room.name,
        "state": answer.state.value,
        "position": int(position) if position else None,
        "wait_seconds": int(wait) if wait else None,
        "retry_after_seconds": int(reply["Retry-After"]),
        "status_url": f"/_waitroom/{room.name}/status",
        "join_url": f"/_waitroom/{room.name}/join",
    }
    return problem(status, "Waiting room", **members)
