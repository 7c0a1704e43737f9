"""Endpoints that forecast, make or undo changes of settings, and that list operators' actions."""

import json
from collections.abc import Mapping
from typing import Any

import structlog
from aiohttp import web

from sidecar.http.app_keys import TEMPLATES
from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import OPERATORS, VIEWERS, Endpoints
from sidecar.http.problems import ProblemError
from sidecar.kit.clock import iso
from sidecar.kit.errors import InputError
from sidecar.kit.shorten import shorten_values
from sidecar.rooms.endpoints.operator import make_room_state
from sidecar.rooms.event_changes import find_event_change_problems
from sidecar.rooms.hold import compute_hold_after_alert
from sidecar.rooms.messages import set_message_end
from sidecar.rooms.schemas.changes import (
    CHANGED_SINCE,
    UNKNOWN_CHANGE,
    Act,
    ActAddress,
    Alert,
    ChangedRoom,
    ChangeParameters,
    Changes,
    Forecast,
    HoldParameters,
    Outlook,
    RoomLog,
    Undo,
)
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.rooms.service import room_of
from sidecar.rooms.store.scripts import ChangedSinceError, Pace

#: The settings that each action changes, with their new values. None means the configured value.
_ACT_CHANGES: dict[str, dict[str, Any]] = {
    "pause": {"queue_all": True},
    "drain": {"max_waiting": 0, "queue_all": False},
    "resume": {"max_waiting": None, "queue_all": False},
}

ENDPOINTS = Endpoints("administration", find=room_of, unknown=UNKNOWN_ROOM)

_ROOM = "/admin/rooms/{room}"

log = structlog.get_logger()


@ENDPOINTS.patch(_ROOM, OPERATORS, replies={200: "The room."})
async def change_room(request: web.Request, params: ChangeParameters, body: Changes) -> ChangedRoom:
    """Change settings while the room runs.

    The change takes effect on all replicas within two seconds, and survives restarts."""
    return await _change_settings(request, body.model_extra or {}, why=params.why)


@ENDPOINTS.post(_ROOM + "/{act:pause|drain|resume}", OPERATORS, replies={200: "The room."})
async def act_on_room(request: web.Request, params: ActAddress) -> ChangedRoom:
    """Pause, drain or resume a room.

    `pause`: newcomers wait, and nobody is called. `drain`: visitors in the queue are admitted, and
    newcomers may not join it. `resume` ends both. Active visitors stay."""
    file = room_of(request).file_settings
    # None instead of the configured value resets the setting.
    changes = {
        name: None if value == getattr(file, name) else value
        for name, value in _ACT_CHANGES[params.act].items()
    }
    if params.act == "resume" and room_of(request).settings.hold:
        changes["hold"] = None
    if params.clear_message:
        changes["message"] = None
    return await _change_settings(request, changes, why=params.why)


@ENDPOINTS.post(_ROOM + "/hold", OPERATORS, replies={200: "The room."}, is_body_optional=True)
async def hold_room(request: web.Request, params: HoldParameters, body: Alert) -> ChangedRoom:
    """Call nobody for some seconds.

    Then the room resumes gradually: for two minutes, it admits at most half of its cap per minute.
    The body may be a message of Alertmanager's webhook."""
    room = room_of(request)
    snapshot = await room.refresh()
    until_ms, why = snapshot.now_ms + params.seconds * 1000, params.why
    if body.status is None:
        new = {"until": until_ms, "why": why}
        return await _change_settings(request, {"hold": new}, why=why)
    summary = str(why or body.common_annotations.get("summary", ""))
    hold = compute_hold_after_alert(
        room.settings.hold,
        snapshot.now_ms,
        until_ms,
        summary,
        is_resolved=body.status == "resolved",
    )
    if hold is not None:
        return await _change_settings(request, {"hold": hold}, why=hold["why"])
    state = make_room_state(room, snapshot)
    return ChangedRoom.model_construct(**dict(state), change=snapshot.revision)


@ENDPOINTS.post(
    _ROOM + "/undo",
    OPERATORS,
    replies={200: "The room with the previous values of these settings."},
    problems=(UNKNOWN_CHANGE, CHANGED_SINCE),
)
async def undo_change(request: web.Request, _params: RoomAddress, body: Undo) -> ChangedRoom:
    """Undo a change of settings.

    Each setting of the change gets its previous value, which may be the configured one. The request
    is refused if one of these settings was changed again."""
    acts = await room_of(request).store.lists.log()
    act = next((act for act in acts if act.get("revision") == body.revision), None)
    if act is None:
        raise ProblemError(UNKNOWN_CHANGE, detail=f"No change has the revision {body.revision}.")
    before = {name: json.loads(old or "null") for name, (old, _) in act["changes"].items()}
    values_to_undo = {name: after for name, (_, after) in act["changes"].items()}
    try:
        return await _change_settings(request, before, values_to_undo)
    except ChangedSinceError as error:
        raise ProblemError(CHANGED_SINCE, detail=_describe_last_change(str(error), acts)) from None


def _describe_last_change(name: str, acts: list[dict[str, Any]]) -> str:
    last = next((act for act in acts if name in act.get("changes", ())), None)
    return f"{last['by']} changed {name} at {iso(last['at'])}." if last else f"{name} was changed."


async def _change_settings(
    request: web.Request,
    changes: dict[str, Any],
    values_to_undo: Mapping[str, str] | None = None,
    *,
    why: str = "",
) -> ChangedRoom:
    room = room_of(request)
    new_settings = await _apply_changes(request, changes)
    revision = await room.store.configure(
        {name: None if value is None else new_settings[name] for name, value in changes.items()},
        by=find_logged_name(request),
        why=why,
        values_to_undo=values_to_undo,
    )
    is_undo = values_to_undo is not None
    log.info("changed", room=room.name, changes=shorten_values(changes), undoes=is_undo, why=why)
    state = make_room_state(room, await room.refresh())
    return ChangedRoom.model_construct(**dict(state), change=revision)


async def _apply_changes(request: web.Request, changes: dict[str, Any]) -> dict[str, Any]:
    """Return all settings with the changes applied. Raises InputError for a forbidden change."""
    room = room_of(request)
    await room.refresh()
    if "message" in changes:
        changes = {**changes, "message": set_message_end(changes["message"], room.clock.now_ms())}
    file = room.file_settings.model_dump()
    values = {name: file.get(name) if value is None else value for name, value in changes.items()}
    settings, problems = room.settings.with_valid_overrides(values)
    problems += find_event_change_problems(
        room.settings.events, settings.events, room.clock.now_ms()
    )
    if settings.template and "template" in changes:
        problem = request.app[TEMPLATES].problem(settings.template)
        problems += [f"template: {problem}"] if problem else []
    if problems:
        raise InputError(problems)
    return settings.model_dump()


@ENDPOINTS.post(_ROOM + "/forecast", VIEWERS, replies={200: "Both forecasts."})
async def forecast_change(request: web.Request, _params: RoomAddress, body: Changes) -> Forecast:
    """Forecast what a change of settings would do.

    The body is the same as for a change of settings. Nothing is changed."""
    room, changes = room_of(request), body.model_extra or {}
    new_settings = await _apply_changes(request, changes)
    now_ms, waiting, active, now, then = await room.store.forecast(
        {name: new_settings[name] for name in changes}
    )
    outlooks = {"now": _make_outlook(now), "then": _make_outlook(then)}
    return Forecast(room=room.name, at_ms=now_ms, waiting=waiting, active=active, **outlooks)


def _make_outlook(pace: Pace) -> Outlook:
    first, last = (None if ms < 0 else ms // 1000 for ms in (pace.first_ms, pace.last_ms))
    return Outlook(
        cap=pace.cap,
        called_in_a_minute=pace.called_in_a_minute,
        first_called_seconds=first,
        last_called_seconds=last,
    )


@ENDPOINTS.get(_ROOM + "/log", VIEWERS, replies={200: "The actions that Redis still keeps."})
async def get_log(request: web.Request, _params: RoomAddress) -> RoomLog:
    """List operators' actions, latest first."""
    room = room_of(request)
    acts = await room.store.lists.log()
    return RoomLog(room=room.name, log=[Act.from_log(act, room.file_settings) for act in acts])
