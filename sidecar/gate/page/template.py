"""A room's waiting page by a template of its own, in place of ours.

nginx passes the status document that came with its verdict on to /page, so that nobody is looked up
a second time. A page of the site's own has no script of ours: the browser loads it again and again.
"""

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from sidecar.gate.app_keys import PAGE
from sidecar.gate.contract import Gate
from sidecar.gate.page import cloudflare, status_document
from sidecar.gate.page.render import Page, opening_in_digits
from sidecar.gate.return_address import UNSENT
from sidecar.http.app_keys import TEMPLATES
from sidecar.kit.templates import Template
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import State
from sidecar.visitors.visitor_number import visitor_number

#: The file is the site's: it may load and run what the site's other pages may.
POLICY = (
    "default-src 'self' https: data: 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
#: A template with our script polls by it.
_OUR_SCRIPT = "/_waitroom/static/waiting.js"
#: Of an address; nothing of it can end a text in a script.
_SAFE = "/?&=%:@!,;+*~"


def as_header(document: Mapping[str, Any]) -> str:
    """Without what the settings say; ASCII."""
    return json.dumps({name: each for name, each in document.items() if name != "message"})


def find_template(request: web.Request, room: Gate) -> Template | None:
    """The room's own, if it has one that can be used."""
    name = room.settings.template
    return request.app[TEMPLATES].find(name) if name else None


def refresh_of(
    template: Template, document: Mapping[str, Any], following: str = "", *, unsent: bool = False
) -> str:
    """When the browser loads the page again, and from where; "": its script polls."""
    if document["visitor"] and _OUR_SCRIPT in template.text:
        return ""
    seconds = str(max(1, math.ceil(document["refresh_after_seconds"])))
    if not following or (document["state"] != State.NOT_QUEUED and not unsent):
        return seconds
    # Newcomers are given places there even while very many come; and what was sent to this address
    # is not asked for by GET.
    query = status_document.join_query(document) + UNSENT * unsent
    query += f"next={quote(following, safe=_SAFE)}"
    return f"{seconds}; url=/_waitroom/{document['room']}/?{query}"


def respond(  # noqa: PLR0913 - as the page needs them
    request: web.Request,
    room: Gate,
    template: Template,
    document: dict[str, Any],
    following: str,
    *,
    unsent: bool = False,
) -> web.Response:
    """The page. `following` is where the visitor wanted to go; empty: it may be kept for others.
    `unsent`: what they sent has not arrived."""
    page = request.app[PAGE]
    language = page.languages.choose(request.headers.get("Accept-Language"))
    shown = values(document, room.settings, page, language, unsent=unsent)
    headers = {
        "Cache-Control": "no-store",
        "Content-Language": language,
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "same-origin",
    }
    if refresh := refresh_of(template, document, following, unsent=unsent):
        headers["Refresh"] = refresh
    text = template.render({**shown, "next": quote(following, safe=_SAFE)})
    return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers)


def values(
    document: dict[str, Any],
    settings: RoomSettings,
    page: Page,
    language: str,
    *,
    unsent: bool = False,
) -> dict[str, Any]:
    """What a template may show: ours and Cloudflare's."""
    is_without = document["state"] == State.NOT_QUEUED
    view = "waiting" if is_without else status_document.view(document)
    event = status_document.event(status_document.moments_at(document, settings))
    opens = opening_in_digits(event) if event else ""
    heading, intro = page.headings(language, view, opens)
    theirs = cloudflare.members(document, settings)
    hours, minutes = divmod(theirs["waitTime"], 60)
    return {
        **document,
        **theirs,
        "waitTimeHours": hours,
        "waitTimeHourMinutes": minutes,
        "position": status_document.position_in_digits(document),
        "ahead": status_document.ahead_in_digits(document),
        "number": visitor_number(document["visitor"]) if document["visitor"] else "",
        "line": page.line_in_words(language, document["line"]),
        "wait": page.wait_in_words(language, status_document.wait_of(document)),
        "site_name": settings.site_name,
        "logo": settings.logo,
        "message": status_document.message_of(document, settings),
        "method": "POST" if unsent else "",
        "unsent": page.languages.texts(language)["unsent"] if unsent else "",
        "opens": opens,
        "heading": heading,
        "intro": intro,
        "lang": language,
        "dir": page.languages.direction(language),
        f"in_{language}": True,
        f"is_{view}": True,
    }
