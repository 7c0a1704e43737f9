"""Previews a room's events for operators: when each phase begins, which settings are then in force,
and which settings look like mistakes."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from sidecar.kit.clock import iso
from sidecar.kit.errors import InputError
from sidecar.kit.moments import LATEST_MS, read_moment
from sidecar.rooms.openings import RoomEvent, Schedule, apply_event_settings, list_drawn_events
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Phase

#: Operators get a warning about a pre-queue that is shorter than this.
SHORT_PREQUEUE_MS = 60_000
#: The settings of an event that are times, from the earliest to the latest.
TIME_SETTINGS = ("prequeue_from", "opens_at", "closes_at")


def read_time(text: str, settings: RoomSettings) -> int:
    """Parse a time such as "2026-12-01 10:05", and return it in ms since 1970. A time without a UTC
    offset is in the events' time zone. Raises InputError."""
    zones = _list_time_zones(settings)
    try:
        times_ms = {read_moment(text, zone) for zone in zones}
    except ValueError as error:
        raise InputError([f"at: {error}"]) from None
    if len(times_ms) > 1:
        names = ", ".join(zones)
        raise InputError([f"at: give the offset too, because the events' time zones are {names}"])
    return min(max(0, *times_ms), LATEST_MS)


def preview(settings: RoomSettings, *, now_ms: int, at_ms: int | None = None) -> dict[str, Any]:
    """Return the members of EventsPreview, except `room`, for the time `at_ms` (None means now).
    `settings` are the room's own settings, with no event applied."""
    at_ms = now_ms if at_ms is None else at_ms
    zones, schedule = _list_time_zones(settings), settings.schedule_at(at_ms)
    return {
        "at": iso(at_ms),
        "local": _format_local(at_ms, zones[0] if len(zones) == 1 else "UTC"),
        "phase": schedule.phase,
        "event": schedule.event and schedule.event.name,
        "coming": schedule.next_event and schedule.next_event.name,
        "mode": settings.mode,
        **_collect_settings(settings, schedule),
        "events": [
            _describe_event(settings, event, now_ms, at_ms) for event in _sort_events(settings)
        ],
        "warnings": find_warnings(settings, now_ms),
    }


def _describe_event(
    settings: RoomSettings, event: RoomEvent, now_ms: int, at_ms: int
) -> dict[str, Any]:
    """Return the members of EventPreview, with the event's state at `at_ms`."""
    times = [(step, getattr(event, step)) for step in TIME_SETTINGS]
    return {
        "name": event.name,
        "timezone": event.timezone,
        "state": _name_event_state(settings, event, at_ms),
        "before": settings.schedule_at(event.begins_ms - 1).phase,
        "steps": [
            {
                "step": step,
                "phase": settings.schedule_at(ms).phase,
                "at": iso(ms),
                "local": _format_local(ms, event.timezone),
                "in_seconds": (ms - now_ms) // 1000,
            }
            for step, ms in times
            if ms is not None
        ],
        **_collect_settings(settings, Schedule(Phase.OPEN, event)),
    }


def _name_event_state(settings: RoomSettings, event: RoomEvent, at_ms: int) -> str:
    """Return an event's state at a time: coming, prequeue, open or over."""
    schedule = settings.schedule_at(at_ms)
    if event.begins_ms > at_ms:
        return "coming"
    return schedule.phase if schedule.event == event else "over"


def _collect_settings(settings: RoomSettings, schedule: Schedule) -> dict[str, Any]:
    names = {"total_active_users", "new_users_per_minute", "message"}
    return apply_event_settings(settings, schedule).model_dump(include=names)


def _sort_events(settings: RoomSettings) -> list[RoomEvent]:
    return sorted(settings.events, key=lambda event: event.begins_ms)


def _list_time_zones(settings: RoomSettings) -> list[str]:
    return sorted({event.timezone for event in settings.events}) or ["UTC"]


def _format_local(ms: int, zone: str) -> str:
    return datetime.fromtimestamp(ms / 1000, ZoneInfo(zone)).isoformat(timespec="milliseconds")


def find_warnings(settings: RoomSettings, now_ms: int) -> list[str]:
    """Return one line for each setting that is allowed but looks like a mistake. The line begins
    with the name of the event or setting."""
    events = _sort_events(settings)
    states = [(event, _name_event_state(settings, event, now_ms)) for event in events]
    remaining_events = [event for event, state in states if state != "over"]
    lines = [f"{event.name}: is over" for event, state in states if state == "over"]
    schedule = settings.schedule_at(now_ms)
    if schedule.phase is Phase.CLOSED and schedule.next_event is None:
        lines.append("events: none is to come, so the room stays closed")
    for event in remaining_events:
        if event.opens_at - event.begins_ms in range(1, SHORT_PREQUEUE_MS):
            lines.append(f"{event.name}: its pre-queue is shorter than a minute")
        if _may_outlast_prequeue(settings, event):
            lines.append(
                f"{event.name}: the room is open before its pre-queue, and who is inside then "
                "stays inside as long as they click: set session_max_duration, or close the room "
                "in between"
            )
        if _collect_settings(settings, Schedule(Phase.OPEN, event))["total_active_users"] == 0:
            lines.append(f"{event.name}: total_active_users is 0, so nobody is let in")
    return lines + (_find_room_warnings(settings, remaining_events) if remaining_events else [])


def _may_outlast_prequeue(settings: RoomSettings, event: RoomEvent) -> bool:
    """Return True if a session that begins before the pre-queue can last until the opening."""
    if event.prequeue_from is None:
        return False
    is_fixed = settings.disable_session_renewal
    max_session_s = settings.session_duration if is_fixed else settings.session_max_duration
    is_open_before = settings.schedule_at(event.begins_ms - 1).phase is Phase.OPEN
    return is_open_before and (
        max_session_s is None or max_session_s * 1000 > event.opens_at - event.begins_ms
    )


def _find_room_warnings(settings: RoomSettings, events: list[RoomEvent]) -> list[str]:
    """Return warnings about settings of the room with which an event has no effect. Operators may
    have meant such a setting only for the time before the event."""
    lines = []
    if settings.suspended:
        lines.append("suspended: everybody passes, whatever the events say")
    if settings.queueing_method == "passthrough":
        lines.append("queueing_method: passthrough lets everybody in, whatever the events say")
    if settings.queueing_method == "reject" and list_drawn_events(events):
        lines.append(
            "queueing_method: reject lets nobody wait: a pre-queue stays empty, and after the "
            "opening everybody is refused while the room is full"
        )
    if settings.queue_all:
        lines.append("queue_all: nobody is let in, also while an event is open")
    if settings.max_waiting == 0:
        lines.append("max_waiting: it is 0, so nobody gets a place, also in a pre-queue")
    if settings.rollout_percent < 100:
        lines.append(
            f"rollout_percent: {100 - settings.rollout_percent:g} % of visitors pass, whatever "
            "the events say"
        )
    return lines
