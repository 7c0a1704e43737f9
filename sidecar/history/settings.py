"""The settings of the history, at the top level of the configuration file."""

from typing import Literal

from pydantic import BaseModel, Field

from sidecar.kit.setting_types import Count, Database, Seconds


class HistorySection(BaseModel):
    history: Database = Field(default="", repr=False)
    """The database that records when visitors queued and what operators did. All replicas need the
    same database. SQLite works on one machine only. Empty: no history is kept."""
    history_partitions: Count = Field(default=128, ge=1, le=1024)
    """The number of partitions, by room, that `waitroom migrate` creates; SQLite has none."""
    history_retention: Seconds | None = Field(default=90 * 86_400, ge=3600)
    """How long the history is kept. Older events and ended stays are deleted or archived."""
    history_archive: Literal["drop", "move"] = "drop"
    """What happens after `history_retention`. `drop`: old rows are deleted. `move`: they are moved
    to `waitroom_entries_archive` and `waitroom_events_archive`."""
    history_backlog: Count = Field(default=10_000_000, ge=1000)
    """How many events of a room may wait in Redis while the database is unavailable; each
    takes about 100 bytes. If there are more, the oldest events are lost."""
    history_stuck_after: Seconds = Field(default=86_400, ge=60)
    """A stay without events for this long is closed as `stuck` if Redis has no such visitor."""
