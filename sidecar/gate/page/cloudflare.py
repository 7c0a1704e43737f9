"""Builds the status document with the field names of Cloudflare Waiting Room.

Programs and templates made for Cloudflare can read this document (docs/coming-from-cloudflare.md).
"""

import math
from collections.abc import Mapping
from typing import Any

from sidecar.gate.page.status_document import parse_updated_ms
from sidecar.http.json_text import to_json
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.estimate import Z_80
from sidecar.visitors.model import Phase, VisitorState

_METHODS = {
    "isFIFOQueue": "fifo",
    "isRandomQueue": "random",
    "isPassthroughQueue": "passthrough",
    "isRejectQueue": "reject",
}
#: The 0.75 quantile of the standard normal distribution.
_Z_50 = 0.6745


def format_json(document: Mapping[str, Any], settings: RoomSettings) -> str:
    """Return the JSON document for programs, which is short enough for a header."""
    return to_json({"cfWaitingRoom": build_members(document, settings)}).decode()


def build_members(document: Mapping[str, Any], settings: RoomSettings) -> dict[str, Any]:
    """Return the values of a status document under Cloudflare's names. Times are in minutes. An
    unknown time is 0 or "unavailable"."""
    now_ms = parse_updated_ms(document)
    schedule, method = settings.schedule_at(now_ms), settings.queueing_method
    event = schedule.event
    starts = event.opens_at if event and schedule.phase is Phase.PREQUEUE else None
    ends = event.closes_at if event else None
    low, median, high = _compute_quartiles(document) if method == "random" else (0, 0, 0)
    wait = median or _to_minutes(document["wait_seconds"])
    is_known = document["wait_seconds"] is not None
    span = f"{_format_wait(low)} to {_format_wait(high)}" if low < high else _format_wait(wait)
    is_final = method == "reject" and document["state"] == VisitorState.CLOSED
    return {
        "inWaitingRoom": True,
        "waitTimeKnown": is_known,
        "waitTime": wait,
        "waitTime25Percentile": low,
        "waitTime50Percentile": median,
        "waitTime75Percentile": high,
        "waitTimeFormatted": span if is_known else "unavailable",
        "queueIsFull": document["state"] == VisitorState.FULL,
        "queueAll": settings.queue_all,
        "lastUpdated": document["updated_at"].replace("+00:00", "Z"),
        "refreshIntervalSeconds": 0 if is_final else math.ceil(document["refresh_after_seconds"]),
        "queueingMethod": method,
        **{name: method == own_name for name, own_name in _METHODS.items()},
        "isEventActive": event is not None,
        "isEventPrequeueing": starts is not None,
        **_build_time_until("timeUntilEventStart", starts, now_ms),
        **_build_time_until("timeUntilEventEnd", ends, now_ms),
        "shuffleAtEventStart": event is not None and event.prequeue_from is not None,
    }


def _to_minutes(seconds: float | None) -> int:
    return 0 if seconds is None else max(1, math.ceil(seconds / 60))


def _compute_quartiles(document: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the wait's quartiles in minutes, as if its cube root were normally distributed."""
    if document["wait_seconds"] is None:
        return 0, 0, 0
    low, high = document["wait_seconds_low"] ** (1 / 3), document["wait_seconds_high"] ** (1 / 3)
    middle, side = (low + high) / 2, (high - low) / 2 * _Z_50 / Z_80
    first, median, third = (_to_minutes(root**3) for root in (middle - side, middle, middle + side))
    return first, median, third


def _build_time_until(name: str, time_ms: int | None, now_ms: int) -> dict[str, Any]:
    minutes = 0 if time_ms is None else _to_minutes((time_ms - now_ms) / 1000)
    return {name: minutes, f"{name}Formatted": _format_wait(minutes) if minutes else "unavailable"}


def _format_wait(minutes: int) -> str:
    """Return a time span in English, in Cloudflare's form, such as "1 hour 5 minutes"."""
    hours, rest = divmod(minutes, 60)
    parts = [f"{n} {unit}{'s' * (n != 1)}" for n, unit in ((hours, "hour"), (rest, "minute")) if n]
    return " ".join(parts)
