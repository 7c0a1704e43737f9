"""The jobs in each kind of database in turn."""

import pytest
from sqlalchemy import delete

from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.tables import JOBS, metadata
from sidecar.jobs.worker import queue_rebuild
from sidecar.storage.sql import database as sql
from tests.jobs.bench import bench
from tests.support.databases import KINDS, servers  # noqa: F401 - a fixture


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


@pytest.fixture
async def here(redis_socket, tmp_path, monkeypatch):
    """Jobs in this process; a rebuild does not wait for other workers."""
    monkeypatch.setattr(queue_rebuild, "SETTLE_S", 0)
    async with bench(redis_socket, tmp_path) as made:
        yield made


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
