"""The tables of the history: stays, events, operators' actions, and archives of stays and events.

The columns are repeated here as of this revision, because tables.py may change later.
"""

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql

from sidecar.storage.sql.database import drop_empty_tables

revision = "0001"
down_revision = None

TABLES = {
    "waitroom_entries",
    "waitroom_entries_archive",
    "waitroom_events",
    "waitroom_events_archive",
    "waitroom_changes",
}


def upgrade() -> None:
    drop_empty_tables(op.get_bind(), TABLES)
    partitions = context.config.attributes["partitions"]
    for suffix in ("", "_archive"):
        count = 1 if suffix else partitions
        entries, events = f"waitroom_entries{suffix}", f"waitroom_events{suffix}"
        _create_table(entries, count, *_entry_columns())
        op.create_index(f"ix_{entries}_joined", entries, ["room", "joined_ms"])
        op.create_index(f"ix_{entries}_ended", entries, ["room", "ended_ms", "changed_ms"])
        _create_table(events, count, *_event_columns())
        op.create_index(f"ix_{events}_visitor", events, ["room", "visitor"])
    _create_table("waitroom_changes", 1, *_change_columns())


def _create_table(name: str, partitions: int, *parts: Any) -> None:
    """Create a table, partitioned by a hash of the room if the database supports this."""
    kind = op.get_bind().dialect.name
    options: dict[str, Any] = {}
    if partitions > 1 and kind in {"mysql", "mariadb"}:
        for dialect in ("mysql", "mariadb"):
            options[f"{dialect}_partition_by"] = "KEY (room)"
            options[f"{dialect}_partitions"] = str(partitions)
    if partitions > 1 and kind == "postgresql":
        options["postgresql_partition_by"] = "HASH (room)"
    op.create_table(name, *parts, **options)
    if "postgresql_partition_by" in options:
        for number in range(partitions):
            op.execute(
                f"CREATE TABLE {name}_{number} PARTITION OF {name} "
                f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            )


def _word_column(name: str, length: int, **options: Any) -> sa.Column[str]:
    binary = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    kind = sa.String(length).with_variant(binary, "mysql", "mariadb")
    return sa.Column(name, kind, **{"nullable": False, **options})


def _text_column(name: str) -> sa.Column[str]:
    kind = sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")
    return sa.Column(name, kind, nullable=False)


def _bigints(*names: str, **options: Any) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger, **options) for name in names]


def _entry_columns() -> list[Any]:
    return [
        _word_column("room", 48),
        _word_column("visitor", 22),
        _word_column("class_name", 48, server_default=""),
        *_bigints("queue_order", "joined_ms", "queued_ms", "called_ms", "admitted_ms", "ended_ms"),
        _word_column("end_reason", 16, nullable=True),
        *_bigints("first_position", "last_position"),
        sa.Column("returns", sa.Integer, nullable=False, server_default="0"),
        *_bigints("moved_ms"),
        *_bigints("changed_ms", nullable=False),
        sa.PrimaryKeyConstraint("room", "visitor"),
    ]


def _event_columns() -> list[Any]:
    return [
        _word_column("room", 48),
        *_bigints("ms", "seq", nullable=False, autoincrement=False),
        _word_column("kind", 16),
        _word_column("visitor", 22),
        _word_column("why", 16),
        *_bigints("at_ms", nullable=False),
        _text_column("more"),
        sa.PrimaryKeyConstraint("room", "ms", "seq"),
    ]


def _change_columns() -> list[Any]:
    return [
        _word_column("room", 48),
        *_bigints("ms", "seq", nullable=False, autoincrement=False),
        *_bigints("at_ms", nullable=False),
        _text_column("operator"),
        _word_column("action", 16),
        _word_column("visitor", 22),
        _text_column("detail"),
        sa.PrimaryKeyConstraint("room", "ms", "seq"),
    ]
