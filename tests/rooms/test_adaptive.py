"""An adaptive room in Redis: its ceiling, what it learned, and nginx's reports."""

import json
from collections import Counter

import pytest
import redis

from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.adaptive.reports import count_report, parse_report
from sidecar.rooms.adaptive.signals import ERRORS, PERCENT, RESPONSES, SUM_MS, sum_counts
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.settings import RoomSettings, merge_settings
from sidecar.visitors.model import QueueOutcome
from tests.support.visitors import go_in, queue

ON = {"total_active_users": 10, "adaptive": {"mode": "on", "p90": 1.2, "min": 2}}
SLOW_S = 1.2


async def learn(store, ceiling):
    learned = Learned(ceiling=ceiling).to_json()
    assert await store.store_learned(learned, expected=await store.read_learned())


@pytest.mark.parametrize(
    ("mode", "stored", "cap"),
    [("on", None, 2), ("on", 5.9, 5), ("on", 50.0, 10), ("advise", 5.9, 10), ("off", 5.9, 10)],
)
async def test_a_replica_and_the_scripts_have_the_same_cap(make_room_store, mode, stored, cap):
    """The lower of cap and ceiling; `min` if nothing was measured, or Redis was emptied."""
    file = {**ON, "adaptive": {**ON["adaptive"], "mode": mode}}
    store = make_room_store(**file)
    if stored is not None:
        await learn(store, stored)
    snapshot = await store.snapshot()
    settings, problems = merge_settings(RoomSettings(**file), snapshot.overrides, snapshot.now_ms)
    assert (settings.find_cap(snapshot.learned), problems) == (cap, [])
    assert (await store.forecast({}))[3].cap == cap


async def test_a_ceiling_throws_nobody_out_and_keeps_the_order(make_room_store, turn):
    """Below those inside, it only stops calls. When it rises, the first in the queue are called."""
    store = make_room_store(**ON)
    await learn(store, 3)
    for _ in range(3):
        await go_in(store)
    waiting = await queue(store, 3)
    await learn(store, 1)
    assert (await store.snapshot()).active == 3
    await learn(store, 5)
    snapshot = await store.snapshot()
    assert (snapshot.active, snapshot.waiting) == (5, 1)
    turn.now_ms += 1000
    called = [await store.beat(ticket) for ticket in waiting]
    outcomes = [each.outcome for each in called]
    assert outcomes == [QueueOutcome.ADMITTED, QueueOutcome.ADMITTED, QueueOutcome.WAITING]


def test_a_small_share_of_reports_is_not_rounded_away():
    """With 2 % of the responses, the usual number for each visitor is small, and moves slowly."""
    learned = Learned(usual=0.004, ceiling=7.5)
    learned.usual += (0.006 - learned.usual) / 60
    assert Learned.from_json(learned.to_json()).usual > 0.004


async def test_a_tick_of_a_slow_leader_changes_nothing(make_room_store):
    """Two replicas that ran the same tick: what the second one computed is dropped."""
    store = make_room_store(**ON)
    await learn(store, 3)
    seen = await store.read_learned()
    await learn(store, 4)
    assert not await store.store_learned(Learned(ceiling=9).to_json(), expected=seen)
    assert json.loads(await store.read_learned())["ceiling"] == 4
    await store.forget_learned(by="anna")
    assert await store.read_learned() == ""
    assert (await store.lists.log())[0]["by"] == "anna"


async def test_what_was_learned_survives_the_loss_of_redis(replica, redis_socket):
    """A replica writes it again. Until then the room lets in no more than `min`."""
    site = await replica(**ON)
    await learn(site.room.store, 7)
    site.turn.forward(5)
    await site.room.refresh()
    with redis.Redis(unix_socket_path=str(redis_socket)) as store:
        store.delete(room_key(site.room.name, "config"))
    assert (await site.room.store.forecast({}))[3].cap == 2
    site.turn.forward(1)
    await site.room.refresh()
    assert (await site.room.refresh()).learned == Learned(ceiling=7)
    assert (await site.room.store.forecast({}))[3].cap == 7


async def test_replicas_of_another_version_share_what_was_learned(make_room_store):
    """Values that a later version adds are left out, and those that an earlier one lacks are the
    defaults."""
    store = make_room_store(**ON)
    assert await store.store_learned({"ceiling": 4.5, "later": [1]}, expected="")
    assert (await store.snapshot()).learned == Learned(ceiling=4.5)
    assert (await store.forecast({}))[3].cap == 4


async def test_counts_of_several_replicas_add_up(make_room_store):
    """Each replica adds to the same step."""
    store = make_room_store(**ON)
    counts = Counter({RESPONSES: 2, PERCENT: 50, ERRORS: 1, SUM_MS: 900, "70": 2})
    await store.count_responses(5, counts)
    await store.count_responses(5, counts)
    await store.count_responses(6, Counter({RESPONSES: 1, PERCENT: 25, "70": 1}))
    found = sum_counts(await store.read_responses([4, 5, 6]))
    assert (found[RESPONSES], found[ERRORS], found.reported_share) == (5, 2, 0.25)
    assert found.percentile_s(0.9) == pytest.approx(0.79, rel=0.05)


def report(upstream, header, response, status=200, room="shop"):
    return (
        f"<190>Nov 22 04:33:00 waitroom: {room}|25|{upstream}|{header}|{response}|{status}".encode()
    )


@pytest.mark.parametrize(
    ("data", "time_ms", "errors"),
    [
        (report("200", "0.400", "9.000"), 400, 0),  # a slow download
        (report("502, 200", "0.100, 0.300", "0.100, 0.310"), 400, 0),
        (report("502, 502", "-, -", "0.001, 0.002", 502), None, 1),  # a quick error
        (report("502 : 200", "- : 0.300", "0.001 : 0.310"), 300, 0),
        (report("504", "-", "30.000", 504), 30_000, 1),
        (report("-", "-", "3.000", 499), 3000, 0),  # hung up, as it was slow
        (report("429", "0.010", "0.010", 429), None, 1),
        (report("301", "0.010", "0.010", 301), 10, 0),
    ],
)
def test_a_report_is_counted(data, time_ms, errors):
    counts = count_report(parse_report(data), SLOW_S)
    assert (counts[RESPONSES], counts[ERRORS], counts[PERCENT]) == (1, errors, 25)
    assert counts[SUM_MS] == (time_ms or 0)
    assert len([name for name in counts if name.lstrip("-").isdigit()]) == (time_ms is not None)


@pytest.mark.parametrize(
    "data",
    [
        report("-", "-", "0.200", 499),  # hung up before it was slow
        report("404", "0.010", "0.010", 404),
        report("304", "0.010", "0.010", 304),
        report("101", "0.010", "60.0", 101),
    ],
)
def test_a_report_that_says_nothing_about_the_site_is_left_out(data):
    assert count_report(parse_report(data), SLOW_S) == Counter()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\x00" * 500,
        b"<190>Nov 22 04:33:00 waitroom: shop|25|200|0.1|0.1",
        report("200", "0.1", "0.1", room="../x"),
        report("200", "0.1; DROP", "0.1"),
        report("200", "0.1", "0.1") + b"\n\n",
    ],
)
def test_other_bytes_are_no_report(data):
    assert parse_report(data) is None


@pytest.mark.parametrize(
    ("adaptive", "problem"),
    [
        ({"mode": "on"}, "set p90"),
        ({"p90": 0}, "greater than or equal to 0.01"),
        ({"p90": "1s", "max_errors": 2}, "less than or equal to 1"),
        ({"p90": "1s", "mode": "auto"}, "advise"),
        ("no table", "write JSON"),
    ],
)
def test_a_wrong_setting_is_named(adaptive, problem):
    with pytest.raises(Exception, match=problem):
        RoomSettings(total_active_users=5, adaptive=adaptive)
