"""What the store keeps for operators: samples, acts, and where somebody is."""

import asyncio

import pytest

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.statistics import HOUR_MS, compute_steps, compute_wait_percentiles
from sidecar.rooms.store import lists
from sidecar.visitors.model import ORDER_BAND
from sidecar.visitors.tokens import new_visitor
from sidecar.visitors.visitor_number import visitor_number
from tests.support.visitors import queue


async def test_a_minute_has_one_sample(open_room, turn):
    """However many replicas ask, a minute has one sample. Differences of samples give counts and
    waits."""
    store, inside, _ = await open_room()
    await asyncio.gather(store.snapshot(), store.snapshot())
    tickets = await queue(store, 2)
    turn.forward(20)
    for ticket in tickets:
        await store.beat(ticket)
    turn.forward(40)
    await store.snapshot()
    await store.leave(inside.visitor)
    turn.forward(6)
    await asyncio.gather(*(store.beat(ticket) for ticket in tickets))
    turn.forward(60)
    await store.snapshot()
    samples = await store.lists.minutes()
    assert len(samples) == 3
    until_ms = samples[0]["minute"] * 60_000
    first, second = compute_steps(samples, until_ms - HOUR_MS, until_ms)
    assert (first.joined, first.admitted, first.waiting, first.active) == (2, 0, 2, 1)
    assert (second.joined, second.admitted, second.waiting, second.cap) == (0, 1, 1, 1)
    waits = compute_wait_percentiles(samples[0]["totals"], samples[-1]["totals"], (0.5,))
    assert 64 <= waits[0.5] <= 64 * 2**0.5  # 66 s


async def test_samples_of_a_day_are_kept(make_room_store, turn):
    """One sample a minute is kept for two hours, and one of five for 24 hours."""
    store = make_room_store()
    turn.now_ms = turn.now_ms // 300_000 * 300_000
    for _ in range(200):
        turn.forward(60)
        await store.snapshot()
    samples = await store.lists.minutes()
    minutes = [each["minute"] for each in samples]
    fine, coarse = minutes[:120], minutes[120:]
    assert fine == list(range(fine[0], fine[0] - 120, -1))
    assert [minute for minute in coarse[:-1] if minute % 5] == []
    assert minutes[-1] <= fine[0] - 195
    assert await store.lists.minutes(3) == samples[:3]


async def test_somebody_is_found(open_room):
    """A visitor is waiting, called, active, revoked or unknown."""
    store, inside, (first, second) = await open_room(waiting=2)
    found = await store.lists.find(second.visitor)
    assert (found.position, found.place.order, found.ends_ms) == (2, second.order, None)
    found = await store.lists.find(inside.visitor)
    assert (found.position, found.started_ms) == (None, inside.started_ms)
    await store.leave(first.visitor)
    assert (await store.lists.find(first.visitor)).revoked_ms is not None
    assert await store.lists.filter_present([first.visitor, second.visitor, inside.visitor]) == {
        second.visitor,
        inside.visitor,
    }
    await store.configure({"total_active_users": 2})
    called = await store.lists.find(second.visitor)
    assert (called.position, called.started_ms) == (None, None)
    assert called.ends_ms is not None


async def test_somebody_is_found_by_number(open_room):
    """Visitors in each state are found, and no other id with the same prefix."""
    store, inside, (gone, called, waits) = await open_room(waiting=3)
    await store.leave(gone.visitor)
    await store.configure({"total_active_users": 2})
    for visitor in (inside.visitor, gone.visitor, called.visitor, waits.visitor):
        assert await store.lists.ids_by_number(visitor_number(visitor)) == [visitor]
    assert await store.lists.ids_by_number("0000-0000") == []
    one, other, third = "abc_-fA" + "1" * 15, "abc_-fB" + "2" * 15, "abc_-fZ" + "3" * 15
    for visitor in (one, other, third, "ABC_-FA" + "1" * 15):
        await store.enter(visitor)
    assert await store.lists.ids_by_number(visitor_number(one)) == [one, other]
    assert await store.lists.ids_by_number(visitor_number(third)) == [third]


async def test_a_long_queue_is_looked_through_in_parts(make_room_store, monkeypatch):
    """Several commands read the queue, and everybody is found."""
    monkeypatch.setattr(lists, "SCAN_COUNT", 10)
    store = make_room_store(total_active_users=0)
    tickets = await queue(store, 300)
    for ticket in (tickets[0], tickets[150], tickets[299]):
        assert await store.lists.ids_by_number(visitor_number(ticket.visitor)) == [ticket.visitor]


async def test_a_move_among_those_who_joined_at_once(make_room_store):
    """Seven orders are free between two visitors. If none is free, the place before is taken, and
    orders stay strict."""
    store = make_room_store(total_active_users=0)
    tickets = await queue(store, 13)
    for ticket in tickets[6:12]:
        assert await store.move(ticket.visitor, 4, by="desk") == 4
    assert await store.move(tickets[12].visitor, 4, by="desk") == 4
    assert (await store.move(tickets[5].visitor, 4, by="desk")) == 3
    line = [row.visitor for row in await store.lists.queue(offset=0, limit=6)]
    assert line == [tickets[n].visitor for n in (0, 1, 5, 2, 12, 11)]
    await store.configure({"max_waiting": 5})
    for ticket in tickets[6:]:
        await store.leave(ticket.visitor)
    assert await store.move(tickets[5].visitor, 99, by="desk") == 6
    line = [row.visitor for row in await store.lists.queue(offset=0, limit=9)]
    assert line == [ticket.visitor for ticket in tickets[:6]]
    await store.configure({"max_waiting": None})
    [newcomer] = await queue(store, 1)
    assert (await store.lists.find(newcomer.visitor)).position == 7


@pytest.mark.parametrize(
    ("order", "line"),
    [
        (0, "c"), (ORDER_BAND - 1, "c"), (2**52, "c"),
        (-1, "b"), (-ORDER_BAND, "b"), (-ORDER_BAND - 1, "a"), (-2 * ORDER_BAND, "a"),
        (-3 * ORDER_BAND, "a"), (-3 * ORDER_BAND - 1, None), (-4 * ORDER_BAND, None),
    ],
)  # fmt: skip
async def test_an_order_is_of_a_line(make_room_store, order, line):
    """Each sub-queue has a band of orders, from 0 on for the last. Drawn places are below all
    bands."""
    for lines, expected in (([{"name": name} for name in "abc"], line), ([], None)):
        store = make_room_store(total_active_users=0, lines=lines)
        visitor = new_visitor()
        await store._redis.zadd(room_key(store._name, "waiting"), {visitor: order})
        [row] = await store.lists.queue(offset=0, limit=5)
        assert (row.visitor, row.order, row.line) == (visitor, order, expected)
        assert (await store.lists.find(visitor)).place == row
