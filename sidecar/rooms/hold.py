"""Holds, during which a room calls nobody: an operator or an alert asked for the hold, or the site
is ill. After a hold, the room admits visitors gradually (rooms/lua/parts/openings.lua)."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from sidecar.kit.moments import Moment
from sidecar.rooms.adaptive.signals import RESPONSES, Counts
from sidecar.visitors.classes import table_validator

#: How long a room is held after its site was last found ill, in seconds.
HOLD_S = 15
#: For how long after a hold visitors are admitted gradually, in ms.
RESUME_MS = 120_000
#: The windows over which responses are counted, in s. The shortest one with _MIN_RESPONSES is used.
_WINDOWS_S, _MIN_RESPONSES = (10, 20, 60), 20
#: An ill site counts as healthy again below this share of its limits.
_HEALTHY_SHARE = 0.8
#: The beginning of the reason of every hold that an alert asked for.
_ALERT_PREFIX = "alert: "


class Hold(BaseModel):
    """A pause of a room: the time until which nobody is called, and the reason."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    until: Moment
    """When the hold ends. For two minutes after that, at most half of the cap is admitted per
    minute."""
    why: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    """The reason, for operators."""


HoldSetting = Annotated[Hold, table_validator('{"until": "2026-12-01T10:00+01:00"}')] | None


def compute_hold_after_alert(
    hold: Hold | None, now_ms: int, until_ms: int, summary: str, *, is_resolved: bool
) -> dict[str, Any] | None:
    """Return the hold that follows from the current hold and an alert, which asks for a hold until
    `until_ms`. Return None if the alert changes nothing. An alert never shortens a hold, and a
    resolved alert ends a hold only if an alert began it."""
    is_of_alert = hold is not None and hold.why.startswith(_ALERT_PREFIX)
    why = _ALERT_PREFIX + "".join(filter(str.isprintable, " ".join(summary.split())))[:100]
    if is_resolved:
        return {"until": now_ms, "why": why} if is_of_alert else None
    if hold is None:
        return {"until": until_ms, "why": why}
    if hold.until >= until_ms:
        return None
    # An ill site's hold ends within HOLD_S. A longer hold is an operator's, and keeps its reason.
    is_of_operator = not is_of_alert and hold.until > now_ms + HOLD_S * 1000
    return {"until": until_ms, "why": hold.why if is_of_operator else why}


def find_illness(
    count: Callable[[int], Counts],
    max_errors: float | None,
    max_p90_s: float | None,
    *,
    is_held: bool,
) -> str:
    """Return the reason why the site counts as ill, or "" if it is healthy or sent few responses.
    While the room is held, only a site clearly below its limits is healthy.

    Args:
        count: Returns the counts of the responses in the last N seconds.
        max_errors: The highest share of errors, or None for no limit.
        max_p90_s: The highest p90 of the response times in seconds, or None for no limit.
        is_held: Whether the room is held now.
    """
    counts = next((c for c in map(count, _WINDOWS_S) if c[RESPONSES] >= _MIN_RESPONSES), None)
    factor, p90_s = _HEALTHY_SHARE if is_held else 1, counts.percentile_s(0.9) if counts else 0.0
    if counts and max_errors is not None and counts.error_share > factor * max_errors:
        return f"{counts.error_share:.0%} of the responses are errors, limit {max_errors:.0%}"
    if max_p90_s is not None and p90_s > factor * max_p90_s:
        return f"the site's p90 is {p90_s:.2g} s, limit {max_p90_s:g} s"
    return ""
