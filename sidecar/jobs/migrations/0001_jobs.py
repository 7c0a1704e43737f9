"""Creates the tables of jobs, of response bodies, and of targets that were changed at run time. The
columns are repeated here as of this revision, because jobs/store/tables.py may change later."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from sidecar.storage.sql.database import drop_empty_tables

revision = "0001"
down_revision = None

BIG = sa.BigInteger
TABLES = {"waitroom_jobs", "waitroom_job_chunks", "waitroom_targets"}
INDEXES = {
    "line": ["target", "state", "queue_order", "id"],
    "expires": ["state", "expires_ms"],
    "owner": ["owner", "created_ms", "id"],
    "created": ["created_ms", "id"],
    "target": ["target", "created_ms", "id"],
    "ended": ["target", "ended_ms", "state", "created_ms", "started_ms"],
    "callback": ["callback_ms"],
}


def upgrade() -> None:
    drop_empty_tables(op.get_bind(), TABLES)
    op.create_table(
        "waitroom_jobs",
        sa.Column("id", _word(22), nullable=False),
        sa.Column("owner", _word(48), nullable=False),
        sa.Column("target", _word(48), nullable=False),
        sa.Column("kind", _word(8), nullable=False),
        sa.Column("created_ms", BIG, nullable=False),
        sa.Column("expires_ms", BIG, nullable=False),
        sa.Column("queue_order", BIG, nullable=False),
        sa.Column("state", _word(16), nullable=False),
        sa.Column("class_name", _word(48), nullable=False),
        sa.Column("idempotency_key", _word(128)),
        sa.Column("fingerprint", _word(64), nullable=False),
        sa.Column("method", _word(16), nullable=False),
        sa.Column("path", _text(), nullable=False),
        sa.Column("query", _text(), nullable=False),
        sa.Column("headers", _text(), nullable=False),
        sa.Column("callback_url", _text()),
        sa.Column("not_before_ms", BIG),
        sa.Column("called_ms", BIG),
        sa.Column("started_ms", BIG),
        sa.Column("ended_ms", BIG),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("fence", BIG, nullable=False),
        sa.Column("error", _text(), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("result_headers", _text(), nullable=False),
        sa.Column("result_size", BIG, nullable=False),
        sa.Column("read_ms", BIG),
        sa.Column("callback_ms", BIG),
        sa.Column("callback_tries", sa.Integer, nullable=False),
        sa.Column("body", _octets(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    for name, columns in INDEXES.items():
        op.create_index(f"ix_waitroom_jobs_{name}", "waitroom_jobs", columns)
    key = ["owner", "idempotency_key"]
    op.create_index("ux_waitroom_jobs_key", "waitroom_jobs", key, unique=True)
    op.create_table(
        "waitroom_job_chunks",
        sa.Column("job", _word(22), nullable=False),
        sa.Column("fence", BIG, nullable=False, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("data", _octets(), nullable=False),
        sa.PrimaryKeyConstraint("job", "fence", "number"),
    )
    op.create_table(
        "waitroom_targets",
        sa.Column("name", _word(48), nullable=False),
        sa.Column("settings", _text(), nullable=False),
        sa.Column("changed_ms", BIG, nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _word(length: int) -> sa.String:
    binary = mysql.VARCHAR(length, charset="ascii", collation="ascii_bin")
    return sa.String(length).with_variant(binary, "mysql", "mariadb")


def _text() -> sa.Text:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4"), "mysql", "mariadb")


def _octets() -> sa.LargeBinary:
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
