"""What a configuration file says of the history, at its top level."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from sidecar.kit.setting_types import Count, Database, Seconds  # noqa: TC001 - pydantic reads it


class HistorySection(BaseModel):
    #: The database of the history; empty: none is kept.
    history: Database = Field(default="", repr=False)
    history_partitions: Count = Field(default=128, ge=1, le=1024)
    #: Rows that are older are dropped or moved; None keeps them.
    history_retention: Seconds | None = Field(default=90 * 86_400, ge=3600)
    history_archive: Literal["drop", "move"] = "drop"
    #: Events that wait to be written, a room, at most; the oldest give way.
    history_backlog: Count = Field(default=10_000_000, ge=1000)
    history_stuck_after: Seconds = Field(default=86_400, ge=60)
