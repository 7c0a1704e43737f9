"""A link that takes a place in the queue, or a call, to another browser.

Webhooks bring it to the site, which may send it on to its visitor.

Opening it changes nothing and sets no cookie, because programs open links in mail before people
do. The page's button takes the ticket; the verdict about the next request claims the turn.
"""

import html
import math
import re
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import structlog
from aiohttp import web

from sidecar.gate.check import is_from_elsewhere
from sidecar.gate.cookies import set_cookie
from sidecar.gate.onward import safe_next
from sidecar.gate.page.branding import branded
from sidecar.gate.page.languages import Languages
from sidecar.gate.schemas import ClaimParameters, Onward, RetryLater, Site
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY, NO_JSON
from sidecar.http.problems import STORE_RETRY_S
from sidecar.http.static_pages import CONTENT_SECURITY_POLICY
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.kit.share import find_share
from sidecar.rooms.app_keys import room_of
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.service import Room
from sidecar.visitors.model import Ticket

#: What the page says, and its status.
_STATUS = {"called": 200, "waiting": 200, "begun": 410, "gone": 410, "unknown": 400, "away": 503}
_OPEN = {"called", "waiting"}
_SITE = re.compile(r'<span id="site">([^<]*)</span>')
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    # The address is a key.
    "Referrer-Policy": "no-referrer",
}

log = structlog.get_logger()


class ClaimPage:
    """Renders the page from the static files; where those are of an older version, from ours."""

    def __init__(self, static: Path) -> None:
        def read(name: str) -> str:
            file = static / name
            file = file if file.exists() else find_share("static") / name
            return file.read_text(encoding="utf-8")

        self._template = Template(read("claim.html"))
        self.languages = Languages(static)
        self._site = _site_name(read("waiting.html"))

    def render(
        self,
        *,
        language: str,
        view: str,
        following: str,
        site: str | None = None,
        left_s: int | None = None,
    ) -> str:
        """`left_s`: for how long a turn is held, if it is."""
        texts = self.languages.texts(language)
        may_take = view in _OPEN
        values = {
            "lang": language,
            "dir": self.languages.direction(language),
            "site": site or self._site,
            "heading": texts[f"claim_{view}"],
            "intro": texts[f"claim_{view}_intro"],
            "go": texts["claim_go"],
            "back": texts["claim_back"],
            "next": following,
        }
        escaped = {name: html.escape(value) for name, value in values.items()}
        hidden = {"off": "" if may_take else "hidden", "on": "hidden" if may_take else ""}
        left = "" if left_s is None else _left(texts["claim_left"], left_s)
        return self._template.safe_substitute(escaped | hidden, left=left)


def _left(text: str, seconds: int) -> str:
    digits = f'<b data-seconds="{seconds}">{seconds // 60}:{seconds % 60:02}</b>'
    return f'<p id="held" role="timer">{html.escape(text).replace("{t}", digits)}</p>'


def _site_name(waiting: str) -> str:
    """As the waiting page has it, which is where people write their own."""
    match = _SITE.search(waiting)
    return html.unescape(match[1]).strip() if match else ""


CLAIM_PAGE = web.AppKey("claim_page", ClaimPage)


ENDPOINTS = Endpoints("visitor")
_CLAIM: dict[str, Any] = {
    "parameters": ClaimParameters,
    "other_media": {"text/html": "A page that says so, in the visitor's language."},
    "problems": (UNKNOWN_ROOM,),
    "is_hand_made": True,
}
_OVER = {
    400: (NO_JSON, "The link is not one of ours, not complete, or too old."),
    410: (NO_JSON, "The visit has begun elsewhere, or the place is gone."),
    503: (NO_JSON, "Redis is unavailable.", RetryLater),
}


@ENDPOINTS.get(
    "/_waitroom/{room}/claim",
    ANYBODY,
    replies={200: (NO_JSON, "The place or the turn is there to be taken."), **_OVER},
    **_CLAIM,
)
async def show_claim(request: web.Request) -> web.Response:
    """Show the page of a claim link.

    It changes nothing and sets no cookie. Its button does.
    """
    room = room_of(request)
    return _page(request, room, await _look(request, room))


@ENDPOINTS.post(
    "/_waitroom/{room}/claim",
    ANYBODY,
    headers=Site,
    replies={
        200: (NO_JSON, "Another site made the browser ask: nothing was given."),
        303: (NO_BODY, "On to `next`, with the ticket.", Onward),
        **_OVER,
    },
    **_CLAIM,
)
async def take_claim(request: web.Request) -> web.Response:
    """Claim a place or a turn in this browser.

    The response sets the ticket as a cookie. The turn is claimed by the next request to the site.
    """
    room = room_of(request)
    found = await _look(request, room)
    # What another site posts here would put its own visitor's place in the stead of theirs.
    if found.view not in _OPEN or found.ticket is None or is_from_elsewhere(request.headers):
        return _page(request, room, found)
    request.app[METRICS].requests.count(room.name, "claim", "taken")
    headers = {**_HEADERS, "Location": _next(request)}
    headers["Set-Cookie"] = set_cookie(request.headers, room, found.ticket)
    return web.Response(status=303, headers=headers)


class _Found(NamedTuple):
    """What there is to say, the ticket of the link, and for how long a turn is held."""

    view: str
    ticket: Ticket | None = None
    left_s: int | None = None


async def _look(request: web.Request, room: Room) -> _Found:
    ticket = room.tokens.read_claim(request.query.get("token"))
    if ticket is None:
        return _Found("unknown")
    try:
        if room.store.is_away:
            raise StoreUnavailableError("claim: Redis is unavailable")
        found = await room.store.lists.find(ticket.visitor)
    except StoreError as error:
        log.debug("store_away", room=room.name, error=str(error))
        return _Found("away", ticket)
    if found.revoked_ms is not None:
        return _Found("gone", ticket)
    if found.position is not None:
        return _Found("waiting", ticket)
    if found.ends_ms is not None:
        # One that has run out is there until the next script runs.
        left_ms = found.ends_ms - room.clock.now_ms()
        if left_ms <= 0:
            return _Found("gone", ticket)
        if found.started_ms is not None:
            return _Found("begun", ticket)
        return _Found("called", ticket, left_s=math.ceil(left_ms / 1000))
    # After the store was emptied places come back by their tickets, so this one does too.
    is_recovering = room.snapshot is not None and room.snapshot.recovery_stage > 0
    return _Found("waiting" if is_recovering else "gone", ticket)


def _page(request: web.Request, room: Room, found: _Found) -> web.Response:
    request.app[METRICS].requests.count(room.name, "claim", found.view)
    claim_page = request.app[CLAIM_PAGE]
    language = claim_page.languages.choose(request.headers.get("Accept-Language"))
    text = claim_page.render(
        language=language,
        view=found.view,
        following=_next(request),
        site=room.settings.site_name,
        left_s=found.left_s,
    )
    headers = {**_HEADERS, "Content-Language": language}
    if found.view == "away":
        headers["Retry-After"] = str(STORE_RETRY_S)
    return web.Response(
        text=branded(text, room.settings),
        status=_STATUS[found.view],
        content_type="text/html",
        charset="utf-8",
        headers=headers,
    )


def _next(request: web.Request) -> str:
    """`next` is the last parameter and goes to the end, encoded or not."""
    _, found, value = request.rel_url.raw_query_string.partition("next=")
    if value[:3].lower() == "%2f":
        return quote(safe_next(unquote(value)), safe="/?#[]@!$&'()*+,;=:~%")
    return safe_next(value) if found else "/"
