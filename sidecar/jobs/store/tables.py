"""The tables of the jobs, and how a job becomes a row. Times are milliseconds since 1970, UTC.

They are of a family of their own (kit/sql/database.py), in the database of the history or in
another.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    select,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite

from sidecar.jobs.model import Job, State
from sidecar.kit.sql.columns import long_text, word
from sidecar.kit.sql.database import Tables

JOBS = Tables("jobs", "0001", "waitroom_jobs_version")


metadata = MetaData()

#: Octets: of a request's body, and of a part of an answer's.
octets = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")

#: One row a job. The body of the request comes last, so that who reads the rest passes it over.
jobs = Table(
    "waitroom_jobs",
    metadata,
    Column("id", word(22), primary_key=True),
    Column("owner", word(48), nullable=False),
    Column("target", word(48), nullable=False),
    Column("kind", word(8), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("queue_order", BigInteger, nullable=False),
    Column("state", word(16), nullable=False),
    Column("class_name", word(48), nullable=False),
    Column("idempotency_key", word(128)),
    Column("fingerprint", word(64), nullable=False),
    Column("method", word(16), nullable=False),
    Column("path", long_text(), nullable=False),
    Column("query", long_text(), nullable=False),
    Column("headers", long_text(), nullable=False),
    Column("callback_url", long_text()),
    Column("not_before_ms", BigInteger),
    Column("called_ms", BigInteger),
    Column("started_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("attempts", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("error", long_text(), nullable=False),
    Column("status", Integer),
    Column("result_headers", long_text(), nullable=False),
    Column("result_size", BigInteger, nullable=False),
    Column("read_ms", BigInteger),
    Column("callback_ms", BigInteger),
    Column("callback_tries", Integer, nullable=False),
    Column("body", octets, nullable=False),
    #: Many have no key, and NULLs are all different.
    Index("ux_waitroom_jobs_key", "owner", "idempotency_key", unique=True),
    Index("ix_waitroom_jobs_line", "target", "state", "queue_order", "id"),
    Index("ix_waitroom_jobs_expires", "state", "expires_ms"),
    Index("ix_waitroom_jobs_owner", "owner", "created_ms", "id"),
    Index("ix_waitroom_jobs_created", "created_ms", "id"),
    Index("ix_waitroom_jobs_target", "target", "created_ms", "id"),
    #: All that the history needs, so that no row is read for it.
    Index("ix_waitroom_jobs_ended", "target", "ended_ms", "state", "created_ms", "started_ms"),
    Index("ix_waitroom_jobs_callback", "callback_ms"),
)

#: The bodies of answers. Only those of the job's fence belong to it.
chunks = Table(
    "waitroom_job_chunks",
    metadata,
    Column("job", word(22), nullable=False),
    Column("fence", BigInteger, nullable=False, autoincrement=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("data", octets, nullable=False),
    PrimaryKeyConstraint("job", "fence", "number"),
)

#: Targets that were changed or made at run time: their whole settings, as JSON.
targets = Table(
    "waitroom_targets",
    metadata,
    Column("name", word(48), primary_key=True),
    Column("settings", long_text(), nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

_NAMES = tuple(field.name for field in fields(Job))
_MAPS = ("headers", "result_headers")
#: Finds jobs but for their bodies; and all of them.
FIND = select(*(jobs.c[name] for name in _NAMES if name != "body"))
FIND_WHOLE = select(*(jobs.c[name] for name in _NAMES))


def row_of(job: Job) -> dict[str, Any]:
    row = {name: getattr(job, name) for name in _NAMES}
    row["state"] = job.state.value
    for name in _MAPS:
        row[name] = written_map(row[name])
    return row


def job_of(row: Any) -> Job:
    """Of what FIND or FIND_WHOLE finds, as a mapping."""
    values = dict(row)
    values["state"] = State(values["state"])
    for name in _MAPS:
        values[name] = json.loads(values[name]) if values[name] != "{}" else {}
    return Job(**values)


def written_map(headers: dict[str, str]) -> str:
    return json.dumps(headers, separators=(",", ":")) if headers else "{}"


def laid_over(dialect: str, table: Table) -> Any:
    """Inserts a row, or lays it over the one of the same key."""
    keys = [column.name for column in table.primary_key]
    rest = [column.name for column in table.columns if column.name not in keys]
    if dialect == "mysql":
        over = mysql.insert(table)
        return over.on_duplicate_key_update({name: over.inserted[name] for name in rest})
    made = _conflict(dialect, table)
    return made.on_conflict_do_update(
        index_elements=keys, set_={name: made.excluded[name] for name in rest}
    )


def passed_over(dialect: str, table: Table) -> Any:
    """Inserts a row, unless one of its keys is there."""
    if dialect == "mysql":  # IGNORE would pass over whatever is wrong with it
        name = next(iter(table.primary_key)).name
        return mysql.insert(table).on_duplicate_key_update({name: table.c[name]})
    return _conflict(dialect, table).on_conflict_do_nothing()


def _conflict(dialect: str, table: Table) -> Any:
    return (postgresql if dialect == "postgresql" else sqlite).insert(table)
