"""The tables of the history: stays, events, operators' actions, and archives of stays and events.

The columns are repeated here as of this revision, because tables.py may change later.
"""

from typing import Any

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.dialects import mysql

from sidecar.storage.sql.database import UnversionedError

revision = "0001"
down_revision = None

BIG = sa.BigInteger
TABLES = {
    "waitroom_entries",
    "waitroom_entries_archive",
    "waitroom_events",
    "waitroom_events_archive",
    "waitroom_changes",
}


def upgrade() -> None:
    # Drop empty tables first: MariaDB and MySQL keep those of a migration that was killed.
    connection = op.get_bind()
    existing = set(sa.inspect(connection).get_table_names()) & TABLES
    for name in existing:
        if connection.execute(sa.select(1).select_from(sa.table(name)).limit(1)).first():
            raise UnversionedError(f"{name} is there and has rows, but nothing says its revision")
    for name in existing:
        op.drop_table(name)
    partitions = context.config.attributes["partitions"]
    for suffix in ("", "_archive"):
        count = 1 if suffix else partitions
        entries, events = f"waitroom_entries{suffix}", f"waitroom_events{suffix}"
        _create(entries, count, *_entries(), sa.PrimaryKeyConstraint("room", "visitor"))
        op.create_index(f"ix_{entries}_joined", entries, ["room", "joined_ms"])
        op.create_index(f"ix_{entries}_ended", entries, ["room", "ended_ms", "changed_ms"])
        _create(events, count, *_events(), sa.PrimaryKeyConstraint("room", "ms", "seq"))
        op.create_index(f"ix_{events}_visitor", events, ["room", "visitor"])
    _create("waitroom_changes", 1, *_changes(), sa.PrimaryKeyConstraint("room", "ms", "seq"))


def _create(name: str, partitions: int, *parts: Any) -> None:
    """Create a table, partitioned by a hash of the room if the database can."""
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


def _word(length: int) -> sa.String:
    binary = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(binary, "mysql", "mariadb")


def _text() -> sa.Text:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _entries() -> list[sa.Column[Any]]:
    return [
        sa.Column("room", _word(48), nullable=False),
        sa.Column("visitor", _word(22), nullable=False),
        sa.Column("class_name", _word(48), nullable=False, server_default=""),
        sa.Column("queue_order", BIG),
        sa.Column("joined_ms", BIG),
        sa.Column("queued_ms", BIG),
        sa.Column("called_ms", BIG),
        sa.Column("admitted_ms", BIG),
        sa.Column("ended_ms", BIG),
        sa.Column("end_reason", _word(16)),
        sa.Column("first_position", BIG),
        sa.Column("last_position", BIG),
        sa.Column("returns", sa.Integer, nullable=False, server_default="0"),
        sa.Column("moved_ms", BIG),
        sa.Column("changed_ms", BIG, nullable=False),
    ]


def _events() -> list[sa.Column[Any]]:
    return [
        sa.Column("room", _word(48), nullable=False),
        sa.Column("ms", BIG, nullable=False, autoincrement=False),
        sa.Column("seq", BIG, nullable=False, autoincrement=False),
        sa.Column("kind", _word(16), nullable=False),
        sa.Column("visitor", _word(22), nullable=False),
        sa.Column("why", _word(16), nullable=False),
        sa.Column("at_ms", BIG, nullable=False),
        sa.Column("more", _text(), nullable=False),
    ]


def _changes() -> list[sa.Column[Any]]:
    return [
        sa.Column("room", _word(48), nullable=False),
        sa.Column("ms", BIG, nullable=False, autoincrement=False),
        sa.Column("seq", BIG, nullable=False, autoincrement=False),
        sa.Column("at_ms", BIG, nullable=False),
        sa.Column("operator", _text(), nullable=False),
        sa.Column("action", _word(16), nullable=False),
        sa.Column("visitor", _word(22), nullable=False),
        sa.Column("detail", _text(), nullable=False),
    ]
