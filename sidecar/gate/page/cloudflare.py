"""Where a visitor stands, by the names that Cloudflare's waiting room has for it.

Programs and templates made for Cloudflare's go on with it (docs/coming-from-cloudflare.md).
"""

import math
from collections.abc import Mapping
from typing import Any

from sidecar.gate.page.status_document import at_ms
from sidecar.http.json_text import to_json
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.estimate import Z_80
from sidecar.visitors.model import Phase, State

_METHODS = {
    "isFIFOQueue": "fifo",
    "isRandomQueue": "random",
    "isPassthroughQueue": "passthrough",
    "isRejectQueue": "reject",
}
#: The quantile of the normal distribution that leaves a quarter on either side.
_Z_50 = 0.6745


def json_of(document: Mapping[str, Any], settings: RoomSettings) -> str:
    """Return the JSON for a program that waits. It fits into a header."""
    return to_json({"cfWaitingRoom": members(document, settings)}).decode()


def members(document: Mapping[str, Any], settings: RoomSettings) -> dict[str, Any]:
    """Return Cloudflare's members of a status document. Times are in minutes; unknown ones are 0
    or "unavailable"."""
    now_ms = at_ms(document)
    moments, method = settings.moments(now_ms), settings.queueing_method
    event = moments.event
    starts = event.opens_at if event and moments.phase is Phase.PREQUEUE else None
    ends = event.closes_at if event else None
    quarter, middle, rest = _percentiles(document) if method == "random" else (0, 0, 0)
    wait = middle or _minutes(document["wait_seconds"])
    is_known = document["wait_seconds"] is not None
    spread = f"{in_words(quarter)} to {in_words(rest)}" if quarter < rest else in_words(wait)
    refused = method == "reject" and document["state"] == State.CLOSED
    return {
        "inWaitingRoom": True,
        "waitTimeKnown": is_known,
        "waitTime": wait,
        "waitTime25Percentile": quarter,
        "waitTime50Percentile": middle,
        "waitTime75Percentile": rest,
        "waitTimeFormatted": spread if is_known else "unavailable",
        "queueIsFull": document["state"] == State.FULL,
        "queueAll": settings.queue_all,
        "lastUpdated": document["updated_at"].replace("+00:00", "Z"),
        "refreshIntervalSeconds": 0 if refused else math.ceil(document["refresh_after_seconds"]),
        "queueingMethod": method,
        **{name: method == each for name, each in _METHODS.items()},
        "isEventActive": event is not None,
        "isEventPrequeueing": starts is not None,
        **_until("timeUntilEventStart", starts, now_ms),
        **_until("timeUntilEventEnd", ends, now_ms),
        "shuffleAtEventStart": event is not None and event.prequeue_from is not None,
    }


def _minutes(seconds: float | None) -> int:
    return 0 if seconds is None else max(1, math.ceil(seconds / 60))


def _percentiles(document: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the quartiles in minutes. The cube root of a wait is normal (visitors/estimate.py)."""
    if document["wait_seconds"] is None:
        return 0, 0, 0
    low, high = document["wait_seconds_low"] ** (1 / 3), document["wait_seconds_high"] ** (1 / 3)
    middle, side = (low + high) / 2, (high - low) / 2 * _Z_50 / Z_80
    quarter, half, rest = (_minutes(root**3) for root in (middle - side, middle, middle + side))
    return quarter, half, rest


def _until(name: str, moment_ms: int | None, now_ms: int) -> dict[str, Any]:
    minutes = 0 if moment_ms is None else _minutes((moment_ms - now_ms) / 1000)
    return {name: minutes, f"{name}Formatted": in_words(minutes) if minutes else "unavailable"}


def in_words(minutes: int) -> str:
    """Return the time in English, as Cloudflare does."""
    hours, rest = divmod(minutes, 60)
    parts = [f"{n} {unit}{'s' * (n != 1)}" for n, unit in ((hours, "hour"), (rest, "minute")) if n]
    return " ".join(parts)
