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


@pytest.mark.parametrize(
    ("later_ms", "is_ahead"), [(0, True), (299_999, True), (300_000, False), (300_001, False)]
)
async def test_a_head_start_is_as_if_they_had_come_so_much_earlier(
    redis, shop, turn, later_ms, is_ahead
):
    """The head start counts to the millisecond. If two visitors then have the same arrival, the one
    of the class is behind."""
    store = shop()
    [rival] = await queue(store, 1)
    turn.now_ms += later_ms
    member = await join(store, "member")
    assert await list_waiting(redis, store) == (
        [member.visitor, rival.visitor] if is_ahead else [rival.visitor, member.visitor]
    )


async def test_the_class_that_comes_later_has_the_longer_head_start(redis, shop, turn):
    """Head starts of classes of the same priority are compared by the same clock."""
    store = shop()
    members = [await join(store, "member")]
    turn.forward(86_400 - 301)
    gold = await join(store, "gold")
    turn.forward(2)
    late = await join(store, "gold")
    members.append(await join(store, "member"))
    order = [gold, members[0], late, members[1]]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]


async def test_a_priority_goes_before_all_of_any_lower(redis, shop, turn):
    """Neither a long head start nor a long wait outweighs a higher priority."""
    store = shop()
    [ordinary] = await queue(store, 1)
    gold = await join(store, "gold")
    turn.forward(3600)
    partners = [await join(store, "partner") for _ in range(2)]
    turn.forward(86_000)
    order = [*[await join(store, "staff") for _ in range(2)], *partners, gold, ordinary]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]


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


async def test_a_class_that_the_room_does_not_know_is_none(redis, shop):
    """A grant of an unknown class is not used up."""
    store = shop()
    standing = await store.enter(new_visitor(), claim=claim("emperor", "g-1"))
    assert (standing.outcome, standing.is_classed) == (WAITING, False)
    assert not await redis.zcard(room_key(store._name, "grants"))


async def test_in_a_random_room_head_starts_do_not_count_and_priorities_do(
    redis, shop, monkeypatch
):
    day = 86_400e6 / 2**50  # on the scale of the draws
    draws = iter([0.5, 0.5 + day / 2, 0.5 - day / 2, 0.9])
    monkeypatch.setattr("sidecar.rooms.store.scripts._random", lambda: next(draws))
    store = shop(queueing_method="random")
    middle = await join(store)
    last = await join(store, "gold")
    first = await join(store)
    order = [await join(store, "partner"), first, middle, last]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]
    assert [standing.ahead for standing in await beat_all(store, order)] == [0, 1, 2, 3]


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


async def test_shown_by_order_the_place_is_that_of_the_calls(shop):
    """With display = "order" a position grows when a visitor of a higher class joins."""
    store = shop(display="order")
    [ordinary] = await queue(store, 1)
    for number, name in enumerate(("member", "partner", "staff"), 1):
        await join(store, name)
        standing = await store.beat(ordinary)
        assert (standing.ahead, standing.calls) == (number, number)


async def test_shown_places_follow_a_change_of_display(shop, turn):
    """Positions by order hold at once. Positions by arrival hold as visitors poll, and are never
    too low."""
    store = shop()
    tickets = []
    for name in ("", "", "partner", "staff"):
        tickets.append(await join(store, name))
        turn.forward(1)
    by_arrival, by_order = [0, 1, 2, 3], [2, 3, 1, 0]
    assert [s.ahead for s in await beat_all(store, tickets)] == by_arrival
    await store.configure({"display": "order"})
    assert [s.ahead for s in await beat_all(store, tickets)] == by_order
    await store.configure({"display": None})
    assert (await store.beat(tickets[1])).ahead == 3
    await beat_all(store, tickets)
    assert [s.ahead for s in await beat_all(store, tickets)] == by_arrival


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


async def test_a_grant_without_an_id_is_given_as_often_as_it_is_shown(shop):
    store = shop()
    standings = [await store.enter(new_visitor(), claim=claim("member")) for _ in range(3)]
    assert all(standing.is_classed for standing in standings)


async def test_a_grant_is_not_used_up_by_whoever_need_not_wait(redis, make_room_store):
    """A visitor who is admitted at once, refused or retries does not use the grant up."""
    store = make_room_store(total_active_users=1, classes=CLASSES, max_waiting=2)
    once = claim("partner", "order-17")
    assert (await store.enter(new_visitor(), claim=once)).outcome is QueueOutcome.ADMITTED
    first, _ = await queue(store, 2)
    assert (await store.enter(new_visitor(), claim=once)).outcome is QueueOutcome.FULL
    again = await store.enter(first.visitor, claim=once)
    assert (again.outcome, again.is_classed) == (WAITING, False)
    await store.configure({"max_waiting": 3})
    assert (await store.enter(new_visitor(), claim=once)).is_classed


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


async def test_a_full_line_counts_all_lines(make_room_store):
    """`max_waiting` counts the whole room, and no class is exempt."""
    store = make_room_store(total_active_users=0, max_waiting=3, **LINES)
    await join(store, "vip")
    await join(store)
    await join(store, "member")
    for name in ("", "vip", "member"):
        refused = await store.enter(new_visitor(), claim=claim(name))
        assert refused.outcome is QueueOutcome.FULL
        assert refused.refresh_ms > 0


async def test_a_free_slot_is_given_at_once_whatever_the_class(open_room):
    """While somebody waits, no newcomer of any class is admitted at once."""
    store, _, _ = await open_room(total_active_users=2, classes=CLASSES)
    admitted = await store.enter(new_visitor(), claim=claim("staff"))
    assert (admitted.outcome, admitted.is_classed) == (QueueOutcome.ADMITTED, False)
    await queue(store, 1)
    standing = await store.enter(new_visitor(), claim=claim("staff"))
    assert (standing.outcome, standing.calls, standing.ahead) == (WAITING, 0, 1)
