"""Claim links, by which another browser takes over a visitor's place in the queue or claims a call.

A webhook sends the link to the site, which may send it on to its visitor.

Opening the link changes nothing and sets no cookie, because programs open links in mail before
people do. The page's button sets the ticket as a cookie. Then, if the visitor has been called, the
verdict about the next request claims the call."""

import html
import math
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import structlog
from aiohttp import web

from sidecar.gate.cookies import format_cookie
from sidecar.gate.page.branding import apply_branding
from sidecar.gate.page.render import Page
from sidecar.gate.page.responses import NO_STORE
from sidecar.gate.return_address import read_next_of_link
from sidecar.gate.schemas import ClaimParameters, RedirectHeaders, RetryHeaders, SiteHeader
from sidecar.gate.visitor_request import VisitorRequest
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY, NO_JSON
from sidecar.http.problems import STORE_RETRY_S
from sidecar.http.static_pages import make_page_response
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.kit.share import find_share
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.service import WaitingRoom, room_of
from sidecar.visitors.model import Ticket

#: The HTTP status of the page in each view.
_STATUS = {"called": 200, "waiting": 200, "begun": 410, "gone": 410, "unknown": 400, "away": 503}
#: The views whose page has the button to take over the place or the call.
_VIEWS_WITH_BUTTON = {"called", "waiting"}
#: The URL is a secret.
_NO_REFERRER = {"Referrer-Policy": "no-referrer"}

log = structlog.get_logger()


class ClaimPage:
    """The page of claim links. It has the languages and the site's name of the waiting page `page`.
    If an older static folder lacks claim.html, the package's file is used."""

    def __init__(self, static: Path, page: Page) -> None:
        file = static / "claim.html"
        file = file if file.exists() else find_share("static") / "claim.html"
        self._template = Template(file.read_text(encoding="utf-8"))
        self.languages = page.languages
        self._site = page.site_name

    def render(
        self,
        *,
        language: str,
        view: str,
        next_url: str,
        site: str | None = None,
        left_s: int | None = None,
    ) -> str:
        """Return the page. `left_s` is how long the call is still held, or None without a call."""
        texts = self.languages.texts(language)
        values = {
            "lang": language,
            "dir": self.languages.direction(language),
            "site": site or self._site,
            "heading": texts[f"claim_{view}"],
            "intro": texts[f"claim_{view}_intro"],
            "go": texts["claim_go"],
            "back": texts["claim_back"],
            "next": next_url,
        }
        escaped = {name: html.escape(value) for name, value in values.items()}
        is_open = view in _VIEWS_WITH_BUTTON
        hidden = {"off": "" if is_open else "hidden", "on": "hidden" if is_open else ""}
        left = ""
        if left_s is not None:
            digits = f'<b data-seconds="{left_s}">{left_s // 60}:{left_s % 60:02}</b>'
            text = html.escape(texts["claim_left"]).replace("{t}", digits)
            left = f'<p id="held" role="timer">{text}</p>'
        return self._template.safe_substitute(escaped | hidden, left=left)


CLAIM_PAGE = web.AppKey("claim_page", ClaimPage)


ENDPOINTS = Endpoints("visitor")
_CLAIM: dict[str, Any] = {
    "parameters": ClaimParameters,
    "other_media": {"text/html": "A page with this message, in the visitor's language."},
    "problems": (UNKNOWN_ROOM,),
    "bypasses_models": True,
}
_NOT_OPEN = {
    400: (NO_JSON, "The link is forged, incomplete or too old."),
    410: (NO_JSON, "The session has begun in another browser, or the place is gone."),
    503: (NO_JSON, "Redis is unavailable.", RetryHeaders),
}


@ENDPOINTS.get(
    "/_waitroom/{room}/claim",
    ANYBODY,
    replies={200: (NO_JSON, "The place or the call can be taken over."), **_NOT_OPEN},
    **_CLAIM,
)
async def show_claim(request: web.Request) -> web.Response:
    """Show the page of a claim link.

    This request changes nothing and sets no cookie. The button on the page sends the POST request.
    """
    room = room_of(request)
    return _make_page_response(request, room, await _read_link(request, room))


@ENDPOINTS.post(
    "/_waitroom/{room}/claim",
    ANYBODY,
    headers=SiteHeader,
    replies={
        200: (NO_JSON, "Another site caused the request, so no ticket was given."),
        303: (NO_BODY, "A redirect to `next`, with the ticket.", RedirectHeaders),
        **_NOT_OPEN,
    },
    **_CLAIM,
)
async def take_claim(request: web.Request) -> web.Response:
    """Take over a place or a call in this browser.

    The response sets the ticket as a cookie. The next request to the site claims the call."""
    room = room_of(request)
    link = await _read_link(request, room)
    # A POST caused by another site must not replace the place that this browser has.
    is_cross_site = VisitorRequest(request.headers, request.method).is_cross_site
    if link.view not in _VIEWS_WITH_BUTTON or link.ticket is None or is_cross_site:
        return _make_page_response(request, room, link)
    request.app[METRICS].requests.count(room.name, "claim", "taken")
    headers = {**NO_STORE, **_NO_REFERRER, "Location": read_next_of_link(request)}
    headers["Set-Cookie"] = format_cookie(request.headers, room, link.ticket)
    return web.Response(status=303, headers=headers)


class _Link(NamedTuple):
    """A claim link: the view of its page, its ticket, and how many seconds a call is still held."""

    view: str
    ticket: Ticket | None = None
    left_s: int | None = None


async def _read_link(request: web.Request, room: WaitingRoom) -> _Link:
    """Return the claim link in a request. Its view depends on the visitor's place or session."""
    ticket = room.tokens.read_claim(request.query.get("token"))
    if ticket is None:
        return _Link("unknown")
    try:
        if room.store.is_away:
            raise StoreUnavailableError("claim: Redis is unavailable")
        visitor = await room.store.lists.find(ticket.visitor)
    except StoreError as error:
        log.debug("store_away", room=room.name, error=str(error))
        return _Link("away", ticket)
    if visitor.revoked_ms is not None:
        return _Link("gone", ticket)
    if visitor.position is not None:
        return _Link("waiting", ticket)
    if visitor.ends_ms is not None:
        # Redis drops an expired call only when the next script runs.
        left_ms = visitor.ends_ms - room.clock.now_ms()
        if left_ms <= 0:
            return _Link("gone", ticket)
        if visitor.started_ms is not None:
            return _Link("begun", ticket)
        return _Link("called", ticket, left_s=math.ceil(left_ms / 1000))
    # After Redis lost its data, tickets restore their places, so this place can be restored too.
    is_recovering = room.snapshot is not None and room.snapshot.recovery_stage > 0
    return _Link("waiting" if is_recovering else "gone", ticket)


def _make_page_response(request: web.Request, room: WaitingRoom, link: _Link) -> web.Response:
    request.app[METRICS].requests.count(room.name, "claim", link.view)
    claim_page = request.app[CLAIM_PAGE]
    language = claim_page.languages.choose(request.headers.get("Accept-Language"))
    text = claim_page.render(
        language=language,
        view=link.view,
        next_url=read_next_of_link(request),
        site=room.settings.site_name,
        left_s=link.left_s,
    )
    headers = {**_NO_REFERRER, "Content-Language": language}
    if link.view == "away":
        headers["Retry-After"] = str(STORE_RETRY_S)
    text = apply_branding(text, room.settings)
    return make_page_response(text, headers, status=_STATUS[link.view])
