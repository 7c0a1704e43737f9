"""Events of rooms, by how far off they are."""

from datetime import UTC, datetime, timedelta
from typing import Any


def opening(*, hours: float, prequeue_hours: float = 0) -> dict[str, Any]:
    """An event that opens in so many hours, and whose pre-queue is that long."""
    opens = datetime.now(UTC) + timedelta(hours=hours)
    begins = {"prequeue_from": iso(opens - timedelta(hours=prequeue_hours))}
    return {"name": "sale", "opens_at": iso(opens), **(begins if prequeue_hours else {})}


def iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
