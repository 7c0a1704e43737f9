"""Fills a room's own template, which is served as the waiting page instead of our page.

nginx passes the status document from the verdict on to /page, so that /page need not ask Redis
again. A template usually has no script of ours, so a Refresh header makes the browser reload it."""

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from sidecar.gate.contract import Gate
from sidecar.gate.page import cloudflare, status_document
from sidecar.gate.page.render import Page, format_opening
from sidecar.gate.return_address import UNSENT_PARAMETER
from sidecar.http.app_keys import TEMPLATES
from sidecar.kit.templates import Template
from sidecar.rooms.messages import get_text, get_translations
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import VisitorState

#: The Content-Security-Policy of a template. It may load and run what the site's other pages may.
POLICY = (
    "default-src 'self' https: data: 'unsafe-inline'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
#: The script that polls. A template that loads it needs no Refresh header.
_OUR_SCRIPT = "/_waitroom/static/waiting.js"
#: The characters that need no percent-encoding in a URL. None can end a string in a script.
SAFE = "/?&=%:@!,;+*~"


def format_document(document: Mapping[str, Any]) -> str:
    """Return the document as ASCII JSON. It omits the message, which /page reads from settings."""
    omitted = {"message", "messages"}
    return json.dumps({name: value for name, value in document.items() if name not in omitted})


def find_template(request: web.Request, room: Gate) -> Template | None:
    """Return the room's own template, or None if the room has no valid template."""
    name = room.settings.template
    return request.app[TEMPLATES].find(name) if name else None


def format_refresh(
    template: Template, document: Mapping[str, Any], next_url: str = "", *, unsent: bool = False
) -> str:
    """Return the Refresh header, with which the browser reloads the page, possibly from another
    URL. Empty if the page's script polls."""
    if document["visitor"] and _OUR_SCRIPT in template.text:
        return ""
    seconds = str(max(1, math.ceil(document["refresh_after_seconds"])))
    if not next_url or (document["state"] != VisitorState.NOT_QUEUED and not unsent):
        return seconds
    # The page is reloaded from its own URL for two reasons: newcomers can join there even while the
    # shield is up, and the URL that a form was sent to must not be requested by GET.
    query = status_document.get_join_query(document) + UNSENT_PARAMETER * unsent
    query += f"next={quote(next_url, safe=SAFE)}"
    return f"{seconds}; url=/_waitroom/{document['room']}/?{query}"


def collect_values(
    document: dict[str, Any],
    settings: RoomSettings,
    page: Page,
    language: str,
    *,
    unsent: bool = False,
) -> dict[str, Any]:
    """Return the values that a template may use: ours, and those of Cloudflare's templates.
    `unsent` is True if the visitor sent a form that has not reached the site."""
    has_no_place = document["state"] == VisitorState.NOT_QUEUED
    view = "joining" if has_no_place else status_document.choose_view(document)
    opens = format_opening(document, settings, language)
    now_ms = status_document.parse_updated_ms(document)
    message = settings.find_message(settings.schedule_at(now_ms), now_ms)
    texts = {"message": get_text(message), "messages": get_translations(message)}
    heading, intro = page.choose_headings(language, status_document.add_draw(view, document), opens)
    cloudflare_values = cloudflare.build_members(document, settings)
    hours, minutes = divmod(cloudflare_values["waitTime"], 60)
    return {
        **document,
        **cloudflare_values,
        "waitTimeHours": hours,
        "waitTimeHourMinutes": minutes,
        **page.collect_status_values(document, language, settings, unsent=unsent),
        "site_name": settings.site_name,
        "logo": settings.logo,
        "message": status_document.choose_message(texts, language),
        "method": "POST" if unsent else "",
        "opens": opens,
        "heading": heading,
        "intro": intro,
        "lang": language,
        "dir": page.languages.direction(language),
        f"in_{language}": True,
        f"is_{'waiting' if has_no_place else view}": True,
    }
