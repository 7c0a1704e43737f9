"""The settings of the history, at the top level of the configuration file."""

from typing import Literal

from pydantic import BaseModel, Field

from sidecar.kit.setting_types import Count, Database, Seconds


class HistorySection(BaseModel):
    history: Database = Field(default="", repr=False)
    """The database that records when visitors queued and what operators did. All replicas need the
    same database. SQLite is for replicas on one machine. Empty: no history is kept."""
    history_partitions: Count = Field(default=128, ge=1, le=1024)
    """The number of partitions, by room, that `waitroom migrate` creates. Not for SQLite."""
    history_retention: Seconds | None = Field(default=90 * 86_400, ge=3600)
    """Events older than this, and stays that ended earlier, are dropped or archived."""
    history_archive: Literal["drop", "move"] = "drop"
    """`drop`: delete them. `move`: move them to `waitroom_entries_archive` and
    `waitroom_events_archive`."""
    history_backlog: Count = Field(default=10_000_000, ge=1000)
    """How many events of a room may wait in Redis while the database is unavailable, about 100
    bytes each. The oldest events beyond this number are lost."""
    history_stuck_after: Seconds = Field(default=86_400, ge=60)
    """A stay is closed as `stuck` after this time without events if Redis has no such visitor."""
