"""Coming in, being called and leaving, one story each.

Those of heartbeats and passes are in test_heartbeats.py and test_sessions.py;
test_model.py drives all scripts at random.
"""

import asyncio

from sidecar.visitors.model import TICKET_LIFETIME_MS, QueueOutcome
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.verdict_lifetime import SESSION_GRACE_MS
from tests.support.visitors import beat_all, go_in, lose, queue

WAITING, ADMITTED, GONE = QueueOutcome.WAITING, QueueOutcome.ADMITTED, QueueOutcome.GONE

GRACE_S = SESSION_GRACE_MS / 1000


# Coming in ------------------------------------------------------------------------------------


async def test_of_many_racers_exactly_as_many_as_fit_come_in(make_room_store):
    """A hundred newcomers come to each of four replicas at the same time, for five slots."""
    name = f"race-{new_visitor().lower()}"
    replicas = [make_room_store(room=name, total_active_users=5) for _ in range(4)]
    standings = await asyncio.gather(
        *(store.enter(new_visitor()) for _ in range(100) for store in replicas)
    )
    outcomes = [standing.outcome for standing in standings]
    assert (outcomes.count(ADMITTED), outcomes.count(WAITING)) == (5, 395)
    assert len({standing.order for standing in standings}) == 400


# Calls ----------------------------------------------------------------------------------------


async def test_a_call_that_nobody_answers_goes_to_the_next(open_room, turn):
    """The provisional session ends claim_window after the due heartbeat."""
    store, _, tickets = await open_room(
        waiting=2, session_duration=10, claim_window=5, heartbeat_interval=GRACE_S + 1
    )
    turn.forward(10)
    await beat_all(store, tickets)
    turn.forward(GRACE_S)
    called = await store.snapshot()
    assert (called.active, called.provisional, called.waiting) == (1, 1, 1)
    turn.forward(1 + 5 - 0.001)
    assert (await store.beat(tickets[1])).outcome is WAITING
    turn.forward(0.001)
    assert (await store.beat(tickets[1])).outcome is ADMITTED
    assert (await store.snapshot()).counters["expired_no_show"] == 1


async def test_whoever_was_told_to_come_in_a_minute_still_finds_the_slot(make_room_store, turn):
    """A call lasts until the due heartbeat, and claim_window longer."""
    store = make_room_store(
        session_duration=10, claim_window=5, heartbeat_interval=60, heartbeat_timeout=120
    )
    await go_in(store)
    [ticket] = await queue(store, 1)
    assert (await store.beat(ticket)).refresh_ms == 60_000
    turn.forward(10 + GRACE_S)
    assert (await store.snapshot()).provisional == 1
    turn.forward(60 - 10 - GRACE_S + 4.9)
    assert (await store.beat(ticket)).outcome is ADMITTED


async def test_a_store_whose_clock_jumps_back_keeps_the_rate(open_room, turn):
    """After a failover the clock may be an hour behind, and calls must not stop for an hour."""
    store, _, _ = await open_room(total_active_users=100, new_users_per_minute=60)
    turn.forward(-3600)
    await go_in(store)
    [ticket] = await queue(store, 1)
    turn.forward(1)
    assert (await store.beat(ticket)).outcome is ADMITTED


async def test_a_long_row_of_silent_places_is_passed_over_piece_by_piece(open_room, turn):
    """One script checks 150 places, and no newcomer is admitted before the others are checked."""
    store, _, _ = await open_room(session_duration=100)
    await asyncio.gather(*(store.enter(new_visitor()) for _ in range(250)))
    turn.forward(100 + GRACE_S)
    [newcomer] = await queue(store, 1)
    assert (await store.beat(newcomer)).outcome is ADMITTED
    assert (await store.snapshot()).counters["expired_unused"] == 250


# Leaving, resets, sweeps ------------------------------------------------------------------------


async def test_a_ticket_is_worth_nothing_after_leaving(open_room, turn):
    """It is void as long as it could be valid, a day, however many sweeps run."""
    store, _, (ticket, other) = await open_room(waiting=2, session_duration=300)
    assert await store.leave(ticket.visitor)
    assert not await store.leave(ticket.visitor)
    assert (await store.beat(ticket)).outcome is GONE
    turn.forward(TICKET_LIFETIME_MS / 1000)
    assert (await store.sweep()).revocations == 1  # no pass of theirs could be valid
    assert (await store.beat(ticket)).outcome is GONE
    assert (await store.sweep()).revocations == 0
    turn.forward(3600)
    assert (await store.sweep()).revocations == 1
    assert (await store.beat(other)).outcome is ADMITTED


async def test_a_reset_survives_the_store(redis, make_room_store):
    """When Redis gets a ticket of after the reset, older tickets are void again."""
    store = make_room_store(total_active_users=0)
    [void] = await queue(store, 1)
    await store.reset()
    [valid] = await queue(store, 1)
    await lose(redis, store)
    assert (await store.beat(valid)).outcome is WAITING
    assert (await store.beat(void)).outcome is GONE


async def test_a_sweep_removes_a_bounded_number_and_says_if_there_is_more(make_room_store, turn):
    """So no visitor's script waits long for a sweep. Places that nobody polled for are removed
    after claim_window."""
    store = make_room_store(total_active_users=0, claim_window=5)
    await asyncio.gather(*(store.enter(new_visitor()) for _ in range(400)))
    turn.forward(4)
    assert (await store.sweep()).waiting == 0
    turn.forward(2)
    swept = [await store.sweep() for _ in range(5)]
    assert [s.waiting for s in swept] == [100, 100, 100, 100, 0]
    assert [s.has_more for s in swept] == [True, True, True, True, False]
