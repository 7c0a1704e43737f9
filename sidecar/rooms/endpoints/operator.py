"""Endpoints that show a room and its statistics, reset it, preview events, and issue grants."""

import structlog
from aiohttp import web

from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import ADMINS, OPERATORS, VIEWERS, Endpoints
from sidecar.kit.clock import iso
from sidecar.rooms.openings_preview import preview, read_time
from sidecar.rooms.schemas.common import UNKNOWN_CLASS, UNKNOWN_ROOM, RoomAddress, check_class
from sidecar.rooms.schemas.rooms import (
    EventsPreview,
    GrantRequest,
    IssuedGrants,
    PreviewParameters,
    Removed,
    RoomState,
    RoomStates,
)
from sidecar.rooms.schemas.series import Series, SeriesEvent, SeriesParameters
from sidecar.rooms.service import ROOMS, WaitingRoom, room_of
from sidecar.rooms.statistics import (
    HOUR_MS,
    compute_steps,
    describe_site,
    describe_sub_queues,
    name_state,
)
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.grants import Grant, compute_expiry_s, new_grant_id

#: The fields of the hash `stats` that are not counters.
_NON_COUNTER_FIELDS = {
    *("last_order", "tokens", "tokens_at", "measured_at", "ends", "held_ms", "drops", "waited_ms"),
    *("born", "recovery", "back", "near", "address_at", "drawn_from", "shown_lines", "last_end"),
    *("keys", "keys_at", "known", "lost_since", "guessed"),
}

ENDPOINTS = Endpoints("administration", find=room_of, unknown=UNKNOWN_ROOM)

_ROOM = "/admin/rooms/{room}"

log = structlog.get_logger()


@ENDPOINTS.get("/admin/rooms", VIEWERS, replies={200: "The rooms."})
async def list_rooms(request: web.Request) -> RoomStates:
    """List all rooms with their figures and settings."""
    return RoomStates(
        rooms=[make_room_state(room, await room.refresh()) for room in request.app[ROOMS]]
    )


@ENDPOINTS.get(_ROOM, VIEWERS, replies={200: "The room."})
async def get_room(request: web.Request, _params: RoomAddress) -> RoomState:
    """Get a room with its figures and settings."""
    room = room_of(request)
    return make_room_state(room, await room.refresh())


@ENDPOINTS.post(_ROOM + "/reset", ADMINS, replies={200: "The queue is empty."})
async def reset_room(request: web.Request, params: RoomAddress) -> Removed:
    """Reset the queue: all waiting visitors lose their places.

    Active visitors stay."""
    removed = await room_of(request).store.reset(by=find_logged_name(request))
    log.info("reset", room=params.room, removed=removed)
    return Removed(room=params.room, removed=removed)


@ENDPOINTS.post(_ROOM + "/reset-learned", OPERATORS, replies={200: "The room."})
async def reset_learned(request: web.Request, _params: RoomAddress) -> RoomState:
    """Forget what an adaptive room has learned about its site.

    The ceiling starts at `min` again. Active visitors stay."""
    room = room_of(request)
    await room.store.forget_learned(by=find_logged_name(request))
    log.info("reset_learned", room=room.name)
    return make_room_state(room, await room.refresh())


@ENDPOINTS.get(_ROOM + "/events", VIEWERS, replies={200: "The events."})
async def preview_events(request: web.Request, params: PreviewParameters) -> EventsPreview:
    """Preview a room's events."""
    room = room_of(request)
    snapshot = await room.refresh()
    # The settings of the room itself, with no event applied.
    settings, _ = room.file_settings.with_valid_overrides(snapshot.overrides)
    at_ms = None if params.at is None else read_time(params.at, settings)
    document = preview(settings, now_ms=room.clock.now_ms(), at_ms=at_ms)
    return EventsPreview(room=room.name, **document)


@ENDPOINTS.post(
    _ROOM + "/grants",
    OPERATORS,
    replies={200: "The grants. Add waitroom_grant=… to the query of a page's URL."},
    problems=(UNKNOWN_CLASS,),
)
async def issue_grants(
    request: web.Request, _params: RoomAddress, body: GrantRequest
) -> IssuedGrants:
    """Issue grants: signed strings for links, which give visitors a class."""
    room = room_of(request)
    check_class(room, body.class_)
    expires_s = compute_expiry_s(body.expires_in, room.clock.now_ms())
    ids = [new_grant_id() if body.once else "" for _ in range(body.count)]
    grants = [room.grants.sign(Grant(body.class_, expires_s, id_)) for id_ in ids]
    issued = IssuedGrants(
        room=room.name, class_=body.class_, expires_at=iso(expires_s * 1000), grants=grants
    )
    fields = issued.model_dump(exclude={"grants", "class_"})
    log.info(
        "granted", **fields, class_name=body.class_, count=body.count, by=find_logged_name(request)
    )
    return issued


@ENDPOINTS.get(_ROOM + "/series", VIEWERS, replies={200: "The steps."})
async def get_series(request: web.Request, params: SeriesParameters) -> Series:
    """Get a room's figures over time, for at most the last 24 hours.

    The counts of all steps add up to the growth of the room's counters. Redis keeps one sample a
    minute for two hours, and one every five minutes for 24 hours."""
    room = room_of(request)
    until_ms = room.clock.now_ms() if params.until is None else params.until
    from_ms = until_ms - HOUR_MS if params.from_ is None else params.from_
    samples = await room.store.lists.minutes()
    return Series(
        room=room.name,
        steps=compute_steps(samples, from_ms, until_ms, params.step * 1000),
        events=[SeriesEvent.model_validate(event) for event in room.settings.events],
    )


def make_room_state(room: WaitingRoom, snapshot: Snapshot) -> RoomState:
    """Return the response model that describes a room, with the figures of a snapshot."""
    schedule = room.settings.schedule_at(snapshot.now_ms)
    state = {
        "room": room.name,
        "state": name_state(room.settings, snapshot),
        "mode": room.settings.mode,
        "phase": snapshot.phase,
        "site": describe_site(room.settings.adaptive, snapshot),
        "event": schedule.event and schedule.event.name,
        "coming": schedule.next_event and schedule.next_event.name,
        "waiting": snapshot.waiting,
        "active": snapshot.active,
        "provisional": snapshot.provisional,
        "wait_seconds": None if snapshot.wait_ms is None else snapshot.wait_ms // 1000,
        "lines": describe_sub_queues(room.settings, snapshot),
        "revision": snapshot.revision,
        "replicas": snapshot.replicas,
        "recovery_stage": snapshot.recovery_stage,
        "recovers_until": iso(snapshot.recovers_until_ms) if snapshot.recovery_stage == 2 else None,
        "settings": room.settings,
        "changed": snapshot.overrides,
        "configured": room.file_settings.model_dump(mode="json", include=set(snapshot.overrides)),
        "counters": {
            name: int(value)
            for name, value in snapshot.counters.items()
            if name not in _NON_COUNTER_FIELDS and not name.startswith(("wait_", "credit_"))
        },
    }
    return RoomState.model_validate(state)
