"""What the jobs ask of their databases: tables, transactions that stand in each other's way, files
that several processes write, and what is said when there is no answer."""

import asyncio
import itertools
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import delete, event, select, text, update

from sidecar.history.store.stays import History
from sidecar.history.store.tables import entries
from sidecar.jobs.model import AttemptEnd, JobQuery, State
from sidecar.jobs.store.job_store import JobStore
from sidecar.jobs.store.tables import jobs, metadata
from sidecar.kit.errors import DatabaseError, DatabaseLockedError, DatabaseUnavailableError
from sidecar.storage.sql import database as sql
from tests.jobs.bench import bench, running, until
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
            AttemptEnd(one.id, one.fence, State.COMPLETED, LATER_MS, body=b"x")
        ):
            ended[one.id].append(one.fence)

    async def run(at):
        while not all(ended.values()):
            ids = [row.id for row in await at.attempts.list_waiting_jobs("images", None, 10)]
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

    async def touch_both(connection):
        for one in (first, second):
            await connection.execute(_touch(one))
        both = select(jobs.c.error).where(jobs.c.id.in_([first.id, second.id]))
        return list((await connection.execute(both)).scalars())

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
                starting = asyncio.create_task(store.transactions.write(touch_both))
                while not await _is_locked(store, first):
                    await asyncio.sleep(0.01)
                await connection.execute(_touch(first))
        except DatabaseError:
            await starting
        else:
            break
    assert await starting == ["touched", "touched"]
    assert len(tries) == 2


def _touch(one):
    return update(jobs).where(jobs.c.id == one.id).values(error="touched")


async def _is_locked(store, one):
    free = select(jobs.c.id).where(jobs.c.id == one.id).with_for_update(skip_locked=True)
    async with sql.begin(store.engine) as connection:
        return (await connection.execute(free)).first() is None


SERVERS = pytest.mark.parametrize("kind", [Mariadb, Postgresql], ids=lambda kind: kind.kind)


@SERVERS
async def test_a_row_that_somebody_keeps_locked_stops_no_other(servers, open_store, kind):
    """All that is to be done for many jobs is done for the others; what is for the locked one alone
    is an error soon, and is done when the row is free."""
    store = await open_store(servers(kind).url)
    made = [await store.jobs.insert(job(callback_url="https://a.example/")) for _ in range(8)]
    # Of few rows MariaDB reads all, rather than some by their index.
    await asyncio.gather(*(store.jobs.insert(job(target="other")) for _ in range(150)))
    locked, ended = made[0], AttemptEnd("", 7, State.COMPLETED, NOW_MS + 1, NOW_MS + 2)
    lock = select(jobs.c.id).where(jobs.c.id == locked.id).with_for_update()
    claims = [(one.id, 7) for one in made]

    async def count(state: State) -> int:
        rows = await store.jobs.find_many([one.id for one in made])
        return sum(row.state is state for row in rows.values())

    async with asyncio.timeout(30):
        async with sql.begin(store.engine) as connection:
            await connection.execute(lock)
            assert len(await store.attempts.start(claims, at_ms=NOW_MS)) == 7
            assert await count(State.PROCESSING) == 7
            with pytest.raises(DatabaseLockedError, match="locked"):
                await store.jobs.cancel(locked.id, at_ms=NOW_MS, expires_ms=NOW_MS)
        assert [one.id for one in await store.attempts.start(claims[:1], at_ms=NOW_MS)] == [
            locked.id
        ]
        async with sql.begin(store.engine) as connection:
            await connection.execute(lock)
            replies = await asyncio.gather(
                *(store.attempts.finish(replace(ended, id=one.id)) for one in made),
                return_exceptions=True,
            )
            assert [type(reply) for reply in replies] == [DatabaseLockedError, *[bool] * 7]
            assert await count(State.COMPLETED) == 7
        assert await store.attempts.finish(replace(ended, id=locked.id))
        async with sql.begin(store.engine) as connection:
            await connection.execute(lock)
            due = await store.due_jobs.claim_callbacks(NOW_MS + 10, 100, claim_ms=1000)
            assert {one.id for one in made} - {one.id for one in due} == {locked.id}
            for one in due:
                await store.due_jobs.record_callback(
                    one.id, ended_ms=one.ended_ms, next_ms=None, tries=1
                )
            while await store.due_jobs.delete_old_jobs(NOW_MS + 10, 100):
                pass
            assert set(await store.jobs.find_many(i for i, _ in claims)) == {locked.id}


@SERVERS
async def test_a_worker_and_a_row_that_somebody_keeps_locked(servers, redis_socket, tmp_path, kind):
    """It calls the other jobs meanwhile, and the locked one when it is free: once, with no failure
    counted. An online job is called all the same."""
    async with bench(redis_socket, tmp_path, servers(kind).url) as here:
        target = await here.target(kinds=["offline", "online"], concurrency=20)
        ids = [await here.submit(target) for _ in range(4)]
        online = [await here.submit(target, kind="online") for _ in range(2)]
        here.egress.over.set()
        locked = [ids[0], online[0]]
        lock = select(jobs.c.id).where(jobs.c.id.in_(locked)).order_by(jobs.c.id).with_for_update()
        async with running(here.worker(target, most=20).run()):
            async with sql.begin(here.store.engine) as connection:
                await connection.execute(lock)
                await until(lambda: set(here.egress.called) == {*ids[1:]})
                for id_ in online:
                    while (await here.jobs.view([await here.row(id_)]))[0].permit is None:
                        await asyncio.sleep(0.01)
            here.time.forward(60)
            await until(lambda: {*here.egress.called} == {*ids})
            while not (row := await here.row(ids[0])).is_ended:
                await asyncio.sleep(0.01)
        assert (row.state, row.attempts, row.failures) == (State.COMPLETED, 1, 0)
        assert len(here.egress.called) == len(ids)


@SERVERS
async def test_a_connection_that_only_reads_is_dropped(servers, open_store, kind):
    """After a failover a connection may lead to a server that refuses to write. It is not used
    again, so that the next one leads to the new server; neither in the history."""
    server = servers(kind)
    store = await open_store(server.url)
    history = History(sql.open_database(server.url), partitions=2)
    await history.migrate()
    switch = {
        Mariadb: "SET GLOBAL tx_read_only = {}",
        Postgresql: "ALTER DATABASE history SET default_transaction_read_only = {}",
    }[kind]
    admin = sql.open_database(server.url)

    async def set_read_only(value: str) -> None:
        async with sql.begin(admin) as connection:
            await connection.execute(text(switch.format(value)))

    async def write(engine, table) -> None:
        async with sql.begin(engine) as connection:
            await connection.execute(delete(table))

    try:
        for engine, table in ((store.engine, jobs), (history._engine, entries)):
            await engine.dispose()
            await set_read_only("ON")
            async with sql.begin(engine) as first, sql.begin(engine) as second:
                for connection in (first, second):
                    await connection.execute(text("SELECT 1"))
            await set_read_only("OFF")  # for connections that are made from now on
            with pytest.raises(DatabaseError, match=r"(?i)read.only"):
                await write(engine, table)
            await asyncio.gather(*(write(engine, table) for _ in range(2)))
    finally:
        await set_read_only("OFF")
        await admin.dispose()
        await history.close()


@pytest.mark.full  # make test installs no driver of MySQL
@pytest.mark.parametrize("code", [1290, 1836])
async def test_a_mysql_that_only_reads_is_left(servers, open_store, code):
    """With either of the errors by which MySQL and MariaDB refuse to write, the connection ends."""
    store = await open_store(servers(Mariadb).url)

    async def connection_id() -> int:
        async with sql.begin(store.engine) as connection:
            return (await connection.execute(text("SELECT CONNECTION_ID()"))).scalar_one()

    before = await connection_id()
    assert await connection_id() == before
    refuse = f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'read-only'"
    with pytest.raises(DatabaseError, match="read-only"):
        async with sql.begin(store.engine) as connection:
            await connection.execute(text(refuse))
    assert await connection_id() != before


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
    ending = AttemptEnd("a", 1, State.COMPLETED, 1)
    rows, attempts, endings, targets = store.jobs, store.attempts, store.due_jobs, store.targets
    asked = [
        store.check(), store.migrate(), rows.insert(job()), rows.find("a"),
        rows.find_many(["a"]), rows.find_by_key("a", "b"), store.search.find_page(JobQuery()),
        store.search.count(JobQuery()), store.search.group_failed_jobs(JobQuery()),
        anext(rows.read_body("a")), rows.read_request_body("a"),
        attempts.start([("a", 1)], at_ms=1), attempts.finish(ending),
        attempts.add_chunk("a", 1, 0, b""),
        attempts.mark_called("a", 1, at_ms=1), attempts.mark_permit_used("a", 1, at_ms=1),
        rows.cancel("a", at_ms=1, expires_ms=1),
        rows.retry("a", order=1, at_ms=1, expires_ms=1),
        rows.mark_read("a", at_ms=1, expires_ms=1), attempts.list_waiting_jobs("a", None, 1),
        attempts.list_running_jobs("a"), attempts.find_last_start_ms("a"), rows.count_by_state(),
        attempts.find_busy_targets(["a"]), endings.expire_jobs(1, 1, {}),
        endings.delete_old_jobs(1, 1),
        endings.claim_callbacks(1, 1, claim_ms=1),
        endings.record_callback("a", ended_ms=1, next_ms=1, tries=1), targets.all(),
        targets.put("a", "{}", 1), targets.delete("a"), rows.count_ended_jobs("a", 1, 2, 1),
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
