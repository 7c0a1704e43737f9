"""The SQL tables of jobs and targets, and the conversion of jobs to rows. Times are in ms since
1970, UTC. The tables have their own migrations (storage/sql/database.py), and may be in the same
database as the history of rooms, or in another."""

import json
import re
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Enum,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    TypeDecorator,
    case,
    literal,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.asyncio import AsyncConnection

from sidecar.jobs.model import Job, State
from sidecar.storage.sql.columns import long_text, word
from sidecar.storage.sql.database import Tables

JOBS = Tables("jobs", "0001", "waitroom_jobs_version")

metadata = MetaData()


class HeadersType(TypeDecorator[dict[str, str]]):
    """A column type for headers, which are stored as JSON."""

    impl = long_text()
    cache_ok = True

    def process_bind_param(self, value: dict[str, str] | None, _dialect: Dialect) -> str:
        return json.dumps(value, separators=(",", ":")) if value else "{}"

    def process_result_value(self, value: str | None, _dialect: Dialect) -> dict[str, str]:
        return json.loads(value) if value and value != "{}" else {}


state_type = Enum(State, native_enum=False, length=16, values_callable=lambda states: [*states])
#: The type of a request's body, and of a part of a response's body.
blob_type = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")

#: The jobs. The body of the request comes last, so that reading the other columns can skip it.
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
    Column("state", state_type, nullable=False),
    Column("class_name", word(48), nullable=False),
    Column("idempotency_key", word(128)),
    Column("fingerprint", word(64), nullable=False),
    Column("method", word(16), nullable=False),
    Column("path", long_text(), nullable=False),
    Column("query", long_text(), nullable=False),
    Column("headers", HeadersType(), nullable=False),
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
    Column("result_headers", HeadersType(), nullable=False),
    Column("result_size", BigInteger, nullable=False),
    Column("read_ms", BigInteger),
    Column("callback_ms", BigInteger),
    Column("callback_tries", Integer, nullable=False),
    Column("body", blob_type, nullable=False),
    # Many jobs may have no key: NULLs do not violate a unique index.
    Index("ux_waitroom_jobs_key", "owner", "idempotency_key", unique=True),
    Index("ix_waitroom_jobs_line", "target", "state", "queue_order", "id"),
    Index("ix_waitroom_jobs_expires", "state", "expires_ms"),
    Index("ix_waitroom_jobs_owner", "owner", "created_ms", "id"),
    Index("ix_waitroom_jobs_created", "created_ms", "id"),
    Index("ix_waitroom_jobs_target", "target", "created_ms", "id"),
    # Has all columns that the history of a target needs, so that no rows are read.
    Index("ix_waitroom_jobs_ended", "target", "ended_ms", "state", "created_ms", "started_ms"),
    Index("ix_waitroom_jobs_callback", "callback_ms"),
)

#: The bodies of responses, in parts. Parts with a fence other than their job's are obsolete.
chunks = Table(
    "waitroom_job_chunks",
    metadata,
    Column("job", word(22), nullable=False),
    Column("fence", BigInteger, nullable=False, autoincrement=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("data", blob_type, nullable=False),
    PrimaryKeyConstraint("job", "fence", "number"),
)

#: The settings of targets that were changed or created at run time, as JSON.
targets = Table(
    "waitroom_targets",
    metadata,
    Column("name", word(48), primary_key=True),
    Column("settings", long_text(), nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

#: The pattern of ids and names. Databases refuse queries for some other strings.
ID_OR_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")
_COLUMN_NAMES = tuple(field.name for field in fields(Job))
_INITIAL_NULLS = {"called_ms", "started_ms", "ended_ms", "status", "read_ms", "callback_ms"}
#: The columns that an insert sets. It omits those that are NULL at first, because each costs time.
SUBMITTED_COLUMNS = tuple(name for name in _COLUMN_NAMES if name not in _INITIAL_NULLS)
#: The queries that select jobs, without and with the bodies of their requests.
FIND = select(*(jobs.c[name] for name in _COLUMN_NAMES if name != "body"))
FIND_WITH_BODY = select(*(jobs.c[name] for name in _COLUMN_NAMES))


def to_job(row: Row[Any]) -> Job:
    """Return the job of a row of FIND or FIND_WITH_BODY."""
    return Job(**row._asdict())


async def lock_jobs(
    connection: AsyncConnection, ids: list[str], *, waits: bool = False
) -> list[Job]:
    """Lock jobs, and return them without their bodies. Unless `waits` is True, skip jobs that
    another transaction has locked, so that they do not delay the others. All transactions lock jobs
    in the order of their ids, so that no two transactions deadlock."""
    query = FIND.where(jobs.c.id.in_(ids)).order_by(jobs.c.id)
    query = query.with_for_update(skip_locked=not waits)
    return [to_job(row) for row in await connection.execute(query)]


def make_ended_values(state: State, at_ms: int, expires_ms: int) -> dict[str, Any]:
    """Return the column values for a job that ends without a result. A callback is due at once."""
    callback_ms = case((jobs.c.callback_url.is_(None), None), else_=literal(at_ms, BigInteger))
    times = {"ended_ms": at_ms, "expires_ms": expires_ms, "not_before_ms": None}
    return {"state": state, "callback_ms": callback_ms, **times}
