"""Old rows are deleted or moved, and stays without an end are closed."""

import pytest

from sidecar.history import worker
from sidecar.history.model import Period
from sidecar.history.store.tables import entries, entries_archive, events, events_archive
from sidecar.history.worker import close_stuck_stays, tidy_room
from sidecar.kit.errors import DatabaseError
from sidecar.rooms.redis_keys import room_key
from sidecar.settings.model import Settings
from sidecar.storage.sql import database as sql
from tests.support.visitors import beat_all, go_in, queue


def settings(it, **changed) -> Settings:
    return Settings(secret_keys=["k" * 32], rooms={it.room.name: it.room.file_settings}, **changed)


async def turn_ids(it):
    """Give events the ids that the test's clock would have given them."""
    turned = (events.c.seq, 1000 * events.c.ms + events.c.seq), (events.c.ms, events.c.at_ms)
    async with sql.begin(it.history._engine) as connection:
        which = events.c.room == it.room.name
        await connection.execute(events.update().where(which).ordered_values(*turned))


@pytest.mark.parametrize("archive", ["drop", "move"])
async def test_what_is_old_goes(record, database, turn, monkeypatch, archive):
    """Old rows go in batches. Stays that have not ended or ended a moment ago remain."""
    monkeypatch.setattr(worker, "TIDY_BATCH", 3)
    it = await record(database.url, total_active_users=1)
    await go_in(it.room.store)
    old = await queue(it.room.store, 5)
    for ticket in old:
        await it.room.store.leave(ticket.visitor)
    [waits, late] = await queue(it.room.store, 2)
    await beat_all(it.room.store, [waits, late])
    await it.record()
    assert await it.count(events) == 13
    turn.forward(2 * 3600)
    await it.room.store.leave(late.visitor)
    await it.record()
    await turn_ids(it)
    chosen = settings(it, history_retention=3600, history_archive=archive)
    await tidy_room(it.room, it.history, chosen, it.metrics)
    left = {
        entry.visitor async for entry in it.history.read_stays(it.room.name, Period(0, 2 * turn()))
    }
    assert len(left) == 3
    assert {waits.visitor, late.visitor} < left
    moved = archive == "move"
    assert await it.count(entries_archive) == (5 if moved else 0)
    assert await it.count(events_archive) == (13 if moved else 0)
    await tidy_room(it.room, it.history, chosen, it.metrics)
    told = await it.count(events)  # of the session that ran out, and of the two in line
    assert (await it.count(entries), told) == (3, 3)


async def test_it_goes_on_where_it_was_stopped(record, sqlite, turn, monkeypatch):
    """A batch is moved completely or not at all."""
    monkeypatch.setattr(worker, "TIDY_BATCH", 2)
    it = await record(sqlite.url, total_active_users=0)
    for ticket in await queue(it.room.store, 5):
        await it.room.store.leave(ticket.visitor)
    await it.record()
    turn.forward(2 * 3600)
    chosen = settings(it, history_retention=3600, history_archive="move")
    retire, calls = it.history.retire, []

    async def stopped(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise DatabaseError("stopped")
        return await retire(*args, **options)

    monkeypatch.setattr(it.history, "retire", stopped)
    with pytest.raises(DatabaseError):
        await tidy_room(it.room, it.history, chosen, it.metrics)
    assert (await it.count(entries), await it.count(entries_archive)) == (3, 2)
    await tidy_room(it.room, it.history, chosen, it.metrics)
    assert (await it.count(entries), await it.count(entries_archive)) == (0, 5)


async def test_a_stay_that_was_archived_and_goes_on_is_archived_again(record, database, turn):
    """If the visitor returns with the ticket, the archive gets the latest end."""
    it = await record(database.url, total_active_users=0, heartbeat_timeout=60)
    [ticket] = await queue(it.room.store, 1)
    chosen = settings(it, history_retention=3600, history_archive="move")
    for _ in range(2):
        await it.room.store.beat(ticket)
        turn.forward(200)
        await it.room.store.sweep()
        await it.record()
        turn.forward(2 * 3600)
        await tidy_room(it.room, it.history, chosen, it.metrics)
        assert (await it.count(entries), await it.count(entries_archive)) == (0, 1)


async def test_a_stay_whose_end_was_lost_is_closed(record, database, redis, turn):
    """The stay ends as stuck. Visitors in the queue or inside keep their stays, however long."""
    it = await record(database.url, session_duration=86_400, heartbeat_timeout=86_400)
    inside = await go_in(it.room.store)
    lost, waits = await queue(it.room.store, 2)
    await it.record()
    for _ in range(2):
        turn.forward(3600)
        await it.room.store.beat(waits)
        await it.room.store.renew(inside)
        for name in ("waiting", "due"):
            await redis.zrem(room_key(it.room.name, name), lost.visitor)
    await redis.delete(room_key(it.room.name, "events"))  # the events that would tell
    assert await close_stuck_stays(it.room, it.history, 3600) == 1
    assert (await it.entry(lost.visitor)).end_reason == "stuck"
    for visitor in (inside.visitor, waits.visitor):
        entry = await it.entry(visitor)
        assert (entry.ended_ms, entry.changed_ms) == (None, turn())
    assert await close_stuck_stays(it.room, it.history, 3600) == 0
