"""The number that decides who is next: exact, and never the same twice."""

import asyncio
import json
from itertools import pairwise
from random import Random

import pytest

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import Lot
from sidecar.storage.redis.lua_source import LUA_ROOT, source
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

#: Orders by the scripts' own formula; every fourth is written to a sorted set and read again.
#: ARGV: settings, last order, now in ms, how many in each ms, classes by letter, a letter for each
#: visitor, how many came before.
_HARNESS = """\
local now = tonumber(ARGV[3])
local stats, redis_call, WAITING = {last_order = tonumber(ARGV[2])}, redis.call, KEYS[1]
local function int(number)
  return string.format('%.0f', number)
end
-- @include "rooms/parts/settings"
-- @include "rooms/parts/order"
local room = add_derived_settings(cjson.decode(ARGV[1]))
lines, classes, is_random = room.lines, room.classes, room.is_random
local names, before = cjson.decode(ARGV[5]), tonumber(ARGV[7])
local found, adds, places = {}, {}, {}
local function read_again()
  redis_call('ZADD', WAITING, unpack(adds))
  for n, score in ipairs(redis_call('ZMSCORE', WAITING, unpack(places))) do
    found[places[n]] = score
  end
  redis_call('UNLINK', WAITING)
  adds, places = {}, {}
end
for n = 1, #ARGV[6] do
  found[n] = int(order_of(next_arrival(), names[string.sub(ARGV[6], n, n)] or ''))
  if n % 4 == 0 then
    adds[#adds + 1] = found[n]
    adds[#adds + 1] = n
    places[#places + 1] = n
    if #places == 500 then read_again() end
  end
  if (before + n) % tonumber(ARGV[4]) == 0 then now = now + 1 end
end
if #places > 0 then read_again() end
return {table.concat(found, ' '), stats.last_order}
"""


@pytest.fixture
def store_url(redis_socket):
    """The real one: its doubles are those that count."""
    return f"unix://{redis_socket}"


@pytest.fixture
def formula(redis, tmp_path):
    """Orders of visitors of these classes (a letter each), so many in each ms from `now_ms` on."""
    (tmp_path / "visitors").symlink_to(LUA_ROOT / "visitors")
    (tmp_path / "rooms").symlink_to(LUA_ROOT / "rooms")
    (tmp_path / "harness.lua").write_text(_HARNESS)
    script = redis.register_script(source("harness", tmp_path))
    key = room_key(new_room_name(), "waiting")

    async def orders(settings, classes, *, now_ms, in_each_ms=1, last=0):
        names = json.dumps({name: name for name in settings.classes})
        found = []
        for at in range(0, len(classes), 50_000):
            given = classes[at : at + 50_000]
            args = [
                json.dumps(settings.for_scripts()),
                last,
                now_ms + at // in_each_ms,
                in_each_ms,
                names,
            ]
            text, last = await script(keys=[key], args=[*args, given, at])
            found += text.split()
        return found

    return orders


def expected(settings, classes, *, now_ms, in_each_ms=1, last=0):
    """The same in Python, whose integers are exact."""
    offsets = {name: policy.offset_of(settings, name) for name in [*settings.classes, "-"]}
    found = []
    for at, name in enumerate(classes):
        last = policy.next_arrival(now_ms + at // in_each_ms, last)
        found.append(last + offsets[name])
    return found


def is_first_come(orders, classes):
    """Whether nobody of a class is before somebody who came earlier."""
    last = dict.fromkeys(classes, -(2**60))
    for order, name in zip(orders, classes, strict=True):
        if order <= last[name]:
            return False
        last[name] = order
    return True


def room_of(**settings):
    return RoomSettings(total_active_users=0, **settings)


ROOMS = {
    "priorities": room_of(classes=PRIORITIES),
    "strict": room_of(classes=IN_LINES, lines=LINES),
    "weighted": room_of(classes=IN_LINES, lines=WEIGHTED),
    "band 0": room_of(classes=HEAD_STARTS),
}
#: Room, the first ms, visitors, how many in each ms. A million in all.
STRETCHES = [
    ("priorities", 1, 100_000, 1000),
    ("priorities", TODAY_MS, 200_000, 100_000),
    ("priorities", TODAY_MS + 9, 100_000, 7),
    ("priorities", LAST_WITH_BANDS_MS - 2000, 200_000, 250),
    ("strict", 1, 50_000, 1),
    ("strict", TODAY_MS, 100_000, 130),
    ("weighted", LAST_WITH_BANDS_MS - 1000, 50_000, 60),
    ("band 0", LAST_MS - 2000, 200_000, 250),
]


async def test_a_million_orders_are_exact_and_no_two_are_the_same(formula):
    """Orders equal those of exact integers, at both ends and with thousands in a millisecond."""
    rng = Random(7)
    total = 0
    for room, now_ms, number, in_each_ms in STRETCHES:
        settings = ROOMS[room]
        names = [*settings.classes, "-"]
        classes = "".join(rng.choices(names, k=number))
        found = await formula(settings, classes, now_ms=now_ms, in_each_ms=in_each_ms)
        wanted = expected(settings, classes, now_ms=now_ms, in_each_ms=in_each_ms)
        assert b" ".join(found) == " ".join(map(str, wanted)).encode()
        assert len(set(found)) == number
        assert max(map(abs, wanted)) < 2**53
        assert is_first_come(wanted, classes)
        total += number
    assert total == 1_000_000


async def test_bands_do_not_touch_while_arrivals_are_below_2041(formula):
    """The last of a higher priority is before the first of a lower one."""
    settings = ROOMS["priorities"]
    first = await formula(settings, "-def", now_ms=86_400_001)
    last = await formula(settings, "-defg", now_ms=LAST_WITH_BANDS_MS - 9)
    ordinary, plain, one, two = map(int, first)
    assert int(last[4]) < two < int(last[3]) < one < int(last[2]) < ordinary
    assert plain < int(last[0])
    before, after = LAST_WITH_BANDS_MS, LAST_WITH_BANDS_MS + 1
    orders = [await formula(ROOMS["band 0"], "b", now_ms=ms) for ms in (before, after)]
    assert int(orders[1][0]) - int(orders[0][0]) == 1000


async def test_an_order_says_the_line(formula):
    """At both ends of the range of arrivals (tests/rooms/test_lists.py: the scripts agree)."""
    names = {"-": "last", "d": "last", "e": "third", "f": "second", "g": "first"}
    settings = ROOMS["strict"]
    for now_ms in (86_400_001, TODAY_MS, LAST_WITH_BANDS_MS - 9):
        classes = "".join(names)
        for name, order in zip(names, await formula(settings, classes, now_ms=now_ms), strict=True):
            assert LINES[policy.line_of(settings, int(order))]["name"] == names[name]


# Through the store --------------------------------------------------------------------------------


async def scores(redis, room):
    """visitor -> order, as text."""
    whole = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
    found = await redis.eval(whole, 1, room_key(room, "waiting"))
    return dict(zip(map(bytes.decode, found[::2]), map(bytes.decode, found[1::2]), strict=True))


async def test_twenty_thousand_visitors_have_orders_of_their_own(redis, make_room_store, turn):
    """Two replicas, one by one or in batches: orders are exact and keep that of joining."""
    settings = {"total_active_users": 0, "classes": IN_LINES, "lines": WEIGHTED}
    room = new_room_name()
    replicas = [make_room_store(room=room, **settings) for _ in range(2)]
    rng = Random(3)
    told, by_class = {}, {}
    for now_ms, number in [(1, 2000), (TODAY_MS, 14_000), (LAST_WITH_BANDS_MS - 50, 4000)]:
        turn.now_ms = now_ms
        for at in range(0, number, 500):
            batch = [(new_visitor(), rng.choice([*IN_LINES, ""])) for _ in range(500)]
            store = replicas[at // 500 % 2]
            standings = await asyncio.gather(
                *(store.enter(visitor, claim=claim(name)) for visitor, name in batch)
            )
            for (visitor, name), standing in zip(batch, standings, strict=True):
                told[visitor] = str(standing.order)
                by_class.setdefault(name, []).append(standing.order)
                assert standing.is_classed == (name != "")
            turn.now_ms += at % 3
    assert len(set(told.values())) == len(told) == 20_000
    assert await scores(redis, room) == told
    for own in by_class.values():
        assert all(before < after for before, after in pairwise(own))


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
