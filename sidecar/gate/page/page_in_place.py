"""What nginx shows in place of a page, where the room has a template of its own."""

import json

from aiohttp import web

from sidecar.gate.app_keys import GATES
from sidecar.gate.page.template import find_template, respond
from sidecar.gate.return_address import is_unsent, safe_next
from sidecar.gate.schemas import PageRequest, PageShown
from sidecar.http.auth_request import original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem

ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/page",
    ANYBODY,
    headers=PageRequest,
    replies={200: (NO_JSON, "The page.", PageShown)},
    other_media={"text/html": "The waiting page."},
    problems=(GENERAL[400], GENERAL[404]),
    is_cacheable=True,
    is_hand_made=True,
)
async def get_page(request: web.Request) -> web.Response:
    """The waiting page of a verdict.

    For nginx, in rooms with a `template`. It asks Redis nothing.
    """
    name, said = (request.headers.get(each) for each in ("X-Waitroom-Room", "X-Waitroom-Document"))
    if name is None or said is None:
        return problem(400, "Not of a verdict", detail="Send X-Waitroom-Room, X-Waitroom-Document.")
    room = request.app[GATES].find(name)
    template = room and find_template(request, room)
    if not room or not template:
        return problem(404, "Not Found", detail=f"no room {name!r} with a template of its own")
    try:
        document = json.loads(said)
        # The same for all who bring no cookie, so that nginx can answer the many.
        is_kept = document["visitor"] is None
        following = "" if is_kept else safe_next(request.headers.get("X-Original-URI", ""))
        unsent = is_unsent(original_method(request.headers))
        page = respond(request, room, template, document, following, unsent=unsent)
    except (ValueError, KeyError, TypeError):
        return problem(400, "Not a status document", detail="Send X-Waitroom-Document of /check.")
    if is_kept:
        page.headers["X-Accel-Expires"] = "1"
    return page
