"""Settings of room events that open relative to the current time."""

from datetime import UTC, datetime, timedelta
from typing import Any


def make_opening_event(*, hours: float, prequeue_hours: float = 0) -> dict[str, Any]:
    """Create the settings of an event that opens `hours` from now. Its pre-queue begins
    `prequeue_hours` before that; 0 means that it has none."""
    opens = datetime.now(UTC) + timedelta(hours=hours)
    begins = {"prequeue_from": iso(opens - timedelta(hours=prequeue_hours))}
    return {"name": "sale", "opens_at": iso(opens), **(begins if prequeue_hours else {})}


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
