"""The responses that show the waiting page: ours, or by the room's own template.

nginx passes the status document that came with its verdict on to /page, so that nobody is looked up
a second time.
"""

import json
import math
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from aiohttp import web

from sidecar.gate.app_keys import GATES, PAGE
from sidecar.gate.contract import Gate
from sidecar.gate.page import status_document
from sidecar.gate.page.branding import branded
from sidecar.gate.page.render import opening_in_digits
from sidecar.gate.page.template import POLICY, SAFE, find_template, refresh_of, values
from sidecar.gate.return_address import UNSENT, is_unsent, safe_next
from sidecar.gate.schemas import PageRequest, PageShown
from sidecar.http.auth_request import original_method
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.http.static_pages import CONTENT_SECURITY_POLICY
from sidecar.kit.templates import Template
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State

NO_STORE = {"Cache-Control": "no-store"}

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
    """Get the waiting page of a verdict.

    For nginx, in rooms with a `template`. It asks Redis nothing.
    """
    name, text = (request.headers.get(each) for each in ("X-Waitroom-Room", "X-Waitroom-Document"))
    if name is None or text is None:
        return problem(400, "Not of a verdict", detail="Send X-Waitroom-Room, X-Waitroom-Document.")
    room = request.app[GATES].find(name)
    template = room and find_template(request, room)
    if not room or not template:
        return problem(404, "Not Found", detail=f"no room {name!r} with a template of its own")
    try:
        document = json.loads(text)
        # The same for all who bring no cookie, so that nginx can answer the many.
        is_kept = document["visitor"] is None
        following = "" if is_kept else safe_next(request.headers.get("X-Original-URI", ""))
        unsent = is_unsent(original_method(request.headers))
        page = _render_template(request, room, template, document, following, unsent=unsent)
    except (ValueError, KeyError, TypeError):
        return problem(400, "Not a status document", detail="Send X-Waitroom-Document of /check.")
    if is_kept:
        page.headers["X-Accel-Expires"] = "1"
    return page


def render_page(
    request: web.Request,
    room: Gate,
    answer: Answer | None,
    following: str,
    *,
    method: str | None = None,
) -> web.Response:
    """Return the page for somebody who waits, or has just left (`answer` is None), with the way to
    `following`. `method` is the visitor's, if the page stands in place of what they asked for."""
    before, _, _ = request.query_string.partition("next=")
    unsent = is_unsent(method) if method else UNSENT in before
    document = status_document.document(room, answer)
    # Who left, or has no place, is not brought back by the page's own refresh; in place, or while
    # very many come, it is the way to a place for who has none yet.
    is_without = document["state"] == State.NOT_QUEUED
    stays = is_without and method is None and "join_url" not in document
    if not stays and (template := find_template(request, room)):
        return _render_template(request, room, template, document, following, unsent=unsent)
    page = request.app[PAGE]
    language = page.languages.choose(request.headers.get("Accept-Language"))
    view = status_document.view(document) if answer else "left"
    if is_without and not stays:
        view = State.WAITING.value
    text = page.render(
        language=language,
        view=view,
        values={
            **page.shown(document, language, unsent=unsent),
            "room": room.name,
            "method": method or ("POST" if unsent else ""),
            "state": document["state"],
            "phase": document["phase"],
            "next": following,
            "join": status_document.join_query(document) + UNSENT * unsent,
            "waiting": str(document["waiting"] if document["waiting"] is not None else ""),
            "message": document["message"] or "",
            "updated": datetime.now(UTC).strftime("%H:%M:%S UTC"),
            "refresh": "" if stays else str(max(1, math.ceil(document["refresh_after_seconds"]))),
        },
        opens=opening_in_digits(document, room.settings),
    )
    return _html(branded(text, room.settings), language, CONTENT_SECURITY_POLICY)


def _render_template(  # noqa: PLR0913 - as the page needs them
    request: web.Request,
    room: Gate,
    template: Template,
    document: dict[str, Any],
    following: str,
    *,
    unsent: bool = False,
) -> web.Response:
    """Return the page by the room's own template. `following` is where the visitor wanted to go;
    empty: nginx may keep the page for others."""
    page = request.app[PAGE]
    language = page.languages.choose(request.headers.get("Accept-Language"))
    shown = values(document, room.settings, page, language, unsent=unsent)
    text = template.render({**shown, "next": quote(following, safe=SAFE)})
    response = _html(text, language, POLICY)
    if refresh := refresh_of(template, document, following, unsent=unsent):
        response.headers["Refresh"] = refresh
    return response


def _html(text: str, language: str, policy: str) -> web.Response:
    headers = {
        **NO_STORE,
        "Content-Language": language,
        "Content-Security-Policy": policy,
        "Referrer-Policy": "same-origin",
    }
    return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers)
