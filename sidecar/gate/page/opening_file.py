"""Endpoint for a room's opening as a calendar file (RFC 5545), for visitors who come before it."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from aiohttp import web

from sidecar.gate.contract import get_gate
from sidecar.gate.page.responses import NO_STORE, PAGE
from sidecar.gate.return_address import read_next_in_query
from sidecar.gate.schemas import NextParameters
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.cookies import secure_flag
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.models import NO_JSON
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.rooms.schemas.common import UNKNOWN_ROOM

#: The duration of the calendar's entry. The opening itself has none.
_DURATION = "PT15M"
#: The time of the calendar's reminder, relative to the opening.
_REMINDER = "-PT10M"
#: Matches a part of a line. A line longer than 75 bytes is continued in the next, after a space.
_LINE_PART = re.compile(rb"(?s).{1,73}(?![\x80-\xbf])")

ENDPOINTS = Endpoints("visitor")


@ENDPOINTS.get(
    "/_waitroom/{room}/opening.ics",
    ANYBODY,
    parameters=NextParameters,
    replies={200: (NO_JSON, "The file, in the visitor's language.")},
    other_media={"text/calendar": "A calendar file."},
    problems=(UNKNOWN_ROOM, GENERAL[404]),
    bypasses_models=True,
)
async def get_opening(request: web.Request) -> web.Response:
    """Get the opening of the room's current or next event as a calendar file.

    The file has a reminder ten minutes before the opening, and the address in `next`."""
    room = get_gate(request)
    schedule = room.settings.schedule_at(room.clock.now_ms())
    event = schedule.event or schedule.next_event
    if event is None:
        return problem(404, "Not Found", detail=f"{room.name} has no event to come.")
    page = request.app[PAGE]
    texts = page.languages.texts(page.languages.choose(request.headers.get("Accept-Language")))
    scheme = "https" if secure_flag(request.headers) else request.scheme
    host = VisitorRequest(request.headers, request.method).host
    url = (room.settings.public_url or f"{scheme}://{host}") + read_next_in_query(request)
    site = room.settings.site_name or page.site_name
    advice = texts["opens_intro" if event.prequeue_from is None else "opens_draw"]
    entry = {
        "UID": f"{room.name}-{event.name}-{event.opens_at}@{host}",
        "DTSTAMP": _format_time(room.clock.now_ms()),
        "DTSTART": _format_time(event.opens_at),
        "DURATION": _DURATION,
        "SUMMARY": _escape(texts["calendar_entry"].replace("{n}", site)),
        "DESCRIPTION": _escape(f"{url}\n\n{advice}"),
        "URL": url,
    }
    alarm = {"ACTION": "DISPLAY", "TRIGGER": _REMINDER, "DESCRIPTION": entry["SUMMARY"]}
    lines = [
        *("BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Waitroom//EN"),
        *("BEGIN:VEVENT", *_format_fields(entry)),
        *("BEGIN:VALARM", *_format_fields(alarm), "END:VALARM"),
        *("END:VEVENT", "END:VCALENDAR", ""),
    ]
    # An attachment, because the browser must not leave the waiting page.
    headers = {**NO_STORE, "Content-Disposition": 'attachment; filename="opening.ics"'}
    body = b"\r\n".join(map(_fold, lines))
    return web.Response(body=body, content_type="text/calendar", charset="utf-8", headers=headers)


def _format_time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y%m%dT%H%M%SZ}"


def _format_fields(fields: dict[str, str]) -> Iterable[str]:
    return (f"{name}:{value}" for name, value in fields.items())


def _escape(text: str) -> str:
    return re.sub(r"[\\;,]", r"\\\g<0>", text).replace("\n", r"\n")


def _fold(line: str) -> bytes:
    return b"\r\n ".join(_LINE_PART.findall(line.encode(errors="replace")))
