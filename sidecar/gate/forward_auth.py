"""The endpoint /gate, for proxies that pass its refusal, the waiting page, on to the visitor.

The path names the room, so that no header of a visitor can select another room. The status is 200
for an admitted visitor, because Envoy accepts no other, and never 2xx for a refused one."""

import html

from aiohttp import web

from sidecar.gate.ask import UNKNOWN_ROOM, count_unknown, get_verdict
from sidecar.gate.check import build_headers
from sidecar.gate.contract import GATES, Gate
from sidecar.gate.cookies import read_token
from sidecar.gate.page.responses import NO_STORE, render_page
from sidecar.gate.return_address import find_form_page, make_next_safe, sends_data
from sidecar.gate.schemas import AdmittedHeaders, Numbers, OriginalRequestHeaders, RefusedHeaders
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.auth_request import close_if_body, original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_BODY, NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.rooms.schemas.common import RoomAddress
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import VisitorState

#: The maximum length of `next`, the URL to return to, after HTML escaping. The page contains it
#: three times, and must fit into a proxy's buffer.
_MAX_NEXT_LENGTH = 2_048
#: A page with a title and a text, in English. It needs no other file.
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
_FRAME_NOTICE = """Here, your browser keeps no place in the queue. \
<a href="{}" target="_top">Open the page</a>"""


ENDPOINTS = Endpoints("proxy")
_WAITING = (
    NO_JSON,
    """The visitor has to wait or is refused. Browsers get the waiting page, programs get JSON.
The status is the room's `queueing_status_code` if that is a refusal. With 503 and no
`X-Waitroom-Status`, the room is unknown.""",
    RefusedHeaders,
)


@ENDPOINTS.declare(
    "*",
    "/gate/{room}",
    ANYBODY,
    parameters=RoomAddress,
    headers=OriginalRequestHeaders,
    replies={
        200: (NO_BODY, "The request may pass.", AdmittedHeaders),
        404: (NO_JSON, "The leased resource does not exist.", RefusedHeaders),
        429: _WAITING,
        503: _WAITING,
    },
    other_media={"text/html": "The waiting page."},
    is_cacheable=True,
    problems=(GENERAL[404], GENERAL[429], GENERAL[503]),
    problem_members={429: Numbers, 503: Numbers},
    bypasses_models=True,
)
async def gate(request: web.Request) -> web.Response:
    """Check whether a request may pass, and if not, return the response for the visitor.

    This endpoint is for proxies that pass a refusal on to the visitor. All methods have the same
    effect. The path after the room's name is the path that the visitor requested."""
    headers = request.headers
    name = request.match_info["room"]
    room = request.app[GATES].find(name)
    if room is None:
        return close_if_body(request, _make_unknown_response(request, name))
    uri, method = _read_original_request(request, room)
    visitor_request = VisitorRequest(headers, method, read_token(headers, room), uri)
    if visitor_request.is_preflight:
        reply = {"X-Waitroom-State": VisitorState.ADMITTED.value}
        return close_if_body(request, web.Response(headers=reply))
    may_join = visitor_request.may_take_place(room)
    answer = await get_verdict(request, room, visitor_request, "gate", may_join=may_join)
    reply = build_headers(room, answer, headers)
    if answer.state is VisitorState.ADMITTED:
        return close_if_body(request, web.Response(headers=reply))
    status = room.settings.queueing_status_code
    if status < 400:  # a proxy would admit the visitor
        status = 503
    json_text = reply.pop("X-Waitroom-Json", None)
    if visitor_request.wants_json and json_text is None:
        reply["X-Waitroom-Status"] = str(status)
        response = _make_json_refusal(room, answer, status, reply)
    elif visitor_request.wants_json:
        response = web.Response(
            status=status, text=json_text, content_type="application/json", headers=NO_STORE
        )
    elif visitor_request.is_framed_cross_site:
        notice = _FRAME_NOTICE.format(html.escape(uri))
        response = _make_notice_response(503, "Open this page in its own tab", notice)
    else:
        next_url = _drop_if_long(find_form_page(visitor_request)) if sends_data(method) else uri
        response = render_page(request, room, answer, next_url, method=method)
        response.set_status(status)
    response.headers.update(reply)
    return close_if_body(request, response)


def _make_unknown_response(request: web.Request, name: str) -> web.Response:
    """Return the response for an unknown room, or for an unknown resource of a template."""
    state = count_unknown(request, name, "gate")
    if state == UNKNOWN_ROOM:
        detail = f"No room is called {name[:64]!r}. Compare the proxy's configuration."
        response = problem(503, "Unknown waiting room", detail=detail)
    elif VisitorRequest(request.headers, request.method).wants_json:
        response = problem(404, "Not found")
    else:
        response = _make_notice_response(404, "Page not found", _NOT_FOUND)
    response.headers["X-Waitroom-State"] = state
    return response


def _make_notice_response(status: int, title: str, html_text: str) -> web.Response:
    text = _NOTICE.format(title, html_text)
    return web.Response(status=status, text=text, content_type="text/html", headers=NO_STORE)


def _read_original_request(request: web.Request, room: Gate) -> tuple[str, str]:
    """Return the URL and the method of the visitor's request. Envoy appends the URL to the path
    with the room's name, and keeps the method. Other proxies send both in headers."""
    headers = request.headers
    if request.match_info.get("visitor_path"):
        uri = request.raw_path.partition(f"/gate/{room.name}")[2]
        method = request.method
    else:
        uri = headers.get("X-Original-URI") or headers.get("X-Forwarded-Uri") or "/"
        method = original_method(headers)
    return _drop_if_long(make_next_safe(uri)), method.encode("ascii", "replace").decode()


def _drop_if_long(path: str) -> str:
    """Return the path, or "/" if the escaped path is longer than _MAX_NEXT_LENGTH."""
    return path if len(html.escape(path)) <= _MAX_NEXT_LENGTH else "/"


def _make_json_refusal(
    room: Gate, answer: Answer, status: int, reply: dict[str, str]
) -> web.Response:
    """Return the JSON refusal for a program, with the members that nginx also sends."""
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
