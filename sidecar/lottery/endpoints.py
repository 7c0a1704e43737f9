"""Public endpoints of a pre-queue's draw: its commitment, and later its secret and places."""

from pathlib import Path
from typing import Any

from aiohttp import web

from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.problems import STORE_RETRY_S, ProblemError
from sidecar.http.static_pages import make_page_response
from sidecar.kit.clock import iso
from sidecar.kit.errors import StoreUnavailableError
from sidecar.kit.share import find_share
from sidecar.lottery.publication import REVEAL_AFTER_MS, choose_shown_draw, is_secret_public
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
from sidecar.rooms.openings import RoomEvent, list_drawn_events
from sidecar.rooms.schemas.common import UNKNOWN_ROOM
from sidecar.rooms.service import WaitingRoom, room_of

#: The longest time that a request waits for the digest of the list, in seconds.
_DIGEST_WAIT_S = 1.0
#: Headers that let pages of other sites read the public data, so that they can verify the draw.
_CORS = {"Access-Control-Allow-Origin": "*", "Vary": "Accept"}
_CACHED_CORS = {**_CORS, "Cache-Control": "public, max-age=30"}

ENDPOINTS = Endpoints("visitor", find=room_of, problems=(UNKNOWN_ROOM, NO_DRAW, COMMITMENT_UNKNOWN))
DRAW_PAGE = web.AppKey("draw_page", str)


def load_draw_page(static: Path) -> str:
    """Read the page that verifies a draw, from the package if older static files lack the page."""
    file = static / "draw.html"
    file = file if file.exists() else find_share("static") / "draw.html"
    return file.read_text(encoding="utf-8")


@ENDPOINTS.get(
    "/_waitroom/{room}/draw",
    ANYBODY,
    replies={200: (Draw, "The public data of the draw.")},
    other_media={"text/html": "A page that shows the draw and verifies it."},
)
async def get_draw(request: web.Request, params: DrawParameters) -> web.Response:
    """Get the public data of a draw.

    The commitment is published long before the pre-queue begins. The secret and the list of places
    are published 3 s after the opening."""
    room = room_of(request)
    accept = request.headers.get("Accept", "").lower()
    if "text/html" in accept and "json" not in accept:
        return make_page_response(request.app[DRAW_PAGE], {"Vary": "Accept"})
    draws, event = _find_draw(room, params.event)
    now_ms = room.clock.now_ms()
    draw = Draw(
        room=room.name,
        event=event.name,
        events=[draw_event.name for draw_event in list_drawn_events(room.settings.events)],
        prequeue_from=iso(event.begins_ms),
        opens_at=iso(event.opens_at),
        revealed_at=iso(event.opens_at + REVEAL_AFTER_MS),
        updated_at=iso(now_ms),
        commitment=draws.get_commitment(event),
    )
    if _are_places_public(room, event):
        secret = draws.get_secret(event)  # before the await, so that it matches the commitment
        members = await _find_list_members(room, draws, event)
        draw = draw.model_copy(update={"secret": secret, **members})
    return draw.response(headers=_CORS)


@ENDPOINTS.get(
    "/_waitroom/{room}/draw/places",
    ANYBODY,
    replies={200: (DrawnPlaces, "A page of places, in order.")},
    problems=(NOT_DRAWN_YET, LIST_GONE),
    is_cacheable=True,
)
async def get_drawn_places(request: web.Request, params: PlacesPage) -> web.Response:
    """List all drawn places in order."""
    room = room_of(request)
    draws, event = _find_draw(room, params.event)
    if not _are_places_public(room, event):
        published_at = iso(event.opens_at + REVEAL_AFTER_MS)
        detail = f"The places are published at {published_at}."
        raise ProblemError(NOT_DRAWN_YET, detail=detail, published_at=published_at)
    if _list_began_ms(room) > event.begins_ms:
        raise ProblemError(
            LIST_GONE,
            detail="Another pre-queue has begun since. If you saved the list, you can check it.",
        )
    visitors: list[str] = []
    if _list_began_ms(room) == event.begins_ms:
        if room.store.is_away:
            raise StoreUnavailableError("draw: Redis is unavailable")
        visitors = await draws.store.list_drawn_visitors(
            begins_ms=event.begins_ms, offset=params.after, limit=params.limit
        )
    page = DrawnPlaces(
        room=room.name,
        event=event.name,
        offset=params.after,
        next=params.after + params.limit if visitors and len(visitors) == params.limit else None,
        places=[(visitor, place) for place, visitor in enumerate(visitors, params.after + 1)],
    )
    return page.response(headers=_CACHED_CORS)


def _find_draw(room: WaitingRoom, name: str | None) -> tuple[Draws, RoomEvent]:
    """Return the room's draws and the event with this name. If `name` is None, return the event
    that is shown by default. Raises ProblemError."""
    events = room.settings.events
    if name is None:
        event = choose_shown_draw(events, room.clock.now_ms())
    else:
        event = next((drawn for drawn in list_drawn_events(events) if drawn.name == name), None)
    if event is None or not isinstance(room.draws, Draws):
        missing = "no event with a pre-queue" if name is None else f"no event {name[:40]!r}"
        raise ProblemError(NO_DRAW, detail=f"Room {room.name} has {missing}.")
    if not room.draws.has_agreed_secret(event):
        # Show no commitment yet: the replicas may agree on a different one.
        raise ProblemError(COMMITMENT_UNKNOWN, retry_after=STORE_RETRY_S)
    return room.draws, event


def _are_places_public(room: WaitingRoom, event: RoomEvent) -> bool:
    """Return True if the places may be public now, by the clock of Redis. Before the first snapshot
    that time is unknown, so the places are not public."""
    return room.snapshot is not None and is_secret_public(event, room.clock.now_ms())


async def _find_list_members(room: WaitingRoom, draws: Draws, event: RoomEvent) -> dict[str, Any]:
    """Return the members of the response that describe the list of places."""
    snapshot = room.snapshot
    members: dict[str, Any] = {}
    if snapshot is None:
        return members
    if _list_began_ms(room) <= event.begins_ms:
        members["places_url"] = f"/_waitroom/{room.name}/draw/places?event={event.name}"
    if event.begins_ms < snapshot.born_ms <= snapshot.recovery_ms:
        members["store_emptied_at"] = iso(snapshot.born_ms)
    if snapshot.recovery_stage:  # the list may be incomplete
        return members
    digest = await draws.store.find_digest(
        event.draw_key, begins_ms=event.begins_ms, born_ms=snapshot.born_ms, wait_s=_DIGEST_WAIT_S
    )
    if digest is not None:
        members |= {"count": digest.count, "places_sha256": digest.sha256}
    return members


def _list_began_ms(room: WaitingRoom) -> int:
    """Return the start, in ms, of the pre-queue whose list Redis has, or 0 without a list."""
    return int(room.snapshot.counters.get("drawn_from", 0)) if room.snapshot else 0
