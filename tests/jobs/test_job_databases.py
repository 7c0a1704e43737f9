"""What the jobs ask of their databases: tables, transactions that stand in each other's way, files
that several processes write, and what is said when there is no answer."""

import asyncio
import itertools

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import event, select, text, update

from sidecar.history.store.stays import History
from sidecar.jobs.model import Ending, JobQuery, State
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.tables import jobs, metadata
from sidecar.kit.errors import DatabaseError, DatabaseUnavailableError
from sidecar.storage.sql import database as sql
from tests.support.databases import Mariadb, Postgresql, Sqlite
from tests.support.jobs import NOW_MS, job

LATER_MS = NOW_MS + 5000


@pytest.fixture
def sqlite(tmp_path):
    return Sqlite(tmp_path)


# Tables -------------------------------------------------------------------------------------------


async def test_the_migration_makes_the_tables_that_are_written_to(store):
    """Their columns, their types, whether they may be empty, and their indexes."""

    def differences(connection):
        ours = {"include_name": lambda name, kind, _: kind != "table" or name in metadata.tables}
        return compare_metadata(MigrationContext.configure(connection, opts=ours), metadata)

    async with sql.begin(store.engine) as connection:
        assert await connection.run_sync(differences) == []


async def test_jobs_and_the_history_share_a_database(database, store):
    """Each family of tables has a revision of its own."""
    history = History(sql.open_database(database.url), partitions=2)
    try:
        await history.migrate()
        await history.check()
        await store.check()
        assert await store.migrate() == ("0001", "0001")
    finally:
        await history.close()


async def test_a_file_makes_its_tables_and_a_server_asks_for_them(sqlite):
    """By many replicas at once. What is of another version is not touched."""
    stores = [JobStore(sql.open_database(sqlite.url)) for _ in range(3)]
    try:
        await asyncio.gather(*(store.check() for store in stores))
        await stores[0].jobs.insert(job())
        assert len((await stores[1].search.find_page(JobQuery()))[0]) == 1
        async with sql.begin(stores[0].engine) as connection:
            await connection.execute(text("UPDATE waitroom_jobs_version SET version_num = '9999'"))
        with pytest.raises(DatabaseError, match="revision 9999: run waitroom migrate"):
            await stores[2].check()
        with pytest.raises(DatabaseError, match="unknown here"):
            await stores[2].migrate()
    finally:
        for store in stores:
            await store.close()


@pytest.mark.full
async def test_a_migration_that_was_killed_can_be_repeated(servers, open_store):
    """MariaDB keeps the tables that it made, and has no version yet; rows are never dropped."""
    store = await open_store(servers(Mariadb).url)
    async with sql.begin(store.engine) as connection:
        for name in metadata.tables:
            await connection.execute(text(f"DELETE FROM {name}"))
        await connection.execute(text("DELETE FROM waitroom_jobs_version"))
        await connection.execute(text("DROP TABLE waitroom_targets"))
    await store.migrate()
    await store.jobs.insert(job())
    try:
        async with sql.begin(store.engine) as connection:
            await connection.execute(text("DELETE FROM waitroom_jobs_version"))
        with pytest.raises(DatabaseError, match="has rows"):
            await store.migrate()
        with pytest.raises(DatabaseError, match="run waitroom migrate"):
            await store.check()
    finally:
        async with sql.begin(store.engine) as connection:
            await connection.execute(text("DELETE FROM waitroom_jobs_version"))
            await connection.execute(text("INSERT INTO waitroom_jobs_version VALUES ('0001')"))


# At the same time ---------------------------------------------------------------------------------


async def test_workers_on_one_database_do_each_job_once(database, store, open_store):
    """Three of them, that submit, begin and end all at once: none is refused, nothing is lost,
    and a job that two have claimed is ended by one."""
    stores = [store, *[await open_store(database.url) for _ in range(2)]]
    made = [job() for _ in range(60)]
    fences = itertools.count(1)
    begun: dict[str, list[int]] = {one.id: [] for one in made}
    ended: dict[str, list[int]] = {one.id: [] for one in made}

    async def submit(at, some):
        for one in some:
            await at.jobs.insert(one)

    async def finish(at, one):
        if await at.attempts.finish(
            Ending(one.id, one.fence, State.COMPLETED, LATER_MS, body=b"x")
        ):
            ended[one.id].append(one.fence)

    async def run(at):
        while not all(ended.values()):
            ids = [row.id for row in await at.attempts.list_waiting("images", None, 10)]
            for one in (
                taken := await at.attempts.start([(i, next(fences)) for i in ids], at_ms=NOW_MS)
            ):
                begun[one.id].append(one.fence)
            await asyncio.gather(*(finish(at, one) for one in taken))

    async with asyncio.timeout(60):
        await asyncio.gather(
            *(submit(at, made[n::3]) for n, at in enumerate(stores)), *map(run, stores)
        )
    for one in (await store.search.find_page(JobQuery()))[0]:
        assert one.state is State.COMPLETED
        assert ended[one.id] == [one.fence] == [max(begun[one.id])]
        assert one.attempts == len(begun[one.id])


@pytest.mark.parametrize("kind", [Mariadb, Postgresql], ids=lambda kind: kind.kind)
async def test_a_transaction_that_is_given_up_for_another_is_begun_again(
    servers, open_store, kind, monkeypatch
):
    """Of two that wait for each other the database ends one; whoever called the store never learns
    of it."""
    store = await open_store(servers(kind).url)
    tries = []

    async def counted(work, once=store.transactions._write_once):
        tries.append(work)
        return await once(work)

    monkeypatch.setattr(store.transactions, "_write_once", counted)
    for _ in range(5):
        first, second, *others = sorted(
            [await store.jobs.insert(job()) for _ in range(12)], key=lambda one: one.id
        )
        tries.clear()
        try:
            # Who has changed less is ended (MariaDB), or who waited for a second first
            # (PostgreSQL): the store, unless this takes longer than that.
            async with sql.begin(store.engine) as connection:
                for one in (second, *others):
                    await connection.execute(_touch(one))
                claims = [(one.id, 7) for one in (first, second)]
                starting = asyncio.create_task(store.attempts.start(claims, at_ms=NOW_MS))
                while not await _is_locked(store, first):
                    await asyncio.sleep(0.01)
                await connection.execute(_touch(first))
        except DatabaseError:
            await starting
        else:
            break
    assert [one.fence for one in await starting] == [7, 7]
    assert len(tries) == 2


def _touch(one):
    return update(jobs).where(jobs.c.id == one.id).values(error="touched")


async def _is_locked(store, one):
    free = select(jobs.c.id).where(jobs.c.id == one.id).with_for_update(skip_locked=True)
    async with sql.begin(store.engine) as connection:
        return (await connection.execute(free)).first() is None


# Away ---------------------------------------------------------------------------------------------


async def test_a_file_that_somebody_keeps_locked_is_an_error_for_all_who_wait(
    sqlite, open_store, monkeypatch
):
    """Each is told, and they are not tried one by one; when it is free, all goes on."""
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    store = await open_store(sqlite.url)
    made = [await store.jobs.insert(job()) for _ in range(2)]
    seen = []
    event.listen(store.engine.sync_engine, "begin", seen.append)
    sqlite.stop()
    told = await asyncio.gather(
        *(store.jobs.insert(job()) for _ in range(9)), return_exceptions=True
    )
    assert [type(one) for one in told] == [DatabaseUnavailableError] * 9
    assert len(seen) == 1
    with pytest.raises(DatabaseError, match="locked"):
        await store.attempts.start([(made[0].id, 1)], at_ms=NOW_MS)
    assert len((await store.search.find_page(JobQuery()))[0]) == 2
    sqlite.start()
    assert len(await store.attempts.start([(made[0].id, 1)], at_ms=NOW_MS)) == 1
    await store.jobs.insert(job())


async def test_whoever_asks_a_database_that_is_away_gets_one_error(tmp_path):
    """Whatever is asked."""
    store = JobStore(sql.open_database(f"postgresql://nobody@/none?host={tmp_path}"))
    ending = Ending("a", 1, State.COMPLETED, 1)
    rows, attempts, endings, targets = store.jobs, store.attempts, store.due_jobs, store.targets
    asked = [
        store.check(), store.migrate(), rows.insert(job()), rows.find("a"),
        rows.find_many(["a"]), rows.find_by_key("a", "b"), store.search.find_page(JobQuery()),
        store.search.count(JobQuery()),
        anext(rows.read_body("a")),
        attempts.start([("a", 1)], at_ms=1), attempts.finish(ending),
        attempts.add_chunk("a", 1, 0, b""),
        attempts.set_called("a", 1, at_ms=1), attempts.set_used("a", 1, at_ms=1),
        rows.cancel("a", at_ms=1, expires_ms=1),
        rows.retry("a", order=1, at_ms=1, expires_ms=1),
        rows.mark_read("a", at_ms=1, expires_ms=1), attempts.list_waiting("a", None, 1),
        attempts.list_running("a"), attempts.find_last_start_ms("a"), rows.count_by_state(),
        attempts.find_busy_targets(["a"]), endings.expire(1, 1, {}), endings.delete_old(1, 1),
        endings.claim_callbacks(1, 1, claim_ms=1),
        endings.record_callback("a", ended_ms=1, next_ms=1, tries=1), targets.all(),
        targets.put("a", "{}", 1), targets.delete("a"), rows.count_ended("a", 1, 2, 1),
    ]  # fmt: skip
    for one in asked:
        with pytest.raises(DatabaseError, match="FileNotFoundError"):
            await one
    parts = [part for name, part in vars(store).items() if name not in {"engine", "transactions"}]
    methods = [
        name for part in (store, *parts) for name in dir(type(part)) if not name.startswith("_")
    ]
    assert len(asked) == len(methods) - len(["close"])
    await store.close()
