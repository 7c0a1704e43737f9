"""Events become rows: all of them, once, whatever fails in between.

HISTORY_FULL=1 in the environment records 100,000 of them at once, not 16,000."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text

from sidecar.history.model import Period, StreamEvent
from sidecar.history.store import stays
from sidecar.history.store.stays import History
from sidecar.history.store.tables import HISTORY, entries, events, metadata
from sidecar.history.worker import BATCH
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.retry import Backoff
from sidecar.rooms.adaptive.signals import PERCENT, RESPONSES, STEP_S, SUM_MS, find_bucket
from sidecar.rooms.adaptive.worker import adapt
from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.storage.sql import database as sql
from sidecar.visitors.tokens import new_visitor
from tests.support.databases import Mariadb, Postgresql
from tests.support.visitors import go_in, queue

IS_FULL = os.environ.get("HISTORY_FULL") == "1"


async def end_of(it, ticket):
    return (await it.entry(ticket.visitor)).end_reason


async def test_stays_are_told_as_they_were(record, database, turn):
    """Every kind of stay is recorded, but not a place in the queue that never polled."""
    it = await record(database.url, claim_window=7, heartbeat_timeout=20)
    store = it.room.store
    began = turn()
    inside = await go_in(store)
    first, left, released, moved, silent, waits = await queue(store, 6)
    turn.forward(2)
    for ticket in (first, left, released, moved, waits):
        await store.beat(ticket)
    await store.leave(left.visitor)
    await store.leave(released.visitor, why="released", by="night shift")
    await store.move(moved.visitor, 1, by="night shift")
    await store.leave(inside.visitor, why="released")
    turn.forward(6)  # the slot is free after its hold; who never polled has lost the place
    await store.sweep()
    called = await store.beat(moved)
    assert called.started_ms
    await store.beat(first)
    await store.beat(waits)
    assert await store.reset(by="night shift") == 2
    assert await it.record() > 10

    entry = await it.entry(moved.visitor)
    assert (entry.joined_ms, entry.queued_ms, entry.first_position) == (began, began, 4)
    assert (entry.moved_ms, entry.last_position) == (began + 2000, 1)
    assert (entry.admitted_ms, entry.ended_ms) == (turn(), None)
    assert entry.queue_order < first.order
    entry = await it.entry(inside.visitor)
    assert (entry.queued_ms, entry.admitted_ms, entry.end_reason) == (None, began, "finished")
    assert await end_of(it, left) == "left"
    assert await end_of(it, released) == "released"
    assert await it.entry(silent.visitor) is None
    assert await it.history.find_events(it.room.name, silent.visitor, limit=9) == []
    assert await end_of(it, first) == await end_of(it, waits) == "reset"
    period = Period(0, 2 * turn())
    acts = await it.history.read_changes(it.room.name, period, limit=9)
    assert [(act.operator, act.action, act.visitor) for act in acts] == [
        ("night shift", "reset", ""),
        ("night shift", "move", moved.visitor),
        ("night shift", "release", released.visitor),
    ]
    # Page by page nobody is left out, though all three are of one millisecond.
    paged, options = [], {"limit": 1}
    while page := await it.history.read_changes(it.room.name, period, **options):
        paged += page
        options["before"] = page[-1].ms, page[-1].seq
    assert paged == acts
    told = await it.history.find_events(it.room.name, moved.visitor, limit=99)
    assert [event.kind for event in told] == ["joined", "operator", "called", "admitted"]
    assert (await store.snapshot()).events == 0


async def test_a_visitor_who_comes_back_goes_on_with_the_stay(record, database, turn):
    """A visitor who returns, after Redis was emptied or after a silence, has one stay."""
    it = await record(database.url, total_active_users=0, claim_window=7, heartbeat_timeout=20)
    store = it.room.store
    [ticket] = await queue(store, 1)
    began = turn()
    await it.record()
    await it.room.store._redis.delete(*room_keys(it.room.name))
    turn.forward(30)
    assert (await store.beat(ticket)).started_ms == 0
    turn.forward(90)  # who comes back may poll once a minute
    await store.sweep()
    await it.record()
    assert await end_of(it, ticket) == "swept"
    await store.beat(ticket)
    await it.record()
    entry = await it.entry(ticket.visitor)
    assert (entry.joined_ms, entry.returns, entry.end_reason) == (began, 2, None)
    assert entry.queued_ms == turn()


async def test_a_database_that_stops_loses_nothing(record, database, monkeypatch):
    """Events wait while the database is down, and are written when it is back."""
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    it = await record(database.url, total_active_users=0)
    before = await queue(it.room.store, 3)
    assert await it.record() == 3
    database.stop()
    try:
        after = await queue(it.room.store, 4)
        for _ in range(2):
            with pytest.raises(DatabaseError, match=r"\w"):
                await it.recorder.record(it.room, it.stream)
    finally:
        database.start()
    after += await queue(it.room.store, 2)
    assert await it.record() == 6
    assert await it.count(events) == await it.count(entries) == 9
    for ticket in before + after:
        entry = await it.entry(ticket.visitor)
        assert entry.queue_order == ticket.order


KILLED = """
import asyncio, os, signal, sys
from sidecar.storage.redis.connect import connect
from sidecar.history.store.stays import History
from sidecar.storage.sql.database import open_database
from sidecar.history.store.event_stream import EventStream

async def main(redis, url, room):
    stream = EventStream(connect(redis, timeout_s=5), room, owner="other", timeout_s=5)
    assert await stream.lease.hold(milliseconds=60000)
    batch = await stream.read(3)
    await History(open_database(url), partitions=1).write(room, batch.events)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_recorder_that_is_killed_between_write_and_acknowledge(
    record, database, redis_socket
):
    """The next recorder reads the batch again, and no event is written twice."""
    it = await record(database.url, total_active_users=0)
    await queue(it.room.store, 5)
    killed = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, f"unix://{redis_socket}", database.url, it.room.name],
        check=False,
        timeout=60,
    )
    assert killed.returncode == -signal.SIGKILL
    assert await it.count(events) == 3
    assert not await it.stream.lease.hold(milliseconds=1000), "its turn has not run out"
    assert await it.record() == 5
    assert await it.count(events) == await it.count(entries) == 5
    entry = await it.entry((await it.room.store.lists.queue(offset=0, limit=1))[0][0])
    assert (entry.returns, entry.first_position) == (0, 1)


async def test_two_recorders_at_once(record, database):
    """Events that two recorders write are in the database once."""
    one = await record(database.url, total_active_users=0)
    two = await record(database.url, name=one.room.name, owner="two", total_active_users=0)
    await queue(one.room.store, 40)

    async def race(it):
        try:
            return await it.record()
        except DatabaseError:  # the other was first; as in the loop, it is tried again
            return await it.record()

    await asyncio.gather(race(one), race(two))
    assert await one.count(events) == await one.count(entries) == 40
    assert (await one.room.store.snapshot()).events == 0


@pytest.mark.slow
async def test_thousands_of_events(record, database):
    """No event is lost or written twice, and the stream is empty afterwards."""
    stays = 25_000 if IS_FULL else 4_000
    it = await record(database.url)
    redis, key = it.room.store._redis, room_key(it.room.name, "events")
    visitors = [new_visitor() for _ in range(stays)]
    steps = (("joined", "new"), ("called", "head"), ("admitted", "claimed"), ("expired", "session"))
    for start in range(0, len(visitors), 100):
        pipe = redis.pipeline(transaction=False)
        for kind, why in steps:
            for n, visitor in enumerate(visitors[start : start + 100], start):
                more = {"order": n, "joined": 1000, "position": n + 1} if kind == "joined" else {}
                pipe.xadd(key, {"kind": kind, "visitor": visitor, "why": why, "at": 2000, **more})
        await pipe.execute()
    assert await it.record() == 4 * stays
    assert (await it.count(events), await it.count(entries)) == (4 * stays, stays)
    assert await redis.xlen(key) == 0
    async with sql.begin(it.history._engine) as connection:
        whole = select(func.count()).where(
            entries.c.room == it.room.name,
            entries.c.joined_ms == 1000,
            entries.c.admitted_ms == 2000,
            entries.c.end_reason == "session",
        )
        assert (await connection.execute(whole)).scalar_one() == stays


@pytest.mark.parametrize("kind", [Mariadb, Postgresql], ids=lambda kind: kind.kind)
async def test_a_database_that_hangs_is_not_waited_for(record, servers, monkeypatch, kind):
    """A frozen database is an error after a while, and the events are written later."""
    database = servers(kind)
    it = await record(database.url, total_active_users=0)
    await queue(it.room.store, 1)
    assert await it.record() == 1
    await queue(it.room.store, 2)
    monkeypatch.setattr(sql, "ANSWER_S", 0.5)
    database.freeze()
    try:
        with pytest.raises(DatabaseError, match="in time"):
            await it.recorder.record(it.room, it.stream)
    finally:
        database.thaw()
    monkeypatch.undo()
    assert await it.record() == 2
    assert await it.count(events) == await it.count(entries) == 3


@pytest.mark.full
async def test_a_migration_that_was_killed_can_be_repeated(servers):
    """MariaDB keeps tables without a version then. Tables with rows are never dropped."""
    history = History(sql.open_database(servers(Mariadb).url), partitions=2)
    engine = history._engine
    try:
        await history.migrate()
        async with sql.begin(engine) as connection:
            for name in metadata.tables:
                await connection.execute(text(f"DELETE FROM {name}"))
            await connection.execute(text("DELETE FROM waitroom_version"))
            await connection.execute(text("DROP TABLE waitroom_changes"))
        await history.migrate()
        assert await sql.read_revision(engine, HISTORY) == HISTORY.revision
        await history.write("shop", [StreamEvent(1, 0, "joined", "v" * 22, "new", 1)])
        async with sql.begin(engine) as connection:
            await connection.execute(text("DELETE FROM waitroom_version"))
        with pytest.raises(DatabaseError, match="has rows"):
            await history.migrate()
    finally:
        async with sql.begin(engine) as connection:
            await connection.execute(text("DELETE FROM waitroom_version"))
            await connection.execute(
                text(f"INSERT INTO waitroom_version VALUES ('{HISTORY.revision}')")
            )
        await history.close()


# What depends on no database ---------------------------------------------------------------------


async def test_the_stream_is_trimmed_when_it_was_written_and_not_before(record, sqlite):
    """Reading a batch does not trim the stream, writing the batch does."""
    it = await record(sqlite.url, total_active_users=0)
    await asyncio.gather(*(it.room.store.enter(new_visitor()) for _ in range(BATCH + 7)))
    await it.stream.read(BATCH)
    assert (await it.room.store.snapshot()).events == BATCH + 7
    assert await it.recorder.record(it.room, it.stream) == BATCH
    assert (await it.room.store.snapshot()).events == 7
    assert await it.recorder.record(it.room, it.stream) == 7
    assert (await it.room.store.snapshot()).events == 0


async def test_one_replica_records_and_another_takes_over(record, sqlite):
    """One replica holds and extends the lease; another gets it when it is given up."""
    one = await record(sqlite.url)
    two = await record(sqlite.url, name=one.room.name, owner="two")
    assert await one.stream.lease.hold(milliseconds=60000)
    assert not await two.stream.lease.hold(milliseconds=60000)
    assert await one.stream.lease.hold(milliseconds=60000)
    await two.stream.lease.give_up()
    assert not await two.stream.lease.hold(milliseconds=60000)
    await one.stream.lease.give_up()
    assert await two.stream.lease.hold(milliseconds=60000)


async def test_a_store_that_forgot_the_group_gets_it_again(record, sqlite):
    """After Redis was emptied new events are recorded."""
    it = await record(sqlite.url, total_active_users=0)
    await queue(it.room.store, 1)
    assert await it.record() == 1
    await it.room.store._redis.delete(*room_keys(it.room.name))
    await queue(it.room.store, 2)
    assert await it.record() + await it.record() == 2
    assert await it.count(entries) == 3


async def test_events_given_away_are_counted_as_lost(record, sqlite):
    """Events that were trimmed after they were read, because the stream was full, are lost."""
    it = await record(sqlite.url, total_active_users=0)
    await queue(it.room.store, 5)
    await it.stream.read(BATCH)
    await it.room.store._redis.xtrim(room_key(it.room.name, "events"), maxlen=2, approximate=False)
    batch = await it.stream.read(BATCH)
    assert (len(batch.events), batch.lost_count) == (2, 3)
    assert await it.record() == 2


async def test_tables_of_another_version_are_not_written(record, sqlite, monkeypatch):
    """Tables of another version are refused, with the command to run."""
    it = await record(sqlite.url, total_active_users=0)
    await queue(it.room.store, 1)
    monkeypatch.setattr(stays, "HISTORY", replace(HISTORY, revision="9999"))
    with pytest.raises(DatabaseError, match="revision 0001: run waitroom migrate"):
        await it.recorder.record(it.room, it.stream)
    monkeypatch.undo()
    assert await it.record() == 1


async def test_a_slow_recorder_overtakes_nobody(record, sqlite):
    """A recorder that lost its lease first reads the events that the other recorder has read."""
    it = await record(sqlite.url, total_active_users=0)
    other = await record(sqlite.url, name=it.room.name, owner="two", total_active_users=0)
    assert (await it.stream.read(BATCH)).events == []
    first, second, third = await queue(it.room.store, 3)
    taken = await other.stream.read(2)
    assert [event.visitor for event in taken.events] == [first.visitor, second.visitor]
    again = await it.stream.read(2)
    assert again.events == taken.events
    assert await it.record() == 3
    assert (await it.entry(third.visitor)).first_position == 3


async def test_a_full_backlog_is_told_once(record, sqlite, capsys):
    """A full backlog is logged once, and again after it was empty."""
    it = await record(sqlite.url, total_active_users=0)
    it.recorder._backlog = 2
    for _ in range(2):
        await queue(it.room.store, 3)
        await it.room.refresh()
        for _ in range(3):
            it.recorder._set_gauges(it.room)
        await it.record()
        await it.room.refresh()
        it.recorder._set_gauges(it.room)
    assert "".join(capsys.readouterr()).count("backlog_full") == 2


async def test_a_files_tables_are_made_once(sqlite):
    """Replicas that start at the same time create the tables of a file once."""
    histories = [History(sql.open_database(sqlite.url), partitions=1) for _ in range(2)]
    try:
        await asyncio.gather(*(history.check() for history in histories for _ in range(5)))
        assert await sql.read_revision(histories[0]._engine, HISTORY) == HISTORY.revision
        assert await histories[0].find_stay("shop", "a" * 22) is None
    finally:
        for history in histories:
            await history.close()


async def test_the_recorder_runs_by_itself(record, sqlite, monkeypatch):
    """The recorder goes on after errors of Redis and the database, and counts events and errors."""
    monkeypatch.setattr("sidecar.history.worker.CHECK_S", 0.01)
    monkeypatch.setattr("sidecar.history.worker.BACKOFF", Backoff(0.01, 15))
    it = await record(sqlite.url, total_active_users=0)
    await queue(it.room.store, 2)
    await it.room.refresh()
    failures = [DatabaseError("away"), StoreError("slow")]
    read = it.stream.read

    async def fail_first(limit):
        if failures:
            raise failures.pop()
        return await read(limit)

    monkeypatch.setattr(it.stream, "read", fail_first)
    task = asyncio.create_task(it.recorder.run(it.room, it.stream))

    def value(name):
        return it.metrics.registry.get_sample_value(name, {"room": it.room.name})

    async with asyncio.timeout(10):
        while value("waitroom_recorder_written_total") != 2:
            await asyncio.sleep(0.01)
    assert value("waitroom_recorder_errors_total") == 1
    assert value("waitroom_recorder_backlog") == 2
    await it.room.refresh()
    async with asyncio.timeout(10):
        while value("waitroom_recorder_backlog") != 0:
            await asyncio.sleep(0.01)
    assert value("waitroom_recorder_lag_seconds") == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await it.stream.lease.hold(milliseconds=1000), "the turn was given up"


async def test_the_states_of_an_adaptive_rooms_site_are_recorded(record, sqlite):
    """Each change between trouble and health is among the room's changes; strain is not."""
    it = await record(sqlite.url, total_active_users=9, adaptive={"p90": 1.2, "min": 2})
    await go_in(it.room.store)
    for header_s in (0.1, 0.1, 5.0, 5.0):
        it.turn.forward(60)
        step = it.turn() // 1000 // STEP_S
        counts = Counter({RESPONSES: 90, PERCENT: 9000, SUM_MS: round(90_000 * header_s)})
        counts[find_bucket(header_s)] = 90
        await it.room.store.count_responses(step, counts)
        await adapt(it.room, await it.room.refresh())
    await it.record()
    acts = await it.history.read_changes(it.room.name, Period(0, 2 * it.turn()), limit=9)
    assert [(act.operator, act.action) for act in acts] == 2 * [("waitroom", "site")]
    assert acts[0].detail.startswith("overloaded (holding: p90 ")
    assert acts[1].detail.startswith("healthy (1 inside, ")
