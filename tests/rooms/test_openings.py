"""Events through the store: closed, the pre-queue and its draw, the opening, the close."""

import asyncio
from dataclasses import replace

import pytest

from sidecar.lottery.commitment import compute_commitment
from sidecar.lottery.service import Draws
from sidecar.rooms.places import add_drawn_order, find_lot, make_hidden_order
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import Lot
from sidecar.visitors.model import Phase, QueueOutcome, Ticket
from sidecar.visitors.tokens import new_visitor
from tests.support.joiners import claim, join, list_called, list_waiting
from tests.support.rooms import RedisTime, new_room_name
from tests.support.visitors import beat_all, go_in, lose, queue, ticket_of

WAITING, ADMITTED = QueueOutcome.WAITING, QueueOutcome.ADMITTED
REJECTED, GONE = QueueOutcome.REJECTED, QueueOutcome.GONE
DRAWN = -2

START = RedisTime().now_ms
BEGINS, OPENS, CLOSES = START + 600_000, START + 1_200_000, START + 4_800_000
SALE = {"name": "sale", "prequeue_from": BEGINS, "opens_at": OPENS, "closes_at": CLOSES}
CLASSES = {"member": {"head_start": "1d"}, "partner": {"priority": 1}, "staff": {"priority": 3}}


@pytest.fixture
def shop(make_room_store, turn):
    """A room with one event, closed otherwise."""

    def make(*, event=SALE, **settings):
        return make_room_store(**{"total_active_users": 2, "events": (event,), **settings})

    return make


async def drawn(store, *lots, begins=BEGINS, name=""):
    """Let visitors with these lots, in [0, 1), join the pre-queue. Return their tickets."""
    return await asyncio.gather(*(join(store, name, lot=Lot(each, begins)) for each in lots))


def outcomes(standings):
    return [standing.outcome for standing in standings]


# Closed -------------------------------------------------------------------------------------------


async def test_an_event_without_a_prequeue_is_closed_until_it_opens(shop, turn):
    """From the opening on visitors are called in order of joining."""
    store = shop(event={"name": "sale", "opens_at": OPENS})
    turn.now_ms = OPENS - 1
    assert (await store.enter(new_visitor())).outcome is REJECTED
    turn.now_ms = OPENS
    for _ in range(2):
        await go_in(store)
    tickets = await queue(store, 2)
    assert [standing.ahead for standing in await beat_all(store, tickets)] == [0, 1]


async def test_a_room_that_is_open_between_events_works_by_its_own_settings(shop, turn):
    store = shop(between_events="open", total_active_users=1)
    await go_in(store)
    turn.now_ms = CLOSES
    await go_in(store)
    [ticket] = await queue(store, 1)
    standing = await store.beat(ticket)
    assert (standing.outcome, standing.phase, standing.ahead) == (WAITING, Phase.OPEN, 0)


async def test_an_event_that_is_set_at_run_time_holds_at_once(open_room, turn):
    """Waiting visitors see a closed room, and have their places again when the event is removed."""
    store, _, [ticket] = await open_room(waiting=1)
    await store.configure({"events": [{**SALE, "timezone": "UTC"}]})
    assert (await store.beat(ticket)).outcome is REJECTED
    assert (await store.enter(ticket.visitor)).outcome is REJECTED
    await store.configure({"events": None})
    assert (await store.beat(ticket)).ahead == 0


# The pre-queue ------------------------------------------------------------------------------------


async def test_in_the_prequeue_nobody_is_called_and_all_are_equal(redis, shop, turn):
    """Slots stay free. Only the lot decides, not the time of joining or a class, and no grant is
    used up."""
    store = shop(classes=CLASSES)
    turn.now_ms = BEGINS
    [first] = await drawn(store, 0.9)
    assert (await store.beat(first)).outcome is WAITING
    once = claim("staff", "order-17")
    standing = await store.enter(visitor := new_visitor(), claim=once, lot=Lot(0.5, BEGINS))
    assert not standing.is_classed
    turn.now_ms = OPENS - 1
    [late] = await drawn(store, 0.1, name="member")
    assert await store.reclassify(first.visitor, once) == DRAWN
    assert await store.reclassify(first.visitor, once, by="desk") == DRAWN
    assert await store.move(first.visitor, 1, by="desk") == DRAWN
    assert await list_waiting(redis, store) == [late.visitor, visitor, first.visitor]
    assert (await store.sweep()).called == 0
    assert (await store.snapshot()).active == 0
    assert not await redis.zcard(room_key(store._name, "grants"))


@pytest.mark.parametrize("before_ms", [400_000, 60_000, 20_000, 1])
@pytest.mark.parametrize("interval", [None, 9])
async def test_nobody_learns_from_the_prequeue_where_they_stand(
    shop, turn, monkeypatch, before_ms, interval
):
    """Replies have only the refresh, which is the same for the best and the worst lot."""
    monkeypatch.setattr("random.random", lambda: 0.5)
    store = shop(heartbeat_interval=interval)
    turn.now_ms = OPENS - before_ms
    lots = [number * 2**30 / 2**50 for number in range(0, 2**20, 2**16)]
    visitors = [new_visitor() for _ in lots]
    entered = await asyncio.gather(
        *(store.enter(v, lot=Lot(each, BEGINS)) for v, each in zip(visitors, lots, strict=True))
    )
    again = await asyncio.gather(
        *(store.enter(v, lot=Lot(each, BEGINS)) for v, each in zip(visitors, lots, strict=True))
    )
    tickets = [ticket_of(v, s) for v, s in zip(visitors, entered, strict=True)]
    for standings in (entered, again, await beat_all(store, tickets)):
        assert len({standing.refresh_ms for standing in standings}) == 1
        assert {standing.wait_ms for standing in standings} == {None}
        assert {standing.limited_ms for standing in standings} == {0}


async def test_all_are_asked_back_when_it_has_opened_and_not_all_at_once(shop, turn, monkeypatch):
    """Polls after the opening are spread over some seconds, more in a longer queue."""
    draws = iter([0.0, 0.999] * 20)
    monkeypatch.setattr("random.random", lambda: next(draws))
    store = shop()
    turn.now_ms = OPENS - 29_000
    tickets = await drawn(store, *(n / 500 for n in range(500)))
    first, last = await beat_all(store, tickets[:2])
    assert first.refresh_ms == 29_000
    assert 31_000 <= last.refresh_ms <= 31_200
    turn.now_ms = OPENS - 1
    first, last = await beat_all(store, tickets[:2])
    assert first.refresh_ms == 1000


async def test_an_operators_hand_does_not_change_the_list(redis, shop, turn):
    """The list keeps the drawn places of moved visitors, and has no later visitors, also after
    Redis was emptied."""
    store = shop(total_active_users=0)
    turn.now_ms = BEGINS
    tickets = await drawn(store, 0.1, 0.2, 0.3)
    listed = await redis.zrange(room_key(store._name, "drawn"), 0, -1, withscores=True)
    turn.now_ms = OPENS
    assert await store.move(tickets[2].visitor, 1, by="desk") == 1
    moved = replace(tickets[2], order=(await store.beat(tickets[2])).order)
    assert moved.order != tickets[2].order
    await lose(redis, store, "waiting", "due")
    assert (await store.beat(moved)).order == moved.order
    assert await redis.zrange(room_key(store._name, "drawn"), 0, -1, withscores=True) == listed
    [late] = await queue(store, 1)
    assert await store.move(late.visitor, 1, by="desk") == 1
    late = replace(late, order=(await store.beat(late)).order)
    await lose(redis, store)
    assert [s.ahead for s in await beat_all(store, [late, tickets[0]])] == [0, 1]
    listed = await redis.zrange(room_key(store._name, "drawn"), 0, -1)
    assert listed == [tickets[0].visitor.encode()]


async def test_a_full_prequeue_takes_nobody(shop, turn):
    store = shop(max_waiting=2)
    turn.now_ms = BEGINS
    await drawn(store, 0.9, 0.8)
    assert (await store.enter(new_visitor(), lot=Lot(0.1, BEGINS))).outcome is QueueOutcome.FULL


# The opening --------------------------------------------------------------------------------------


async def test_two_replicas_see_the_opening_in_the_same_millisecond(make_room_store, turn):
    """Before it neither calls anybody. From then on the smallest lots are called, by either
    replica."""
    room = new_room_name()
    replicas = [make_room_store(room=room, total_active_users=2, events=(SALE,)) for _ in range(2)]
    turn.now_ms = OPENS - 5000
    tickets = await drawn(replicas[0], *[0.5, 0.1, 0.9, 0.3, 0.7])
    turn.now_ms = OPENS - 1
    for store in replicas:
        standings = await beat_all(store, tickets)
        assert outcomes(standings) == [WAITING] * 5
        assert {standing.phase for standing in standings} == {Phase.PREQUEUE}
    turn.now_ms = OPENS
    halves = await asyncio.gather(
        beat_all(replicas[1], tickets[2:]), beat_all(replicas[0], tickets[:2])
    )
    standings = halves[1] + halves[0]
    assert outcomes(standings) == [WAITING, ADMITTED, WAITING, ADMITTED, WAITING]
    assert {standing.phase for standing in standings} == {Phase.OPEN}
    assert [standings[n].ahead for n in (0, 4, 2)] == [0, 1, 2]


LINED = {"member": {"head_start": "1d"}, "staff": {"line": "first"}}


@pytest.mark.parametrize(
    ("rules", "calls", "ahead"),
    [
        ({"classes": CLASSES}, [2, 3, 4, 5, 6], [3, 5, 6, 2, 4]),
        ({"classes": CLASSES, "display": "order"}, [2, 3, 4, 5, 6], [2, 3, 4, 5, 6]),
        (
            {"classes": LINED, "lines": ({"name": "first"}, {"name": "rest"})},
            [2, 3, 4, 5, 6],
            [0, 1, 2, 0, 1],
        ),
        (
            {
                "classes": LINED,
                "lines": ({"name": "first", "weight": 1}, {"name": "rest", "weight": 9}),
            },
            [2, 6, 2, 3, 4],
            [0, 1, 2, 0, 1],
        ),
    ],
)
async def test_latecomers_are_behind_the_prequeue_whatever_their_class(
    redis, shop, turn, rules, calls, ahead
):
    """So are visitors who waited before the pre-queue. Among them classes count as usual, and
    positions go by arrival."""
    store = shop(between_events="open", total_active_users=0, **rules)
    [earlier] = await queue(store, 1)
    waited = await join(store, "staff")
    turn.now_ms = BEGINS
    first, last = (await drawn(store, 0.99999, 0.5))[::-1]
    turn.now_ms = OPENS
    [late] = await queue(store, 1)
    staff, member = await join(store, "staff"), await join(store, "member")
    order = [first, last, waited, staff, member, earlier, late]
    standings = await beat_all(store, order)
    assert [standing.calls for standing in standings] == [0, 1, *calls]
    assert [standing.ahead for standing in standings] == [0, 1, *ahead]
    assert [standing.line for standing in standings[:2]] == [None, None]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]
    await store.configure({"total_active_users": 2})
    assert await list_called(redis, store) == [first.visitor, last.visitor]


@pytest.mark.parametrize("weight", [1, None])
async def test_a_position_in_a_line_is_counted_behind_the_drawn(redis, shop, turn, weight):
    """A visitor who is moved to the head of a sub-queue stays behind the drawn places."""
    lines = ({"name": "first", "weight": weight}, {"name": "rest", "weight": weight})
    store = shop(total_active_users=0, classes=LINED, lines=lines)
    turn.now_ms = BEGINS
    tickets = await drawn(store, 0.1, 0.2)
    turn.now_ms = OPENS
    staff = [await join(store, "staff") for _ in range(3)]
    rest = await queue(store, 2)
    assert await store.move(staff[2].visitor, 1, by="desk") == 1
    assert await store.move(staff[0].visitor, 99, by="desk") == 3
    assert await store.move(rest[1].visitor, 1, by="desk") == 1
    order = [*tickets, staff[2], staff[1], staff[0], rest[1], rest[0]]
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in order]


async def test_a_drawn_place_has_no_class_and_may_be_moved_once_it_has_opened(redis, shop, turn):
    """Only an operator can move a drawn place, and move it back."""
    store = shop(classes=CLASSES, total_active_users=0)
    turn.now_ms = BEGINS
    tickets = await drawn(store, 0.1, 0.2, 0.3)
    turn.now_ms = OPENS
    [late] = await queue(store, 1)
    a, b, c, d = (ticket.visitor for ticket in [*tickets, late])
    assert await store.reclassify(c, claim("staff")) == DRAWN
    assert await store.reclassify(c, claim("staff"), by="desk") == DRAWN
    assert await store.move(c, 1, by="desk") == 1
    assert await store.move(d, 3, by="desk") == 3
    assert await list_waiting(redis, store) == [c, a, d, b]
    assert await store.move(c, 0, by="desk") == 4
    assert await store.move(d, 0, by="desk") == 4
    assert await list_waiting(redis, store) == [a, b, c, d]


async def test_the_cap_and_the_rate_of_the_event_hold_while_it_is_open(shop, turn):
    """The event's values replace the room's values, higher or lower."""
    event = {**SALE, "total_active_users": 5, "new_users_per_minute": 60}
    store = shop(
        event=event,
        between_events="open",
        total_active_users=3,
        claim_window=3600,
        heartbeat_timeout=7200,
    )
    turn.now_ms = OPENS - 1000
    await drawn(store, *(n / 20 for n in range(20)))
    inside = []
    turn.now_ms = OPENS
    for _ in range(6):  # a bucket of two, then one a second
        inside.append((await store.snapshot()).active)
        turn.forward(1)
    assert inside == [2, 3, 4, 5, 5, 5]


async def test_the_rooms_own_rate_and_cap_hold_again_after_the_event(shop, turn):
    event = {**SALE, "total_active_users": 1, "new_users_per_minute": 1}
    store = shop(event=event, between_events="open", total_active_users=6)
    turn.now_ms = CLOSES - 1
    await go_in(store)
    await queue(store, 9)
    assert (await store.snapshot()).active == 1
    turn.now_ms = CLOSES
    assert (await store.snapshot()).active == 6


# The close and the next event -------------------------------------------------------------------


async def test_at_the_close_nobody_is_called_any_more(shop, turn):
    """Waiting visitors see a closed room, called visitors may still claim, and active visitors keep
    their sessions."""
    store = shop(session_duration=3600, heartbeat_interval=30, heartbeat_timeout=86_400)
    turn.now_ms = CLOSES - 10_000
    inside = await go_in(store)
    other = await go_in(store)
    tickets = await queue(store, 3)
    await beat_all(store, tickets)
    await store.leave(other.visitor, why="unseen")
    assert (await store.snapshot()).provisional == 1
    turn.now_ms = CLOSES
    await store.leave(inside.visitor, why="unseen")
    snapshot = await store.snapshot()
    assert (snapshot.active, snapshot.waiting) == (1, 2)
    assert outcomes(await beat_all(store, tickets)) == [ADMITTED, REJECTED, REJECTED]
    assert (await store.enter(new_visitor())).outcome is REJECTED
    assert (await store.enter(tickets[1].visitor)).outcome is REJECTED
    admitted = await store.enter(tickets[0].visitor)
    assert admitted.outcome is ADMITTED
    turn.forward(100)
    standing = await store.enter(tickets[0].visitor)
    assert (standing.outcome, standing.expires_ms) == (ADMITTED, admitted.expires_ms)


async def test_a_closed_room_keeps_the_sessions_of_those_inside(shop, turn):
    store = shop(session_duration=60)
    turn.now_ms = CLOSES - 1000
    inside = await go_in(store)
    turn.forward(50)
    renewed = await store.renew(inside)
    assert (renewed.outcome, renewed.phase) == (ADMITTED, Phase.CLOSED)
    assert renewed.expires_ms == turn.now_ms + 60_000
    assert (await store.snapshot()).active == 1


NEXT_BEGINS = CLOSES + 86_400_000
NEXT = {"name": "next", "prequeue_from": NEXT_BEGINS, "opens_at": NEXT_BEGINS + 60_000}


@pytest.mark.parametrize("between", ["open", "closed"])
async def test_the_next_prequeue_is_drawn_anew(redis, make_room_store, turn, between):
    """The list begins with the first new visitor, and tickets of the event before are void."""
    store = make_room_store(
        total_active_users=0, events=(NEXT, SALE), between_events=between, heartbeat_timeout=30
    )
    turn.now_ms = BEGINS
    old = await drawn(store, 0.1, 0.2)
    turn.now_ms = CLOSES - 1
    await store.sweep()
    back = await store.beat(old[1])
    assert (back.outcome, back.ahead) == (WAITING, 0)
    listed = room_key(store._name, "drawn")
    assert await redis.zcard(listed) == 2
    turn.now_ms = NEXT_BEGINS
    await store.sweep()
    assert (await store.beat(old[0])).outcome is GONE
    assert await redis.zcard(listed) == 2
    [new] = await drawn(store, 0.9, begins=NEXT_BEGINS)
    assert await redis.zrange(listed, 0, -1) == [new.visitor.encode()]
    assert (await store.enter(new_visitor(), lot=Lot(0.5, BEGINS))).outcome is REJECTED
    turn.forward(60)
    assert outcomes(await beat_all(store, [*old, new])) == [GONE, GONE, WAITING]
    assert await redis.zrange(listed, 0, -1) == [new.visitor.encode()]
    assert (await store.snapshot()).waiting == 1


async def test_leftovers_of_an_earlier_draw_are_behind_the_next_one(redis, make_room_store, turn):
    """A place from an earlier draw moves behind the next pre-queue with the first poll in it, and
    is not in its list."""
    store = make_room_store(
        total_active_users=0, events=(SALE, NEXT), between_events="open", claim_window=120
    )
    turn.now_ms = BEGINS
    left = await drawn(store, 0.2)
    turn.forward(1)
    left += await drawn(store, 0.1)
    turn.now_ms = OPENS
    standings = await beat_all(store, left)
    assert [standing.ahead for standing in standings] == [1, 0]
    left = [replace(t, order=s.order) for t, s in zip(left, standings, strict=True)]
    turn.now_ms = NEXT_BEGINS
    new = await drawn(store, 0.15, 0.9, begins=NEXT_BEGINS)
    await beat_all(store, left)
    assert await list_waiting(redis, store) == [ticket.visitor for ticket in [*new, *left]]
    turn.forward(60)
    assert [s.ahead for s in await beat_all(store, [*new, *left])] == [0, 1, 2, 3]
    assert await redis.zcard(room_key(store._name, "drawn")) == 2


@pytest.mark.parametrize("between", ["open", "closed"])
async def test_a_lost_place_of_before_the_event_is_worth_nothing_in_its_prequeue(
    redis, make_room_store, turn, between
):
    """Its visitor joins the pre-queue as a newcomer. In a room that is open between events the
    place counts again after the opening."""
    store = make_room_store(total_active_users=0, events=(SALE,), between_events=between)
    before = Ticket(new_visitor(), make_hidden_order(START), START, 0)
    turn.now_ms = BEGINS - 1
    assert (await store.beat(before)).outcome is (WAITING if between == "open" else REJECTED)
    await lose(redis, store, "waiting", "due")
    turn.now_ms = BEGINS
    assert (await store.beat(before)).outcome is GONE
    turn.now_ms = OPENS
    assert (await store.beat(before)).outcome is (WAITING if between == "open" else GONE)


# What survives ------------------------------------------------------------------------------------


class Replica:
    """The store of a replica, and the draws by which it computes lots again."""

    def __init__(self, store, room, settings):
        self.store, self.settings = store, settings
        self.draws = Draws(room, ["k" * 32], None)
        event = settings.events[0]
        self.draws.record_commitments(
            {event.draw_key: compute_commitment(self.draws.get_secret(event))}
        )

    async def join(self, now_ms):
        """As rooms/service.py does; the ticket says nothing of the place."""
        visitor = new_visitor()
        lot = find_lot(visitor, self.settings, self.draws, now_ms)
        standing = await self.store.enter(visitor, lot=lot)
        assert standing.outcome is WAITING
        return Ticket(visitor, make_hidden_order(now_ms), now_ms, standing.epoch)

    async def beat(self, tickets):
        return await beat_all(self.store, [self.placed(ticket) for ticket in tickets])

    def placed(self, ticket):
        return add_drawn_order(ticket, self.settings, self.draws)


@pytest.mark.parametrize("when", [OPENS - 1000, OPENS, OPENS + 5000])
async def test_a_draw_survives_the_store(redis, make_room_store, turn, when):
    """Redis is emptied before, at or after the opening. When all have polled, places and list are
    as they were drawn."""
    settings = RoomSettings(total_active_users=0, events=[SALE])
    room = new_room_name()
    replicas = [
        Replica(make_room_store(room=room, **settings.model_dump()), "shop", settings)
        for _ in range(2)
    ]
    tickets = []
    for number in range(30):
        turn.now_ms = BEGINS + 7000 * number
        tickets.append(await replicas[number % 2].join(turn.now_ms))
    line = await list_waiting(redis, replicas[0].store)
    assert line != [ticket.visitor for ticket in tickets]
    turn.now_ms = when
    if when > OPENS:  # some have polled, and their tickets say the place
        seen = await replicas[0].beat(tickets[:10])
        tickets[:10] = [replace(t, order=s.order) for t, s in zip(tickets, seen, strict=False)]
    await lose(redis, replicas[0].store)
    turn.forward(1)
    standings = await replicas[1].beat(tickets[::-2]) + await replicas[0].beat(tickets[::2])
    assert set(outcomes(standings)) == {WAITING}
    assert await list_waiting(redis, replicas[0].store) == line
    listed = await redis.zrange(room_key(room, "drawn"), 0, -1)
    assert [visitor.decode() for visitor in listed] == line
    turn.now_ms = max(turn.now_ms, OPENS)
    standings = await replicas[1].beat(tickets)
    assert [line.index(t.visitor) for t in tickets] == [s.ahead for s in standings]
