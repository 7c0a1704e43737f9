"""Fixtures for tests of jobs, which run once with each kind of database."""

import pytest
from sqlalchemy import delete

from sidecar.jobs.store.job_store import LOCK_TIMEOUT_S, JobStore
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
    """Return a function that opens a JobStore on a database. A test opens one per simulated
    process."""
    opened = []

    async def make(url: str) -> JobStore:
        store = JobStore(sql.open_database(url, lock_timeout_s=LOCK_TIMEOUT_S))
        opened.append(store)
        if await sql.read_revision(store.engine, JOBS) is None:
            await store.migrate()
        return store

    yield make
    for store in opened:
        await store.close()


@pytest.fixture
async def store(database, open_store):
    """Return a JobStore whose tables are empty."""
    store = await open_store(database.url)
    async with sql.begin(store.engine) as connection:
        for table in metadata.tables.values():
            await connection.execute(delete(table))
    return store


@pytest.fixture
async def here(redis_socket, tmp_path, monkeypatch):
    """Return a job system that runs in this process. When it rebuilds a queue, it does not wait for
    other workers."""
    monkeypatch.setattr(queue_rebuild, "SETTLE_S", 0)
    async with bench(redis_socket, tmp_path) as made:
        yield made


@pytest.fixture
def sent(here, monkeypatch):
    """Return a list to which the name of each command for Redis is appended."""
    commands: list[str] = []
    execute = here.redis.execute_command

    async def record(*args, **options):
        commands.append(str(args[0]))
        return await execute(*args, **options)

    monkeypatch.setattr(here.redis, "execute_command", record)
    return commands
