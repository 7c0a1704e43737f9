"""Says in words how the site behind an adaptive room does."""

from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.adaptive.settings import AdaptiveSettings


def describe(learned: Learned, adaptive: AdaptiveSettings, inside: int) -> str:
    """Say in words how the site does, and what the room does about it."""
    allowed = f"{inside:,} inside, {int(learned.ceiling):,} allowed"
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


def _describe_measures(learned: Learned, adaptive: AdaptiveSettings) -> str:
    parts = []
    if adaptive.p90 is not None:
        parts.append(f"p90 {learned.p90_s:.2g} s of {adaptive.p90:g} s")
    if adaptive.max_errors is not None:
        parts.append(f"errors {learned.error_share:.1%} of {adaptive.max_errors:.1%}")
    return ", ".join(parts)
