"""The jobs in each kind of database in turn."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, event, func, select

from sidecar.jobs.model import Job, new_job_id
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.tables import JOBS, chunks, metadata
from sidecar.kit.sql import database as sql
from tests.support.databases import KINDS, servers  # noqa: F401 - a fixture

NOW_MS = 1_800_000_000_000


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def database(request, servers):  # noqa: F811
    return servers(request.param)


@pytest.fixture
async def open_store():
    """Makes a JobStore on a database: one for each process that the test speaks of."""
    opened = []

    async def make(url: str) -> JobStore:
        store = JobStore(sql.open_database(url))
        opened.append(store)
        if await sql.revision(store.engine, JOBS) is None:
            await store.migrate()
        return store

    yield make
    for store in opened:
        await store.close()


@pytest.fixture
async def store(database, open_store):
    """With empty tables."""
    made = await open_store(database.url)
    async with sql.begin(made.engine) as connection:
        for table in metadata.tables.values():
            await connection.execute(delete(table))
    return made


def job(**values) -> Job:
    """Pending, for an hour, of the target `images`."""
    default = {
        "id": new_job_id(), "owner": "shop", "target": "images", "kind": "offline",
        "created_ms": NOW_MS, "expires_ms": NOW_MS + 3_600_000, "queue_order": 1,
    }  # fmt: skip
    return Job(**{**default, **values})


def statements_of(store) -> list[str]:
    """What the store sends to its database from now on, but for what begins a transaction."""
    seen: list[str] = []

    def note(connection, cursor, statement, *_) -> None:
        if not statement.startswith("BEGIN"):
            seen.append(statement)

    event.listen(store.engine.sync_engine, "before_cursor_execute", note)
    return seen


async def chunk_count(store) -> int:
    async with sql.begin(store.engine) as connection:
        return (await connection.execute(select(func.count()).select_from(chunks))).scalar()


@pytest.fixture
def sent(here, monkeypatch):
    """The commands that were sent to Redis."""
    commands: list[str] = []
    execute = here.redis.execute_command

    async def count(*args, **options):
        commands.append(str(args[0]))
        return await execute(*args, **options)

    monkeypatch.setattr(here.redis, "execute_command", count)
    return commands
