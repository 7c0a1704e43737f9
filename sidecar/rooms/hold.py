"""Holds: a room calls nobody for some time, because an operator or an alert asks for it, or its
site is ill. Then it resumes gently (rooms/lua/parts/openings.lua)."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sidecar.kit.moments import Moment
from sidecar.rooms.adaptive.signals import RESPONSES, Counts
from sidecar.visitors.classes import table_validator

#: How long a room is held after its site was last found ill, in seconds. If all replicas die, the
#: hold ends after this time.
HOLD_S = 15
#: How long the gentle return after a hold lasts, in ms.
RESUME_MS = 120_000
#: The windows in seconds, of which the shortest with enough responses is chosen.
_WINDOWS_S, _ENOUGH = (10, 20, 60), 20
#: The share of a limit below which an ill site counts as well again.
_WELL = 0.8


#: How the reason of a hold begins that an alert asked for.
_ALERT = "alert: "


class Hold(BaseModel):
    """Until when nobody is called, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    until: Moment
    """When the hold ends. For two minutes after that, at most half of the cap is admitted per
    minute."""
    why: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    """The reason, for operators."""


HoldSetting = Annotated[Hold, table_validator('{"until": "2026-12-01T10:00+01:00"}')] | None


def find_hold_of_alert(
    hold: Hold | None, now_ms: int, until_ms: int, summary: str, *, is_resolved: bool
) -> dict[str, Any] | None:
    """Return what an alert makes of the present hold, or None if it changes nothing. An alert never
    shortens a hold, and ends only the one that an alert began."""
    is_of_alert = hold is not None and hold.why.startswith(_ALERT)
    why = _ALERT + "".join(filter(str.isprintable, " ".join(summary.split())))[:100]
    if is_resolved:
        return {"until": now_ms, "why": why} if is_of_alert else None
    if hold is None:
        return {"until": until_ms, "why": why}
    if hold.until >= until_ms:
        return None
    # A longer hold than an ill site's is an operator's: it keeps its reason.
    is_own = not is_of_alert and hold.until > now_ms + HOLD_S * 1000
    return {"until": until_ms, "why": hold.why if is_own else why}


def find_illness(
    count: Callable[[int], Counts],
    max_errors: float | None,
    max_p90_s: float | None,
    *,
    is_held: bool,
) -> str:
    """Return why the site counts as ill, or "". A held room's site must be clearly below the limits
    to count as well. Without enough responses it counts as well.

    Args:
        count: Returns the counts of the last seconds.
        max_errors: The highest share of errors, or None.
        max_p90_s: The highest p90 of the response times in seconds, or None.
        is_held: Whether the room is held now.
    """
    counts = next((c for c in map(count, _WINDOWS_S) if c[RESPONSES] >= _ENOUGH), None)
    factor, p90_s = _WELL if is_held else 1, counts.percentile_s(0.9) if counts else 0.0
    if counts and max_errors is not None and counts.error_share > factor * max_errors:
        return f"{counts.error_share:.0%} of the responses are errors, limit {max_errors:.0%}"
    if max_p90_s is not None and p90_s > factor * max_p90_s:
        return f"the site's p90 is {p90_s:.2g} s, limit {max_p90_s:g} s"
    return ""
