"""Determines the position in the queue that a visitor is shown."""

from collections.abc import Mapping
from typing import Any

from sidecar.gate.contract import Gate
from sidecar.visitors.model import Phase, QueueOutcome, Standing


def format_count(document: Mapping[str, Any], name: str) -> str:
    """Return the status document's `position` or `ahead` as text, such as 7 or 2000+, or ""."""
    above, count = document["position_above"], document[name]
    return f"{above}+" if above is not None else "" if count is None else str(count)


def get_position(room: Gate, standing: Standing | None) -> tuple[int | None, int | None]:
    """Return (position, None), or (None, `rank_limit`) if the position is above that limit. Return
    (None, None) in a recovery, when the position might grow, and while the position is secret."""
    if standing is None or standing.outcome is not QueueOutcome.WAITING or standing.recovery_stage:
        return None, None
    if standing.phase is not Phase.OPEN:
        return None, None
    position, limit = standing.ahead + 1, room.settings.rank_limit
    return (None, limit) if limit is not None and position > limit else (position, None)
