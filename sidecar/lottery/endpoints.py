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

#: For as long as that an answer waits for the list's digest.
_DIGEST_S = 1.0
#: Anybody's page may read what is public, so that not only ours can check it.
_FOR_ALL = {"Access-Control-Allow-Origin": "*", "Vary": "Accept"}
_BRIEFLY = {**_FOR_ALL, "Cache-Control": "public, max-age=30"}

ENDPOINTS = Endpoints("visitor", find=room_of, problems=(UNKNOWN_ROOM, NO_DRAW, COMMITMENT_UNKNOWN))
DRAW_PAGE = web.AppKey("draw_page", str)


def load_page(static: Path) -> str:
    """The page that checks a draw. Static files of an older version have none: ours, then."""
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
    if _wants_page(request):
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
    """The draw that the request is about. Raises ProblemError where there is none."""
    events = room.settings.events
    if name is None:
        event = shown_draw(events, room.clock.now_ms())
    else:
        event = next((one for one in draws_of(events) if one.name == name), None)
    if event is None or not isinstance(room.draws, Draws):
        what = "no event with a pre-queue" if name is None else f"no event {name[:40]!r}"
        raise ProblemError(NO_DRAW, detail=f"Room {room.name} has {what}.")
    if not room.draws.is_agreed(event):
        # One that is published now might have to be taken back.
        raise ProblemError(COMMITMENT_UNKNOWN, retry_after=STORE_RETRY_S)
    return room.draws, event


def _is_public(room: Room, event: RoomEvent) -> bool:
    """By the store's clock, which is known from the first snapshot on."""
    return room.snapshot is not None and is_revealed(event, room.clock.now_ms())


async def _list_of(room: Room, draws: Draws, event: RoomEvent) -> dict[str, Any]:
    """What is known of the list, as members of the document."""
    snapshot = room.snapshot
    members: dict[str, Any] = {}
    if snapshot is None:
        return {}
    if _drawn_from(room) <= event.begins_ms:
        members["places_url"] = f"/_waitroom/{room.name}/draw/places?event={event.name}"
    if event.begins_ms < snapshot.born_ms <= snapshot.recovery_ms:
        members["store_emptied_at"] = iso(snapshot.born_ms)
    if snapshot.recovery_stage:  # of half a list none is published
        return members
    digest = await draws.store.list_digest(
        event.draw_key, begins_ms=event.begins_ms, born_ms=snapshot.born_ms, wait_s=_DIGEST_S
    )
    if digest is None:
        return members
    return {**members, "count": digest.count, "places_sha256": digest.sha256}


def _drawn_from(room: Room) -> int:
    """When the pre-queue began of which the store has the list; 0: it has none."""
    return int(room.snapshot.counters.get("drawn_from", 0)) if room.snapshot else 0


def _wants_page(request: web.Request) -> bool:
    accept = request.headers.get("Accept", "").lower()
    return "text/html" in accept and "json" not in accept


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
