"""The number that decides who is next: exact, and never the same twice."""

import asyncio
from random import Random

import pytest

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import Lot
from sidecar.visitors.tokens import new_visitor
from tests.support import room_policy as policy
from tests.support.joiners import claim
from tests.support.rooms import new_room_name

#: Bands are 2^51 µs apart, and a double is exact up to 2^53: 2041 and 2255.
LAST_WITH_BANDS_MS = 2**51 // 1000
LAST_MS = 2**53 // 1000
TODAY_MS = 1_800_000_000_000

HEAD_STARTS = {
    "a": {"head_start": 0.001},
    "b": {"head_start": 300},
    "c": {"head_start": 86_400},
    "d": {},
}
PRIORITIES = {
    **HEAD_STARTS,
    "e": {"priority": 1, "head_start": 0.007},
    "f": {"priority": 2, "head_start": 86_400},
    "g": {"priority": 3},
}
IN_LINES = {
    **HEAD_STARTS,
    "e": {"line": "third", "head_start": 0.007},
    "f": {"line": "second", "head_start": 86_400},
    "g": {"line": "first"},
}
LINES = tuple({"name": name} for name in ("first", "second", "third", "last"))
WEIGHTED = tuple({**line, "weight": n} for n, line in enumerate(LINES, 1))


@pytest.fixture
def store_url(redis_socket):
    """The real one: its doubles are those that count."""
    return f"unix://{redis_socket}"


async def scores(redis, room):
    """Return the orders of a room's waiting visitors, as text."""
    whole = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
    found = await redis.eval(whole, 1, room_key(room, "waiting"))
    return dict(zip(map(bytes.decode, found[::2]), map(bytes.decode, found[1::2]), strict=True))


@pytest.fixture
def join_all(redis, make_room_store, turn):
    """Return a function that lets visitors of these classes (a letter each, - for none) join a new
    room, so many in each ms from `now_ms` on, at two replicas. It returns their orders, which must
    be those in Redis."""

    async def join(settings, classes, *, now_ms, in_each_ms=1):
        room = new_room_name()
        replicas = [make_room_store(room=room, total_active_users=0, **settings) for _ in range(2)]
        joining, told = [(new_visitor(), name) for name in classes], {}
        for ms, batch in enumerate(batched(joining, in_each_ms)):
            turn.now_ms = now_ms + ms
            store = replicas[ms % 2]
            standings = await asyncio.gather(
                *(store.enter(visitor, claim=claim(name.strip("-"))) for visitor, name in batch)
            )
            for (visitor, name), standing in zip(batch, standings, strict=True):
                told[visitor] = standing.order
                assert standing.is_classed == (name != "-")
        assert await scores(redis, room) == {v: str(order) for v, order in told.items()}
        return list(told.values())

    return join


def batched(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]


def compute_exact_orders(settings, classes, *, now_ms, in_each_ms):
    """Compute the orders in Python, whose integers are exact."""
    rules, orders, last = RoomSettings(total_active_users=0, **settings), [], 0
    offsets = {name: policy.offset_of(rules, name) for name in [*rules.classes, "-"]}
    for at, name in enumerate(classes):
        last = policy.next_arrival(now_ms + at // in_each_ms, last)
        orders.append(last + offsets[name])
    return orders


ROOMS = {
    "priorities": {"classes": PRIORITIES},
    "strict": {"classes": IN_LINES, "lines": LINES},
    "weighted": {"classes": IN_LINES, "lines": WEIGHTED},
    "band 0": {"classes": HEAD_STARTS},
}
#: Room, the first ms, and how many visitors join in each ms.
STRETCHES = [
    ("priorities", 1, 1000),
    ("priorities", TODAY_MS, 2000),
    ("priorities", TODAY_MS + 9, 7),
    ("priorities", LAST_WITH_BANDS_MS - 50, 250),
    ("strict", 1, 1),
    ("strict", TODAY_MS, 130),
    ("weighted", LAST_WITH_BANDS_MS - 60, 60),
    ("band 0", LAST_MS - 50, 250),
]


@pytest.mark.parametrize(("room", "now_ms", "in_each_ms"), STRETCHES)
async def test_orders_are_exact_and_no_two_are_the_same(join_all, room, now_ms, in_each_ms):
    """Orders equal those of exact integers, at both ends of time and with thousands in a ms. Those
    of one class keep the order of joining."""
    settings = ROOMS[room]
    number = min(3000, 300 * in_each_ms)
    classes = "".join(Random(7).choices([*settings["classes"], "-"], k=number))
    when = {"now_ms": now_ms, "in_each_ms": in_each_ms}
    orders = await join_all(settings, classes, **when)
    assert orders == compute_exact_orders(settings, classes, **when)
    assert len(set(orders)) == number
    assert max(map(abs, orders)) < 2**53
    for name in set(classes):
        own = [order for order, each in zip(orders, classes, strict=True) if each == name]
        assert own == sorted(own)


async def test_bands_do_not_touch_while_arrivals_are_below_2041(join_all):
    """The last of a higher priority is before the first of a lower one."""
    settings = ROOMS["priorities"]
    first = await join_all(settings, "-def", now_ms=86_400_001)
    last = await join_all(settings, "-defg", now_ms=LAST_WITH_BANDS_MS - 9)
    ordinary, plain, one, two = map(int, first)
    assert int(last[4]) < two < int(last[3]) < one < int(last[2]) < ordinary
    assert plain < int(last[0])
    before, after = LAST_WITH_BANDS_MS, LAST_WITH_BANDS_MS + 1
    orders = [await join_all(ROOMS["band 0"], "b", now_ms=ms) for ms in (before, after)]
    assert int(orders[1][0]) - int(orders[0][0]) == 1000


async def test_drawn_places_are_exact_and_ahead_of_all_others(redis, make_room_store, turn):
    """From the smallest lot to the largest, all are before the head of every queue."""
    begins = turn.now_ms + 1000
    event = {"name": "sale", "prequeue_from": begins, "opens_at": begins + 60_000}
    room = new_room_name()
    store = make_room_store(
        room=room, total_active_users=0, classes=PRIORITIES, events=(event,), between_events="open"
    )
    others = [(await store.enter(new_visitor(), claim=claim(name))).order for name in "-abcdefg"]
    turn.now_ms = begins
    rng = Random(5)
    lots = [0, 1, 2**50 - 1, *(rng.getrandbits(50) for _ in range(500))]
    visitors = [new_visitor() for _ in lots]
    await asyncio.gather(
        *(
            store.enter(visitor, claim=claim("g"), lot=Lot(lot / 2**50, begins))
            for visitor, lot in zip(visitors, lots, strict=True)
        )
    )
    found = await scores(redis, room)
    assert [found[visitor] for visitor in visitors] == [str(lot - 2**53) for lot in lots]
    assert max(int(found[visitor]) for visitor in visitors) < min(others)
    assert all(policy.is_drawn(int(found[visitor])) for visitor in visitors)
    assert not any(map(policy.is_drawn, others))


async def test_a_clock_that_jumps_back_makes_nobody_sooner(make_room_store, turn):
    """After a failover to a clock that is behind, newcomers still join at the end."""
    store = make_room_store(total_active_users=0)
    orders = []
    for ms in (0, -3_600_000, 1, 1, 5_000_000):
        turn.now_ms += ms
        orders.append((await store.enter(new_visitor())).order)
    assert orders == sorted(orders)
    assert len(set(orders)) == 5
