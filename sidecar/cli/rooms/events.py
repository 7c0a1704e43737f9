"""Formats the output of `waitroom rooms events`: what a room's events will do, and when."""

import itertools
from datetime import datetime
from typing import Any

from sidecar.cli.config import Settings

_PHASES = {"closed": "closed", "prequeue": "in the pre-queue", "open": "open"}
_STATES = {**_PHASES, "coming": "to come", "over": "over"}
_STEP_LABELS = {"prequeue_from": "pre-queue from", "opens_at": "opens", "closes_at": "closes"}
_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def format_summary(settings: Settings, now_ms: int) -> list[str]:
    """Format a line for each event and each warning of each room, for `check-config`."""
    from sidecar.rooms.openings_preview import preview  # noqa: PLC0415

    lines = []
    for name, room in sorted(settings.rooms.items()):
        if room.events:
            document = preview(room, now_ms=now_ms)
            lines += [f"{name}: {_format_line(event)}" for event in document["events"]]
            lines += [f"{name}: warning: {warning}" for warning in document["warnings"]]
    return lines


def _format_line(event: dict[str, Any]) -> str:
    steps = [f"{_get_step_label(step)} {_format_time(step['local'])}" for step in event["steps"]]
    opens = next(step for step in event["steps"] if step["step"] == "opens_at")
    return (
        f"{event['name']}: {', '.join(steps)} ({event['timezone']}); "
        f"opens {_format_relative_time(opens['in_seconds'])}"
    )


def format_document(document: dict[str, Any]) -> str:
    """Format the API's document about a room's events as text."""
    event = f", {document['event']}" if document["event"] else ""
    coming = f"; next is {document['coming']}" if document["coming"] else ""
    mode = "" if document["mode"] == "running" else f" (the room is {document['mode']})"
    lines = [
        f"{document['room']} at {_format_times(document, ', ')}",
        f"  {_PHASES[document['phase']]}{event}{coming}{mode}",
        f"  {_format_effective_settings(document)}",
    ]
    for event, next_event in itertools.zip_longest(document["events"], document["events"][1:]):
        lines += ["", *_format_event(event, next_event)]
    lines += [] if document["events"] else ["", "It has no events."]
    lines += [""] if document["warnings"] else []
    return "\n".join(lines + [f"warning: {warning}" for warning in document["warnings"]])


def _format_event(event: dict[str, Any], next_event: dict[str, Any] | None) -> list[str]:
    steps = event["steps"]
    labels = [f"{event['before']} until", *map(_get_step_label, steps)]
    lines = [f"{event['name']} ({event['timezone']}): {_STATES[event['state']]}"]
    lines += [
        f"  {label:<15} {_format_times(step, '   ')}   {_format_relative_time(step['in_seconds'])}"
        for label, step in zip(labels, [steps[0], *steps], strict=True)
    ]
    if steps[-1]["step"] == "opens_at":
        end = f" until {next_event['name']} begins" if next_event else ""
        lines.append(f"  stays open{end}")
    return [*lines, f"  while it is open: {_format_effective_settings(event)}"]


def _get_step_label(step: dict[str, Any]) -> str:
    """Return the label of an event's step. If the room is open after the step `closes_at`, the step
    ends the event but does not close the room."""
    name = step["step"]
    return "ends" if name == "closes_at" and step["phase"] == "open" else _STEP_LABELS[name]


def _format_effective_settings(document: dict[str, Any]) -> str:
    from sidecar.rooms.messages import get_text  # noqa: PLC0415 - imports pydantic

    rate, message = document["new_users_per_minute"], get_text(document["message"])
    return ", ".join(
        [
            f"{document['total_active_users']:,} inside at most",
            "as fast as slots come free" if rate is None else f"{rate:,} a minute",
            f"message: {message}" if message else "no message",
        ]
    )


def _format_times(document: dict[str, Any], separator: str) -> str:
    """Format a time in the events' time zone, and in UTC if that differs."""
    return separator.join(dict.fromkeys(map(_format_time, (document["local"], document["at"]))))


def _format_time(time: str) -> str:
    """Format an ISO time as "Tue 2026-12-01 10:00:00 +01:00", with UTC in place of +00:00."""
    when = datetime.fromisoformat(time)
    offset = f"{when:%z}"
    zone = "UTC" if time.endswith("+00:00") else f"{offset[:3]}:{offset[3:]}"
    return f"{when:%a %Y-%m-%d %H:%M:%S} {zone}"


def _format_relative_time(seconds: int) -> str:
    """Format seconds from now as "in 9 d 10 h" or "12 min 5 s ago"."""
    remaining_s, parts = abs(seconds), list[str]()
    for unit, unit_s in _UNITS:
        count, remaining_s = divmod(remaining_s, unit_s)
        if count or parts:
            parts.append(f"{count} {unit}")
    distance = " ".join(parts[:2]) or "0 s"
    return f"in {distance}" if seconds >= 0 else f"{distance} ago"
