"""Passes and the sessions behind them, one story each."""

import asyncio

import pytest

from sidecar.visitors.model import Pass, QueueOutcome
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support.visitors import go_in, lose, pass_of, queue

WAITING, ADMITTED, GONE = QueueOutcome.WAITING, QueueOutcome.ADMITTED, QueueOutcome.GONE

GRACE_S = SESSION_GRACE_MS / 1000
HOLD_S = RELEASE_HOLD_MS / 1000


# Renewals ---------------------------------------------------------------------------------------


async def test_a_session_outlives_its_pass_by_the_grace(open_room, turn):
    """The slot stays taken while a cached verdict may still accept the pass."""
    store, pass_, _ = await open_room(session_duration=10)
    assert pass_.expires_ms == turn() + 10_000
    turn.now_ms = pass_.expires_ms + SESSION_GRACE_MS - 1
    assert (await store.snapshot()).active == 1
    turn.forward(0.001)
    assert (await store.snapshot()).active == 0


async def test_a_renewal_begins_the_session_duration_anew(open_room, turn):
    """The session's beginning stays, and renewing is idempotent."""
    store, pass_, _ = await open_room(session_duration=10)
    turn.forward(9)
    first, second = await asyncio.gather(store.renew(pass_), store.renew(pass_))
    assert first == second
    assert (first.outcome, first.expires_ms) == (ADMITTED, turn() + 10_000)
    assert first.started_ms == pass_.started_ms
    assert (await store.snapshot()).counters["admitted"] == 1


async def test_a_replica_whose_clock_is_late_finds_the_session(open_room, turn):
    """Sessions expire after the renewals of a batch."""
    store, pass_, [ticket] = await open_room(waiting=1, session_duration=10)
    turn.forward(10 + GRACE_S + 1)
    assert (await store.renew(pass_)).outcome is ADMITTED
    assert (await store.beat(ticket)).outcome is WAITING
    assert "expired" not in (await store.snapshot()).counters


async def test_a_fixed_term_is_no_longer_for_a_lost_store(redis, open_room, turn):
    """A restored session ends when it would have ended."""
    store, pass_, _ = await open_room(session_duration=10, disable_session_renewal=True)
    turn.forward(6)
    await lose(redis, store)
    assert (await store.renew(pass_)).expires_ms == pass_.expires_ms


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


async def test_a_lost_session_comes_back_from_its_pass(redis, open_room, turn):
    """The session has its old beginning, if a slot is free."""
    store, pass_, _ = await open_room(session_duration=10)
    turn.forward(5)
    await lose(redis, store)
    renewed = await store.renew(pass_)
    assert (renewed.outcome, renewed.started_ms) == (ADMITTED, pass_.started_ms)
    assert (await store.snapshot()).active == 1


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


async def test_a_lost_session_whose_slot_was_given_away_is_next(redis, open_room, turn):
    """The visitor waits at the old order, ahead of later visitors."""
    store, pass_, _ = await open_room(session_duration=10)
    await lose(redis, store)
    turn.forward(1)
    await go_in(store)
    [later] = await queue(store, 1)
    renewed = await store.renew(pass_)
    assert (renewed.outcome, renewed.ahead, renewed.order) == (WAITING, 0, pass_.order)
    assert (await store.beat(later)).ahead == 1
    turn.forward(8)
    again = await store.renew(pass_)
    assert (again.outcome, again.ahead, again.waiting) == (WAITING, 0, 2)


async def test_a_lost_session_is_not_kept_out_by_sessions_that_ran_out(redis, open_room, turn):
    """Expired sessions end first, so a slot is free."""
    store, pass_, _ = await open_room(session_duration=60)
    await lose(redis, store)
    await store.configure({"session_duration": 5})
    await go_in(store)
    turn.forward(5 + GRACE_S)
    renewed = await store.renew(pass_)
    assert (renewed.outcome, renewed.started_ms) == (ADMITTED, pass_.started_ms)


async def test_lost_sessions_that_queue_in_one_batch_see_the_same_line(redis, make_room_store):
    """Each reply has the position among all visitors of the batch."""
    store = make_room_store(total_active_users=3)
    passes = [await go_in(store) for _ in range(3)]
    await lose(redis, store)
    await store.configure({"total_active_users": 0})
    replies = await asyncio.gather(*(store.renew(pass_) for pass_ in reversed(passes)))
    assert [(reply.ahead, reply.waiting) for reply in replies] == [(2, 3), (1, 3), (0, 3)]


@pytest.mark.parametrize("fixed", [False, True])
async def test_a_called_bearer_of_a_pass_gets_a_whole_session(redis, make_room_store, turn, fixed):
    """The visitor gets a new session, not the rest of the provisional one."""
    store = make_room_store(
        session_duration=60, claim_window=5, disable_session_renewal=fixed, heartbeat_interval=5
    )
    lost = await go_in(store)
    await lose(redis, store)
    other = await go_in(store)
    assert (await store.renew(lost)).outcome is WAITING
    await store.leave(other.visitor)
    turn.forward(HOLD_S)
    assert (await store.snapshot()).provisional == 1
    admitted = await store.renew(lost)
    assert (admitted.started_ms, admitted.expires_ms) == (turn(), turn() + 60_000)
    assert (await store.snapshot()).provisional == 0


# Leaving ----------------------------------------------------------------------------------------


async def test_a_called_visitor_who_leaves_frees_the_slot_at_once(open_room, turn):
    """No pass was given for the slot."""
    store, _, (first, second) = await open_room(waiting=2, session_duration=10)
    turn.forward(10 + GRACE_S)
    assert (await store.snapshot()).provisional == 1
    assert await store.leave(first.visitor)
    [(called, _)] = await store.lists.sessions(offset=0, limit=9)
    assert called == second.visitor
    assert (await store.beat(second)).outcome is ADMITTED


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
    assert snapshot.keep_unexpired(snapshot.revoked, 30_000) == snapshot.revoked
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


async def test_leaving_without_a_place_changes_nothing_but_voids_the_token(redis, make_room_store):
    """The ticket of a visitor who left cannot restore the lost place."""
    store = make_room_store(total_active_users=0)
    [ticket] = await queue(store, 1)
    await lose(redis, store)
    assert not await store.leave(ticket.visitor)
    assert (await store.beat(ticket)).outcome is GONE
    assert not await store.leave(new_visitor())
