"""The draw of a pre-queue, for all to check: the commitment, then the secret and the places."""

from pathlib import Path
from typing import Any

from aiohttp import web

from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.problems import STORE_RETRY_S, ProblemError
from sidecar.http.static_pages import CONTENT_SECURITY_POLICY
from sidecar.kit.clock import iso
from sidecar.kit.errors import StoreUnavailableError
from sidecar.kit.share import find_share
from sidecar.lottery.commitment import REVEAL_AFTER_MS, is_revealed, shown_draw
from sidecar.lottery.schemas import (
    COMMITMENT_UNKNOWN,
    LIST_GONE,
    NO_DRAW,
    NOT_DRAWN_YET,
    Draw,
    DrawnPlaces,
    DrawParameters,
    PlacesPage,
)
from sidecar.lottery.service import Draws
from sidecar.rooms.app_keys import room_of
from sidecar.rooms.openings import RoomEvent, draws_of
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.service import Room

#: How long a response waits for the list's digest, seconds.
_DIGEST_S = 1.0
#: Pages of other sites may read the public data, to check it themselves.
_FOR_ALL = {"Access-Control-Allow-Origin": "*", "Vary": "Accept"}
_BRIEFLY = {**_FOR_ALL, "Cache-Control": "public, max-age=30"}

ENDPOINTS = Endpoints("visitor", find=room_of, problems=(UNKNOWN_ROOM, NO_DRAW, COMMITMENT_UNKNOWN))
DRAW_PAGE = web.AppKey("draw_page", str)


def load_page(static: Path) -> str:
    """Read the page that checks a draw; this version's own, if older static files have none."""
    file = static / "draw.html"
    file = file if file.exists() else find_share("static") / "draw.html"
    return file.read_text(encoding="utf-8")


@ENDPOINTS.get(
    "/_waitroom/{room}/draw",
    ANYBODY,
    replies={200: (Draw, "What is public of the draw.")},
    other_media={"text/html": "A page that shows the draw and checks it."},
)
async def get_draw(request: web.Request, at: DrawParameters) -> web.Response:
    """Get the public data of a draw.

    The commitment is there long before the pre-queue begins. The secret and the list of places
    follow 3 s after the opening.
    """
    room = room_of(request)
    accept = request.headers.get("Accept", "").lower()
    if "text/html" in accept and "json" not in accept:
        return _page(request)
    draws, event = _find(room, at.event)
    now_ms = room.clock.now_ms()
    draw = Draw(
        room=room.name,
        event=event.name,
        events=[one.name for one in draws_of(room.settings.events)],
        prequeue_from=iso(event.begins_ms),
        opens_at=iso(event.opens_at),
        revealed_at=iso(event.opens_at + REVEAL_AFTER_MS),
        updated_at=iso(now_ms),
        commitment=draws.commitment(event),
    )
    if _is_public(room, event):
        members = {"secret": draws.secret(event), **await _list_of(room, draws, event)}
        draw = draw.model_copy(update=members)
    return draw.response(headers=_FOR_ALL)


@ENDPOINTS.get(
    "/_waitroom/{room}/draw/places",
    ANYBODY,
    replies={200: (DrawnPlaces, "Places, in their order.")},
    problems=(NOT_DRAWN_YET, LIST_GONE),
    is_cacheable=True,
)
async def get_drawn_places(request: web.Request, at: PlacesPage) -> web.Response:
    """List all drawn places, in their order."""
    room = room_of(request)
    draws, event = _find(room, at.event)
    if not _is_public(room, event):
        published_at = iso(event.opens_at + REVEAL_AFTER_MS)
        detail = f"The places are published at {published_at}."
        raise ProblemError(NOT_DRAWN_YET, detail=detail, published_at=published_at)
    if _drawn_from(room) > event.begins_ms:
        raise ProblemError(
            LIST_GONE,
            detail="Another pre-queue has begun since. If you saved the list, you can check it.",
        )
    visitors: list[str] = []
    if _drawn_from(room) == event.begins_ms:
        if room.store.is_away:
            raise StoreUnavailableError("draw: Redis is unavailable")
        visitors = await draws.store.drawn(
            begins_ms=event.begins_ms, offset=at.after, limit=at.limit
        )
    page = DrawnPlaces(
        room=room.name,
        event=event.name,
        offset=at.after,
        next=at.after + at.limit if visitors and len(visitors) == at.limit else None,
        places=[(visitor, place) for place, visitor in enumerate(visitors, at.after + 1)],
    )
    return page.response(headers=_BRIEFLY)


def _find(room: Room, name: str | None) -> tuple[Draws, RoomEvent]:
    """Find the draw of a request. Raises ProblemError if there is none."""
    events = room.settings.events
    if name is None:
        event = shown_draw(events, room.clock.now_ms())
    else:
        event = next((one for one in draws_of(events) if one.name == name), None)
    if event is None or not isinstance(room.draws, Draws):
        what = "no event with a pre-queue" if name is None else f"no event {name[:40]!r}"
        raise ProblemError(NO_DRAW, detail=f"Room {room.name} has {what}.")
    if not room.draws.is_agreed(event):
        # A commitment published now might have to be taken back.
        raise ProblemError(COMMITMENT_UNKNOWN, retry_after=STORE_RETRY_S)
    return room.draws, event


def _is_public(room: Room, event: RoomEvent) -> bool:
    """Return whether the places are public, by Redis' clock (known from the first snapshot on)."""
    return room.snapshot is not None and is_revealed(event, room.clock.now_ms())


async def _list_of(room: Room, draws: Draws, event: RoomEvent) -> dict[str, Any]:
    """Return the members of the document that are about the list of places."""
    snapshot = room.snapshot
    members: dict[str, Any] = {}
    if snapshot is None:
        return members
    if _drawn_from(room) <= event.begins_ms:
        members["places_url"] = f"/_waitroom/{room.name}/draw/places?event={event.name}"
    if event.begins_ms < snapshot.born_ms <= snapshot.recovery_ms:
        members["store_emptied_at"] = iso(snapshot.born_ms)
    if snapshot.recovery_stage:  # the list may be incomplete
        return members
    digest = await draws.store.list_digest(
        event.draw_key, begins_ms=event.begins_ms, born_ms=snapshot.born_ms, wait_s=_DIGEST_S
    )
    if digest is not None:
        members |= {"count": digest.count, "places_sha256": digest.sha256}
    return members


def _drawn_from(room: Room) -> int:
    """Return when the pre-queue began whose list is in Redis; 0: none is."""
    return int(room.snapshot.counters.get("drawn_from", 0)) if room.snapshot else 0


def _page(request: web.Request) -> web.Response:
    return web.Response(
        text=request.app[DRAW_PAGE],
        content_type="text/html",
        charset="utf-8",
        headers={
            "Cache-Control": "no-store",
            "Vary": "Accept",
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Referrer-Policy": "same-origin",
        },
    )
