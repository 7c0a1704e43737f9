"""The SQL tables of jobs and targets, and jobs as rows. Times are ms since 1970, UTC. The tables
have migrations of their own (storage/sql/database.py), in the database of the history or in
another."""

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
    """Headers, as JSON."""

    impl = long_text()
    cache_ok = True

    def process_bind_param(self, value: dict[str, str] | None, _dialect: Dialect) -> str:
        return json.dumps(value, separators=(",", ":")) if value else "{}"

    def process_result_value(self, value: str | None, _dialect: Dialect) -> dict[str, str]:
        return json.loads(value) if value and value != "{}" else {}


state_type = Enum(State, native_enum=False, length=16, values_callable=lambda states: [*states])
#: Bytes of a request's body, or of a part of a response's.
octets = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")

#: One row for each job. The body of the request comes last, so that reading the rest can skip it.
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
    Column("body", octets, nullable=False),
    #: Many jobs have no key; NULLs are all different.
    Index("ux_waitroom_jobs_key", "owner", "idempotency_key", unique=True),
    Index("ix_waitroom_jobs_line", "target", "state", "queue_order", "id"),
    Index("ix_waitroom_jobs_expires", "state", "expires_ms"),
    Index("ix_waitroom_jobs_owner", "owner", "created_ms", "id"),
    Index("ix_waitroom_jobs_created", "created_ms", "id"),
    Index("ix_waitroom_jobs_target", "target", "created_ms", "id"),
    #: All columns of the history, so that no row is read for it.
    Index("ix_waitroom_jobs_ended", "target", "ended_ms", "state", "created_ms", "started_ms"),
    Index("ix_waitroom_jobs_callback", "callback_ms"),
)

#: The bodies of responses, in parts. Only the parts with the job's fence are its result.
chunks = Table(
    "waitroom_job_chunks",
    metadata,
    Column("job", word(22), nullable=False),
    Column("fence", BigInteger, nullable=False, autoincrement=False),
    Column("number", Integer, nullable=False, autoincrement=False),
    Column("data", octets, nullable=False),
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

#: What may be an id or a name. Databases refuse to look for some other texts.
WORD = re.compile(r"[A-Za-z0-9_-]{1,48}\Z")
_NAMES = tuple(field.name for field in fields(Job))
#: Finds jobs without their bodies, and with them.
FIND = select(*(jobs.c[name] for name in _NAMES if name != "body"))
FIND_WHOLE = select(*(jobs.c[name] for name in _NAMES))


def row_of(job: Job) -> dict[str, Any]:
    return {name: getattr(job, name) for name in _NAMES}


def job_of(row: Row[Any]) -> Job:
    """Make a job from a row of FIND or FIND_WHOLE."""
    return Job(**row._asdict())


async def lock_jobs(connection: AsyncConnection, ids: list[str]) -> list[Job]:
    """Lock and return jobs without their bodies, in the order in which all transactions do."""
    query = FIND.where(jobs.c.id.in_(ids)).order_by(jobs.c.id).with_for_update()
    return [job_of(row) for row in await connection.execute(query)]


def ended_values(state: State, at_ms: int, expires_ms: int) -> dict[str, Any]:
    """Return the values of a job that ends without a result; its callback, if any, is due."""
    callback_ms = case((jobs.c.callback_url.is_(None), None), else_=literal(at_ms, BigInteger))
    times = {"ended_ms": at_ms, "expires_ms": expires_ms, "not_before_ms": None}
    return {"state": state, "callback_ms": callback_ms, **times}
