"""Describes in words the state of the site behind an adaptive room."""

from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.adaptive.settings import AdaptiveSettings


def describe_site_health(learned: Learned, adaptive: AdaptiveSettings, inside: int) -> str:
    """Return in words the site's state, and how many visitors are inside and may be inside."""
    word = "allowed" if adaptive.mode == "on" else "advised"
    allowed = f"{inside:,} inside, {int(learned.ceiling):,} {word}"
    measured = _describe_measures(learned, adaptive)
    match learned.state:
        case "no signal":
            return f"nginx reports too few responses: not growing; {allowed}"
        case "slow without load":
            return f"fewer visitors did not help, look at the site: {measured}; {allowed}"
        case "strained":
            return f"one in, one out: {measured}; {allowed}"
        case "overloaded":
            return f"holding: {measured}; {allowed}"
    return f"{allowed}; {measured}"


def is_notable_change(before: str, after: str) -> bool:
    """Return True if a change of state is an event, unless it is between healthy and strained."""
    return before != after and not {before, after} <= {"healthy", "strained"}


def _describe_measures(learned: Learned, adaptive: AdaptiveSettings) -> str:
    parts = []
    if adaptive.p90 is not None:
        parts.append(f"p90 {learned.p90_s:.2g} s of {adaptive.p90:g} s")
    if adaptive.max_errors is not None:
        parts.append(f"errors {learned.error_share:.1%} of {adaptive.max_errors:.1%}")
    return ", ".join(parts)
