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

from sidecar.gate.contract import Gate
from sidecar.gate.page import cloudflare, status_document
from sidecar.gate.page.render import Page, opening_in_digits
from sidecar.gate.return_address import UNSENT
from sidecar.http.app_keys import TEMPLATES
from sidecar.kit.templates import Template
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import State

#: The file is the site's: it may load and run what the site's other pages may.
POLICY = (
    "default-src 'self' https: data: 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
#: A template that loads our script polls by it.
_OUR_SCRIPT = "/_waitroom/static/waiting.js"
#: What stays unquoted in an address; none of it can end a text in a script.
SAFE = "/?&=%:@!,;+*~"


def as_header(document: Mapping[str, Any]) -> str:
    """Return the document as JSON in ASCII, without the message, which the settings have."""
    return json.dumps({name: each for name, each in document.items() if name != "message"})


def find_template(request: web.Request, room: Gate) -> Template | None:
    """Return the room's own template, if it has a valid one."""
    name = room.settings.template
    return request.app[TEMPLATES].find(name) if name else None


def refresh_of(
    template: Template, document: Mapping[str, Any], following: str = "", *, unsent: bool = False
) -> str:
    """Return the Refresh header: when the browser loads the page again, and from where. It is empty
    if the page's script polls."""
    if document["visitor"] and _OUR_SCRIPT in template.text:
        return ""
    seconds = str(max(1, math.ceil(document["refresh_after_seconds"])))
    if not following or (document["state"] != State.NOT_QUEUED and not unsent):
        return seconds
    # That address gives newcomers places even while very many come; and the address of an unsent
    # form is never requested by GET.
    query = status_document.join_query(document) + UNSENT * unsent
    query += f"next={quote(following, safe=SAFE)}"
    return f"{seconds}; url=/_waitroom/{document['room']}/?{query}"


def values(
    document: dict[str, Any],
    settings: RoomSettings,
    page: Page,
    language: str,
    *,
    unsent: bool = False,
) -> dict[str, Any]:
    """Return what a template may show: our values and Cloudflare's."""
    is_without = document["state"] == State.NOT_QUEUED
    view = "waiting" if is_without else status_document.view(document)
    opens = opening_in_digits(document, settings)
    heading, intro = page.headings(language, view, opens)
    theirs = cloudflare.members(document, settings)
    hours, minutes = divmod(theirs["waitTime"], 60)
    return {
        **document,
        **theirs,
        "waitTimeHours": hours,
        "waitTimeHourMinutes": minutes,
        **page.shown(document, language, unsent=unsent),
        "site_name": settings.site_name,
        "logo": settings.logo,
        "message": status_document.message_of(document, settings),
        "method": "POST" if unsent else "",
        "opens": opens,
        "heading": heading,
        "intro": intro,
        "lang": language,
        "dir": page.languages.direction(language),
        f"in_{language}": True,
        f"is_{view}": True,
    }
