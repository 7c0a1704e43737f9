"""Creates jobs for tests, and records the SQL statements of a job store."""

from sqlalchemy import event, func, select

from sidecar.jobs.model import Job, make_job_id
from sidecar.jobs.store.tables import chunks
from sidecar.storage.sql import database as sql

NOW_MS = 1_800_000_000_000


def job(**values) -> Job:
    """Create a pending job of the target `images` that expires in an hour."""
    default = {
        "id": make_job_id(), "owner": "shop", "target": "images", "kind": "offline",
        "created_ms": NOW_MS, "expires_ms": NOW_MS + 3_600_000, "queue_order": 1,
    }  # fmt: skip
    return Job(**{**default, **values})


def record_statements(store) -> list[str]:
    """Return a list to which the store's SQL statements, except BEGIN, are appended from now on."""
    seen: list[str] = []

    def append(connection, cursor, statement, *_) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(statement)

    event.listen(store.engine.sync_engine, "before_cursor_execute", append)
    return seen


async def count_chunks(store) -> int:
    async with sql.begin(store.engine) as connection:
        return (await connection.execute(select(func.count()).select_from(chunks))).scalar()
