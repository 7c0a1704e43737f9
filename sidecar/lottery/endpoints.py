"""The draw of a pre-queue, for all to check: the commitment, then the secret and the places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError, StoreUnavailableError
from sidecar.kit.http.problems import STORE_RETRY_S, problem
from sidecar.kit.http.request_parameters import MAX_OFFSET
from sidecar.kit.http.static_pages import CONTENT_SECURITY_POLICY, find_static
from sidecar.lottery.commitment import REVEAL_AFTER_MS, draws_of, is_revealed, key_of, shown_draw
from sidecar.rooms.endpoints.request_parameters import room_of

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.lottery.service import Draws
    from sidecar.rooms.openings import RoomEvent
    from sidecar.rooms.service import Room

#: Places that one answer tells at most, and where none says how many.
PLACES_LIMIT = 10_000
#: For as long as that an answer waits for the list's digest.
_DIGEST_S = 1.0
#: Anybody's page may read what is public, so that not only ours can check it.
_FOR_ALL = {"Access-Control-Allow-Origin": "*", "Vary": "Accept"}
_NO_STORE = {**_FOR_ALL, "Cache-Control": "no-store"}
_BRIEFLY = {**_FOR_ALL, "Cache-Control": "public, max-age=30"}

DRAW_PAGE = web.AppKey("draw_page", str)


def load_page(static: Path) -> str:
    """The page that checks a draw. Static files of an older version have none: ours, then."""
    file = static / "draw.html"
    file = file if file.exists() else find_static() / "draw.html"
    return file.read_text(encoding="utf-8")


async def show(request: web.Request) -> web.Response:
    """What is public of a draw, or the page that shows it and checks it."""
    room = room_of(request)
    if _wants_page(request):
        return _page(request)
    found = _find(request, room)
    if isinstance(found, web.Response):
        return found
    draws, event = found
    now_ms = room.clock.now_ms()
    document: dict[str, Any] = {
        "room": room.name,
        "event": event.name,
        "events": [one.name for one in draws_of(room.settings.events)],
        "prequeue_from": iso(event.begins_ms),
        "opens_at": iso(event.opens_at),
        "revealed_at": iso(event.opens_at + REVEAL_AFTER_MS),
        "updated_at": iso(now_ms),
        "commitment": draws.commitment(event),
        "secret": None,
        "count": None,
        "places_sha256": None,
        "places_url": None,
        "store_emptied_at": None,
    }
    if _is_public(room, event):
        document["secret"] = draws.secret(event)
        document |= await _list_of(room, event)
    return web.json_response(document, headers=_NO_STORE)


async def places(request: web.Request) -> web.Response:
    """Visitors and their places, in order of place, from a place on."""
    room = room_of(request)
    found = _find(request, room)
    if isinstance(found, web.Response):
        return found
    _, event = found
    offset = _number(request, "offset", default=0, most=MAX_OFFSET)
    limit = _number(request, "limit", default=PLACES_LIMIT, most=PLACES_LIMIT)
    if not _is_public(room, event):
        at = iso(event.opens_at + REVEAL_AFTER_MS)
        return problem(
            404,
            "Nothing is drawn yet",
            detail=f"The places are published at {at}.",
            published_at=at,
        )
    if _drawn_from(room) > event.begins_ms:
        return problem(
            404,
            "The list is no longer kept",
            detail="Since then another pre-queue has begun. Whoever saved the list can check it.",
        )
    visitors: list[str] = []
    if _drawn_from(room) == event.begins_ms:
        if room.store.is_away:
            raise StoreUnavailableError("draw: Redis is unavailable")
        visitors = await room.store.draws.drawn(
            begins_ms=event.begins_ms, offset=offset, limit=limit
        )
    document = {
        "room": room.name,
        "event": event.name,
        "offset": offset,
        "next": offset + limit if visitors and len(visitors) == limit else None,
        "places": [(visitor, at) for at, visitor in enumerate(visitors, offset + 1)],
    }
    return web.json_response(document, headers=_BRIEFLY)


def _find(request: web.Request, room: Room) -> tuple[Draws, RoomEvent] | web.Response:
    """The draw that the request is about, or what to answer where there is none."""
    events, name = room.settings.events, request.query.get("event")
    if name is None:
        event = shown_draw(events, room.clock.now_ms())
    else:
        event = next((one for one in draws_of(events) if one.name == name), None)
    if event is None or room.draws is None:
        what = "no event with a pre-queue" if name is None else f"no such event: {name[:40]!r}"
        return problem(404, "No draw", detail=f"Room {room.name} has {what}.")
    if not room.draws.is_agreed(event):
        # One that is told now might have to be taken back.
        return problem(503, "The commitment is not known yet", retry_after=STORE_RETRY_S)
    return room.draws, event


def _is_public(room: Room, event: RoomEvent) -> bool:
    """By the store's clock, which is known from the first snapshot on."""
    return room.snapshot is not None and is_revealed(event, room.clock.now_ms())


async def _list_of(room: Room, event: RoomEvent) -> dict[str, Any]:
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
    digest = await room.store.draws.list_digest(
        key_of(event), begins_ms=event.begins_ms, born_ms=snapshot.born_ms, wait_s=_DIGEST_S
    )
    if digest is None:
        return members
    return {**members, "count": digest.count, "places_sha256": digest.sha256}


def _drawn_from(room: Room) -> int:
    """When the pre-queue began of which the store has the list; 0: it has none."""
    return int(room.snapshot.counters.get("drawn_from", 0)) if room.snapshot else 0


def _number(request: web.Request, name: str, *, default: int, most: int) -> int:
    text = request.query.get(name, str(default))
    # Not more digits than Python would read.
    if text.isascii() and text.isdigit() and len(text) <= 100 and int(text) <= most:
        return int(text)
    raise ConfigError([f"{name}: a whole number from 0 to {most} (got {text[:40]!r})"])


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
