"""What nginx shows in place of a page, where the room has a template of its own."""

from __future__ import annotations

import json

from aiohttp import web

from sidecar.gate.app_keys import GATES
from sidecar.gate.own_page import find_template, respond
from sidecar.gate.schemas import PageRequest, PageShown
from sidecar.gate.status import safe_next
from sidecar.kit.errors import UnknownNameError
from sidecar.kit.http.endpoint import ANYBODY, Endpoints
from sidecar.kit.http.models import NO_JSON
from sidecar.kit.http.problem_kinds import GENERAL
from sidecar.kit.http.problems import problem

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
    if not {"X-Waitroom-Room", "X-Waitroom-Document"} <= set(request.headers):
        return problem(400, "Not of a verdict", detail="Send X-Waitroom-Room, X-Waitroom-Document.")
    name = request.headers["X-Waitroom-Room"]
    room = request.app[GATES].find(name)
    if room is None:
        return problem(404, "Not Found", detail=f"no room is named {name!r}")
    template = find_template(request, room)
    if template is None:
        raise UnknownNameError("template", room.settings.template or "")
    try:
        document = json.loads(request.headers.get("X-Waitroom-Document", ""))
        # The same for all who bring no cookie, so that nginx can answer the many.
        is_kept = document["visitor"] is None
        following = "" if is_kept else safe_next(request.headers.get("X-Original-URI", ""))
        page = respond(request, room, template, document, following)
    except (ValueError, KeyError, TypeError):
        return problem(400, "Not a status document", detail="Send X-Waitroom-Document of /check.")
    if is_kept:
        page.headers["X-Accel-Expires"] = "1"
    return page
