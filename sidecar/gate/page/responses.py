"""Builds responses with the waiting page, which is our page or the room's own template."""

import json
import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from aiohttp import web

from sidecar.gate.contract import GATES, Gate
from sidecar.gate.page import status_document
from sidecar.gate.page.branding import apply_branding
from sidecar.gate.page.render import Page, format_opening
from sidecar.gate.page.template import POLICY, SAFE, collect_values, find_template, format_refresh
from sidecar.gate.return_address import UNSENT_PARAMETER, make_next_safe, sends_data
from sidecar.gate.schemas import PageHeaders, PageRequestHeaders
from sidecar.http.auth_request import original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.http.static_pages import make_page_response
from sidecar.kit.templates import Template
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import VisitorState

NO_STORE = {"Cache-Control": "no-store"}
PAGE = web.AppKey("page", Page)

ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/page",
    ANYBODY,
    headers=PageRequestHeaders,
    replies={200: (NO_JSON, "The page.", PageHeaders)},
    other_media={"text/html": "The waiting page."},
    problems=(GENERAL[400], GENERAL[404]),
    is_cacheable=True,
    bypasses_models=True,
)
async def get_page(request: web.Request) -> web.Response:
    """Get the waiting page for a verdict.

    This endpoint is for nginx, in rooms with a `template`. It reads nothing from Redis."""
    name, text = map(request.headers.get, ("X-Waitroom-Room", "X-Waitroom-Document"))
    if name is None or text is None:
        return problem(400, "Not of a verdict", detail="Send X-Waitroom-Room, X-Waitroom-Document.")
    room = request.app[GATES].find(name)
    template = room and find_template(request, room)
    if not room or not template:
        return problem(404, "Not Found", detail=f"no room {name!r} with a template of its own")
    try:
        document = json.loads(text)
        # The page is the same for all visitors without a cookie, so that nginx can cache it.
        is_cacheable = document["visitor"] is None
        next_url = "" if is_cacheable else make_next_safe(request.headers.get("X-Original-URI", ""))
        unsent = sends_data(original_method(request.headers))
        page = _render_template(request, room, template, document, next_url, unsent=unsent)
    except (ValueError, KeyError, TypeError):
        return problem(400, "Not a status document", detail="Send X-Waitroom-Document of /check.")
    if is_cacheable:
        page.headers["X-Accel-Expires"] = "1"
    return page


def render_page(
    request: web.Request,
    room: Gate,
    answer: Answer | None,
    next_url: str,
    *,
    method: str | None = None,
) -> web.Response:
    """Return the waiting page, which leads on to `next_url`. `answer` is None if the visitor has
    just left. `method` is None if the visitor requested the waiting page itself."""
    before, _, _ = request.query_string.partition("next=")
    unsent = sends_data(method) if method else UNSENT_PARAMETER in before
    document = status_document.build_document(room, answer)
    # The page must not refresh for visitors who left or lost their place, because that would queue
    # them again. Newcomers without a place need it: the next request lets them join.
    has_no_place = document["state"] == VisitorState.NOT_QUEUED
    is_final = has_no_place and method is None and "join_url" not in document
    if not is_final and (template := find_template(request, room)):
        return _render_template(request, room, template, document, next_url, unsent=unsent)
    page = request.app[PAGE]
    accepted = request.headers.get("Accept-Language")
    language = page.languages.choose(accepted)
    view = status_document.choose_view(document) if answer else "left"
    if has_no_place and not is_final:
        view = "joining"
    refresh_s = max(1, math.ceil(document["refresh_after_seconds"]))
    text = page.render(
        language=language,
        view=status_document.add_draw(view, document),
        values={
            **page.collect_status_values(document, language, room.settings, unsent=unsent),
            "room": room.name,
            "method": method or ("POST" if unsent else ""),
            "state": document["state"],
            "view": view,
            "phase": document["phase"],
            "next": next_url,
            "join": status_document.get_join_query(document) + UNSENT_PARAMETER * unsent,
            "waiting": str(document["waiting"] if document["waiting"] is not None else ""),
            "message": status_document.choose_message(document, accepted) or "",
            "updated": datetime.now(UTC).strftime("%H:%M:%S UTC"),
            "refresh": "" if is_final else str(refresh_s),
        },
        opens=format_opening(document, room.settings, language),
    )
    text = apply_branding(text, room.settings)
    return make_page_response(text, {"Content-Language": language})


def _render_template(  # noqa: PLR0913 - the template needs all of them
    request: web.Request,
    room: Gate,
    template: Template,
    document: dict[str, Any],
    next_url: str,
    *,
    unsent: bool = False,
) -> web.Response:
    """Return the page from the room's own template. `next_url` is the URL that the visitor
    requested, or "" if nginx may cache the page for others."""
    page = request.app[PAGE]
    language = page.languages.choose(request.headers.get("Accept-Language"))
    values = collect_values(document, room.settings, page, language, unsent=unsent)
    text = template.render({**values, "next": quote(next_url, safe=SAFE)})
    headers = {"Content-Language": language, "Content-Security-Policy": POLICY}
    response = make_page_response(text, headers)
    if refresh := format_refresh(template, document, next_url, unsent=unsent):
        response.headers["Refresh"] = refresh
    return response
