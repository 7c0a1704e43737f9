"""The tables of the history. Times are milliseconds since 1970, UTC.

Ids and names have a binary collation, because MariaDB and MySQL ignore case by default, and
visitors' ids may differ only in case.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, PrimaryKeyConstraint, Table

from sidecar.storage.sql.columns import long_text, word
from sidecar.storage.sql.database import Tables

HISTORY = Tables("history", "0001", "waitroom_version")

metadata = MetaData()


def _create_bigint_columns(*names: str) -> list[Column[int]]:
    return [Column(name, BigInteger) for name in names]


def _create_event_id_columns() -> list[Column[int]]:
    """Create the columns for the id of an event in its room's stream."""
    return [Column(n, BigInteger, nullable=False, autoincrement=False) for n in ("ms", "seq")]


def _create_entries_table(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("room", word(48), nullable=False),
        Column("visitor", word(22), nullable=False),
        Column("class_name", word(48), nullable=False, server_default=""),
        *_create_bigint_columns(
            "queue_order", "joined_ms", "queued_ms", "called_ms", "admitted_ms", "ended_ms"
        ),
        Column("end_reason", word(16)),
        *_create_bigint_columns("first_position", "last_position"),
        Column("returns", Integer, nullable=False, server_default="0"),
        Column("moved_ms", BigInteger),
        Column("changed_ms", BigInteger, nullable=False),
        PrimaryKeyConstraint("room", "visitor"),
        Index(f"ix_{name}_joined", "room", "joined_ms"),
        Index(f"ix_{name}_ended", "room", "ended_ms", "changed_ms"),
    )


def _create_events_table(name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("room", word(48), nullable=False),
        *_create_event_id_columns(),
        Column("kind", word(16), nullable=False),
        Column("visitor", word(22), nullable=False),
        Column("why", word(16), nullable=False),
        Column("at_ms", BigInteger, nullable=False),
        Column("more", long_text(), nullable=False),
        PrimaryKeyConstraint("room", "ms", "seq"),
        Index(f"ix_{name}_visitor", "room", "visitor"),
    )


#: The last stay of each visitor, and events. Partitioned by room if the database supports this.
entries = _create_entries_table("waitroom_entries")
events = _create_events_table("waitroom_events")

#: Old stays and events, if history_archive = "move".
entries_archive = _create_entries_table("waitroom_entries_archive")
events_archive = _create_events_table("waitroom_events_archive")

#: The actions of operators: changes of settings with the new values, moves, releases and resets.
changes = Table(
    "waitroom_changes",
    metadata,
    Column("room", word(48), nullable=False),
    *_create_event_id_columns(),
    Column("at_ms", BigInteger, nullable=False),
    Column("operator", long_text(), nullable=False),
    Column("action", word(16), nullable=False),
    Column("visitor", word(22), nullable=False),
    Column("detail", long_text(), nullable=False),
    PrimaryKeyConstraint("room", "ms", "seq"),
)
