"""Passes and the sessions behind them: what the model meets seldom, or does not say."""

import pytest

from sidecar.visitors.model import Pass, QueueOutcome
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.verdict_lifetime import SESSION_GRACE_MS
from tests.support.visitors import go_in, lose, pass_of

WAITING, ADMITTED, GONE = QueueOutcome.WAITING, QueueOutcome.ADMITTED, QueueOutcome.GONE

GRACE_S = SESSION_GRACE_MS / 1000


# Renewals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"session_duration": 5}, {"session_max_duration": 10}, {"disable_session_renewal": True}],
)
async def test_what_a_pass_promised_is_kept_when_settings_change(open_room, turn, changes):
    """A copy of the old pass is valid until its end, so the session lasts as long."""
    store, first, _ = await open_room(session_duration=60)
    turn.forward(50)
    second = pass_of(first.visitor, await store.renew(first))
    await store.configure(changes)
    turn.forward(1)
    assert (await store.renew(second)).expires_ms == second.expires_ms
    turn.now_ms = second.expires_ms
    assert (await store.snapshot()).active == 1
    turn.forward(GRACE_S)
    assert (await store.snapshot()).active == 0


# A lost store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"disable_session_renewal": True}])
async def test_a_pass_by_a_clock_that_was_ahead_holds_no_slot_for_longer(
    make_room_store, turn, settings
):
    """A replica that did not know the time of Redis gave a pass from the future."""
    store = make_room_store(session_duration=10, **settings)
    visitor, ahead = new_visitor(), turn() + 3_600_000
    given = Pass(visitor, ahead * 1000, ahead, 0, ahead, renewed_ms=0, expires_ms=ahead + 10_000)
    restored = await store.renew(given)
    assert (restored.started_ms, restored.expires_ms) == (turn(), turn() + 10_000)
    turn.forward(10 + GRACE_S)
    assert (await store.snapshot()).active == 0


async def test_a_lost_session_is_not_kept_out_by_sessions_that_ran_out(redis, open_room, turn):
    """Expired sessions end first, so a slot is free."""
    store, pass_, _ = await open_room(session_duration=60)
    await lose(redis, store)
    await store.configure({"session_duration": 5})
    await go_in(store)
    turn.forward(5 + GRACE_S)
    renewed = await store.renew(pass_)
    assert (renewed.outcome, renewed.started_ms) == (ADMITTED, pass_.started_ms)


# Leaving ----------------------------------------------------------------------------------------


async def test_who_came_in_at_once_and_left_is_remembered_as_long_as_a_pass(open_room, turn):
    """Such a visitor never had a ticket."""
    store, pass_, _ = await open_room(session_duration=300)
    assert await store.leave(pass_.visitor)
    assert (await store.snapshot()).remembered == 1
    turn.forward(300)
    assert (await store.sweep()).revocations == 0
    assert (await store.renew(pass_)).outcome is GONE
    turn.forward(60)
    assert (await store.sweep()).revocations == 1
    assert (await store.snapshot()).remembered == 0


async def test_who_left_the_queue_is_nothing_that_a_replica_reads_at_its_start(open_room, turn):
    """Snapshots have revoked passes only. Tickets are looked up when they are shown."""
    store, _, tickets = await open_room(waiting=3, session_duration=300)
    for ticket in tickets:
        await store.leave(ticket.visitor)
    turn.forward(360)
    await store.sweep()
    snapshot = await store.snapshot()
    assert (snapshot.revoked, snapshot.remembered) == ({}, 3)
    assert {(await store.beat(ticket)).outcome for ticket in tickets} == {GONE}


async def test_a_shorter_session_duration_forgets_no_pass_that_is_longer(make_room_store, turn):
    """The revocation is stored as long as the old pass is valid."""
    store = make_room_store(total_active_users=2, session_duration=600)
    pass_, other = await go_in(store), await go_in(store)
    await store.configure({"session_duration": 30})
    await store.leave(pass_.visitor)
    turn.forward(500)
    assert (await store.sweep()).revocations == 0
    snapshot = await store.snapshot()
    assert pass_.visitor in snapshot.revoked
    assert snapshot.drop_expired_revocations(snapshot.revoked, 30_000) == snapshot.revoked
    assert (await store.renew(pass_)).outcome is GONE
    await store.renew(other)  # keeps what it was promised, and no more
    turn.forward(100)
    assert (await store.sweep()).revocations == 1


async def test_a_session_older_than_the_store_may_have_a_ticket_that_the_store_forgot(
    redis, open_room, turn
):
    """After the visitor left, the old ticket is void too."""
    store, _, [ticket] = await open_room(waiting=1, session_duration=10)
    turn.forward(10 + GRACE_S)
    pass_ = pass_of(ticket.visitor, await store.beat(ticket))
    await lose(redis, store)
    turn.forward(1)
    assert (await store.renew(pass_)).outcome is ADMITTED
    await store.leave(ticket.visitor)
    turn.forward(10 + 60)
    await store.sweep()
    assert (await store.beat(ticket)).outcome is GONE


async def test_a_snapshot_tells_who_was_revoked_since(make_room_store, turn):
    """So every replica refuses revoked passes within a second."""
    store = make_room_store(total_active_users=2)
    first, second = await go_in(store), await go_in(store)
    await store.leave(first.visitor)
    turn.forward(1)
    since = turn()
    await store.leave(second.visitor, why="released")
    assert set((await store.snapshot()).revoked) == {first.visitor, second.visitor}
    assert (await store.snapshot(revoked_since_ms=since)).revoked == {second.visitor: since}
