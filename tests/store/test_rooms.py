"""The scripts, one story each; tests/store/test_model.py drives them at random."""

from __future__ import annotations

from sidecar.base.model import Outcome, Ticket
from sidecar.base.tokens import new_visitor


def ticket_of(visitor, standing):
    return Ticket(visitor, standing.order, standing.now_ms, standing.epoch)


async def test_a_free_slot_is_given_at_once(make_room_store):
    """The first newcomer is inside, the second waits with nobody ahead."""
    store = make_room_store()
    first = await store.enter(new_visitor())
    second = await store.enter(new_visitor())
    assert first.outcome is Outcome.ADMITTED
    assert (second.outcome, second.ahead, second.waiting) == (Outcome.WAITING, 0, 1)


async def test_entering_twice_equals_once(make_room_store):
    """A retry of a lost reply finds the place or session that was given."""
    store = make_room_store()
    inside, waiting = new_visitor(), new_visitor()
    for visitor in (inside, waiting, inside, waiting):
        await store.enter(visitor)
    snapshot = await store.snapshot()
    assert (snapshot.active, snapshot.waiting) == (1, 1)


async def test_release_frees_the_slot_when_no_pass_is_honoured(make_room_store, turn):
    """A released session holds its slot until its pass is refused everywhere."""
    store = make_room_store()
    first, second = new_visitor(), new_visitor()
    await store.enter(first)
    ticket = ticket_of(second, await store.enter(second))
    assert await store.leave(first, why="released")
    assert not await store.leave(first, why="released")
    assert (await store.beat(ticket)).outcome is Outcome.WAITING
    turn.forward(5)
    assert (await store.beat(ticket)).outcome is Outcome.ADMITTED


async def test_the_silent_head_is_passed_over(make_room_store, turn):
    """Who stopped polling is not waited for when a slot comes free."""
    store = make_room_store(session_duration=100)
    visitors = [new_visitor() for _ in range(3)]
    standings = [await store.enter(v) for v in visitors]
    third = ticket_of(visitors[2], standings[2])
    for _ in range(11):
        turn.forward(10)
        last = await store.beat(third)
    assert last.outcome is Outcome.ADMITTED
    snapshot = await store.snapshot()
    assert snapshot.waiting == 0
    assert snapshot.counters["expired_silent"] == 1
