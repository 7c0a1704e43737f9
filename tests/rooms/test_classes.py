"""Classes of visitors: head starts and priorities, what is shown, grants, an operator's hand."""

import asyncio

import pytest

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.store.scripts import Lot
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.support.joiners import DAY_MS, claim, join, list_called, list_waiting
from tests.support.rooms import new_room_name
from tests.support.visitors import beat_all, lose, queue

WAITING, GONE = QueueOutcome.WAITING, QueueOutcome.GONE
NOT_IN_LINE, USED, DRAWN, NOT_MOVED = 0, -1, -2, -3

CLASSES = {
    "member": {"head_start": "5m"},
    "gold": {"head_start": "1d"},
    "partner": {"priority": 1},
    "staff": {"priority": 3, "head_start": "1h"},
}


@pytest.fixture
def shop(make_room_store):
    """A room in which nobody is called, with classes."""

    def make(**settings):
        return make_room_store(**{"total_active_users": 0, "classes": CLASSES, **settings})

    return make


# Who goes first -------------------------------------------------------------------------------


async def test_those_of_one_class_are_first_come_first_called(redis, shop, turn):
    """Visitors of one class keep their order, whoever joins in between."""
    store = shop()
    names = ["", "member", "", "partner", "gold", ""] * 5
    tickets = {name: [] for name in names}
    for name in names:
        tickets[name].append((await join(store, name)).visitor)
        turn.forward(0.001)
    line = await list_waiting(redis, store)
    for own in tickets.values():
        assert [visitor for visitor in line if visitor in own] == own
    await store.configure({"total_active_users": 30})
    assert await list_called(redis, store) == line


# What is shown ----------------------------------------------------------------------------------


async def test_shown_by_arrival_nobodys_place_grows_and_the_estimate_is_honest(shop, turn):
    """Later visitors of a higher class count in the wait but not in the shown position, which falls
    when earlier visitors of any class are called."""
    store = shop()
    partner, *_, ordinary = [
        await join(store, name) for name in ("partner", "", "member", "staff", "")
    ]
    turn.forward(1)
    before = await store.beat(ordinary)
    assert (before.ahead, before.calls) == (4, 4)
    await store.configure({"total_active_users": 1})
    called_one = await store.beat(ordinary)  # staff came before
    assert (called_one.ahead, called_one.calls) == (3, 3)
    for name in ("partner", "member", "staff") * 3:
        later = await join(store, name)
        latest = await store.beat(later)
        assert latest.ahead == latest.waiting - 1
        turn.forward(0.1)
    after = await store.beat(ordinary)
    assert (after.ahead, after.calls) == (3, 12)
    assert after.wait_ms > called_one.wait_ms
    staff = await store.beat(later)
    assert staff.ahead > after.ahead
    assert staff.calls == 2
    assert staff.wait_ms < after.wait_ms
    assert (await store.beat(partner)).ahead == 0
    await store.configure({"total_active_users": 5})  # three staff and partner, in line before
    assert (await store.beat(ordinary)).ahead == 2


async def test_shown_places_follow_a_change_of_lines(make_room_store, turn):
    """Visitors of a priority belong to the first sub-queue while there are sub-queues, with
    positions of that sub-queue."""
    store = make_room_store(total_active_users=0, classes={"vip": {"priority": 1}})
    tickets = []
    for name in ("", "vip", "", "vip"):
        tickets.append(await join(store, name))
        turn.forward(1)
    lines = [{"name": "first"}, {"name": "rest"}]
    await store.configure({"classes": {"vip": {"line": "first"}}, "lines": lines})
    for _ in range(2):
        standings = await beat_all(store, tickets)
    assert [(s.line, s.ahead) for s in standings] == [(1, 0), (0, 0), (1, 1), (0, 1)]
    await store.configure({"classes": None, "lines": None})
    for _ in range(2):
        standings = await beat_all(store, tickets)
    assert [(s.line, s.ahead) for s in standings] == [(None, n) for n in range(4)]


# Grants -----------------------------------------------------------------------------------------


async def test_a_grant_for_one_is_given_once_however_many_race(make_room_store):
    """One grant is used by many newcomers and waiting visitors at two replicas at the same time."""
    room = new_room_name()
    replicas = [make_room_store(room=room, total_active_users=0, classes=CLASSES) for _ in range(2)]
    tickets = await queue(replicas[0], 10)
    once = claim("partner", "order-17")
    joined, graded = await asyncio.gather(
        asyncio.gather(*(replicas[n % 2].enter(new_visitor(), claim=once) for n in range(20))),
        asyncio.gather(
            *(replicas[n % 2].reclassify(t.visitor, once) for n, t in enumerate(tickets))
        ),
    )
    assert [s.is_classed for s in joined].count(True) + sum(at > 0 for at in graded) == 1
    assert sum(at == USED for at in graded) >= 9


async def test_a_used_grant_is_forgotten_only_when_it_could_not_be_shown_any_more(shop, turn):
    """A used grant is remembered until an hour after it expired, because clocks differ."""
    store = shop()
    once = claim("partner", "order-17", expires_ms=turn.now_ms + DAY_MS)
    assert (await store.enter(new_visitor(), claim=once)).is_classed
    turn.now_ms += DAY_MS + 3_599_000
    await store.sweep()
    assert not (await store.enter(new_visitor(), claim=once)).is_classed
    turn.now_ms += 1000
    await store.sweep()
    assert (await store.enter(new_visitor(), claim=once)).is_classed


async def test_a_grant_takes_somebody_in_line_ahead_and_nobody_back(redis, shop, turn):
    """The time of joining counts. A grant that would move its visitor back, or not at all, is not
    used up."""
    store = shop()
    [first] = await queue(store, 1)
    turn.forward(299)
    [second] = await queue(store, 1)
    turn.forward(2)
    [third] = await queue(store, 1)
    turn.forward(3000)
    assert await store.reclassify(third.visitor, claim("member", "x")) == 2
    assert await store.reclassify(second.visitor, claim("member", "y")) == 1
    assert await list_waiting(redis, store) == [t.visitor for t in (second, first, third)]
    assert await store.reclassify(second.visitor, claim("gold", "z")) == 1
    assert await store.reclassify(second.visitor, claim("member", "back")) == 1
    assert await store.reclassify(second.visitor, claim("gold", "same")) == 1
    assert set(await redis.zrange(room_key(store._name, "grants"), 0, -1)) == {b"x", b"y", b"z"}
    assert await store.reclassify(third.visitor, claim("staff", "x")) == USED
    assert await store.reclassify(new_visitor(), claim("staff")) == NOT_IN_LINE
    standing = await store.beat(first)  # by arrival nobody's place has changed
    assert (standing.ahead, standing.calls) == (0, 1)


# An operator's hand -------------------------------------------------------------------------------


async def test_an_operator_gives_any_class_and_takes_it_away(redis, shop, turn):
    """The order is then as if the visitor had joined with that class, and `back` restores the order
    before all moves."""
    store = shop()
    tickets = []
    for name in ("", "member", "partner", ""):
        tickets.append(await join(store, name))
        turn.forward(1)
    a, b, c, d = (ticket.visitor for ticket in tickets)
    assert await list_waiting(redis, store) == [c, b, a, d]
    assert await store.reclassify(d, claim("staff"), by="desk", why="VIP") == 1
    assert await list_waiting(redis, store) == [d, c, b, a]
    assert await store.reclassify(d, claim("member"), by="desk") == 3
    assert await list_waiting(redis, store) == [c, b, d, a]
    assert await store.reclassify(c, claim(""), by="desk") == 4
    assert await list_waiting(redis, store) == [b, d, a, c]
    assert await store.move(d, 4, by="desk") == 4
    assert await store.move(d, 0, by="desk") == 4
    assert await store.move(c, 0, by="desk") == 1
    assert await list_waiting(redis, store) == [c, b, a, d]
    assert await store.move(d, 0, by="desk") == NOT_MOVED
    assert await store.reclassify(a, claim(""), by="desk") == 3  # has none
    assert await store.reclassify(d, claim("staff"), by="") == 1
    assert await store.move(d, 0, by="desk") == NOT_MOVED  # by a grant, no operator


async def test_a_grant_counts_from_where_somebody_was_before_a_move(redis, shop, turn):
    """The new order is computed from the order before the move, and `back` leads to this new
    order."""
    store = shop()
    tickets = []
    for _ in range(4):
        tickets += await queue(store, 1)
        turn.forward(200)
    a, b, c, d = (ticket.visitor for ticket in tickets)
    assert await store.move(d, 3, by="desk") == 3
    assert await store.reclassify(d, claim("member")) == 3  # 300 s of 600: between b and c too
    assert await store.move(a, 4, by="desk") == 4
    assert await store.reclassify(a, claim("member")) == 1
    assert await list_waiting(redis, store) == [a, b, d, c]
    assert await store.move(d, 4, by="desk") == 4
    assert await store.move(d, 0, by="desk") == 3
    assert await store.move(a, 0, by="desk") == 1


async def test_orders_stay_apart_whoever_is_moved_and_given_a_class(redis, make_room_store):
    """A class's order may be taken by a moved visitor. After a move and a new class the order still
    holds the class."""
    classes = {"a": {"head_start": 60}, "b": {"head_start": 60}}
    store = make_room_store(total_active_users=0, classes=classes)
    other = (await join(store, "b")).visitor
    moved = (await queue(store, 1))[0].visitor
    assert await store.move(moved, 1, by="desk") == 1
    assert await store.reclassify(other, claim("a"), by="desk") == 1
    waiting = room_key(store._name, "waiting")
    assert await redis.zscore(waiting, other) == await redis.zscore(waiting, moved) - 1
    [last] = await queue(store, 1)
    assert await store.move(moved, 99, by="desk") == 3
    assert await store.move(last.visitor, 99, by="desk") == 3
    for number, name in enumerate(("a", "b"), 1):
        assert await store.reclassify(last.visitor, claim(name), by="desk") > 0
        assert await redis.zscore(waiting, last.visitor) % 8 == number
    await store.configure({"classes": {"a": {"head_start": 60}}})  # no more b
    assert await store.reclassify(other, claim("a"), by="desk") > 0
    assert await redis.zscore(waiting, other) % 8 == 1


LINES = {
    "lines": ({"name": "first", "weight": 1}, {"name": "rest", "weight": 3}),
    "classes": {"vip": {"line": "first"}, "member": {"head_start": "5m"}},
}


async def test_a_class_with_a_line_moves_somebody_there(redis, make_room_store, turn):
    """The visitor joins the sub-queue of the class without changing shown positions there, and
    `back` restores the old sub-queue."""
    store = make_room_store(total_active_users=0, **LINES)
    other, mover = await queue(store, 2)
    turn.forward(10)
    resident = await join(store, "vip")
    turn.forward(10)
    assert await store.reclassify(mover.visitor, claim("vip"), by="desk") == 1
    standings = await beat_all(store, [mover, resident, other])
    assert [(s.line, s.ahead, s.line_waiting) for s in standings] == [
        (0, 1, 2),
        (0, 0, 2),
        (1, 0, 1),
    ]
    assert await store.move(mover.visitor, 0, by="desk") == 2
    standings = await beat_all(store, [mover, resident, other])
    assert [(s.line, s.line_waiting) for s in standings] == [(1, 2), (0, 1), (1, 2)]
    assert (await list_waiting(redis, store)) == [t.visitor for t in (resident, other, mover)]


async def test_a_move_stays_in_the_own_line(redis, make_room_store):
    """Positions of a move count within the visitor's sub-queue."""
    store = make_room_store(total_active_users=0, **LINES)
    vips = [await join(store, "vip") for _ in range(3)]
    rest = await queue(store, 3)
    assert await store.move(rest[2].visitor, 1, by="desk") == 1
    assert await store.move(vips[0].visitor, 99, by="desk") == 3
    assert await store.move(vips[0].visitor, 2, by="desk") == 2
    order = [vips[1], vips[0], vips[2], rest[2], rest[0], rest[1]]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]
    assert await store.move(rest[2].visitor, 99, by="desk") == 3
    last = (await queue(store, 1))[0]
    assert (await list_waiting(redis, store))[-1] == last.visitor


@pytest.mark.parametrize("name", ["vip", ""])
async def test_whoever_comes_later_is_behind_all_that_were_moved_to_the_end(
    redis, make_room_store, name
):
    """This holds in every sub-queue, for many moves within one millisecond."""
    store = make_room_store(total_active_users=0, **LINES)
    pair = [await join(store, name) for _ in range(2)]
    for n in range(40):
        assert await store.move(pair[n % 2].visitor, 2, by="desk") == 2
    order = [*pair, await join(store, name)]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]


# What survives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [True, False])
async def test_everybody_is_back_at_their_order_after_the_store_was_emptied(
    redis, make_room_store, turn, lines
):
    """Visitors of all classes, with and without sub-queues, get the order in their tickets back."""
    begins = turn.now_ms + 60_000
    event = {"name": "sale", "prequeue_from": begins, "opens_at": begins + 60_000}
    rules = LINES if lines else {"classes": CLASSES}
    store = make_room_store(total_active_users=0, events=(event,), between_events="open", **rules)
    names = ["", "member", "vip" if lines else "staff"] * 2
    tickets = []
    for name in names:
        tickets.append(await join(store, name))
        turn.forward(1)
    await store.reclassify(tickets[0].visitor, claim(names[2]))
    turn.now_ms = begins
    tickets += [await join(store, lot=Lot(draw, begins)) for draw in (0.7, 0.2)]
    turn.forward(60)
    tickets.append(await join(store, "member"))
    before = {}
    for ticket in tickets:
        standing = await store.beat(ticket)
        before[ticket.visitor] = standing
    kept = [type(t)(t.visitor, before[t.visitor].order, t.joined_ms, t.epoch) for t in tickets]
    line = await list_waiting(redis, store)
    await lose(redis, store)
    back = await beat_all(store, kept[::-1])
    assert {s.outcome for s in back} == {WAITING}
    assert await list_waiting(redis, store) == line
    for ticket, standing in zip(kept, await beat_all(store, kept), strict=True):
        was = before[ticket.visitor]
        assert (standing.order, standing.calls, standing.line) == (was.order, was.calls, was.line)
        if ticket is not kept[0]:  # who came into the line of the vips is shown by joining now
            assert standing.ahead - was.ahead == (was.line == 0)


async def test_a_free_slot_is_given_at_once_whatever_the_class(open_room):
    """While somebody waits, no newcomer of any class is admitted at once."""
    store, _, _ = await open_room(total_active_users=2, classes=CLASSES)
    admitted = await store.enter(new_visitor(), claim=claim("staff"))
    assert (admitted.outcome, admitted.is_classed) == (QueueOutcome.ADMITTED, False)
    await queue(store, 1)
    standing = await store.enter(new_visitor(), claim=claim("staff"))
    assert (standing.outcome, standing.calls, standing.ahead) == (WAITING, 0, 1)
