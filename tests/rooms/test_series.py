"""A room's figures over time, as charts ask for them."""

import json

from sidecar.rooms.adaptive.controller import Learned
from tests.rooms.operator_calls import told
from tests.support.replica import cookie_of

SALE = {"name": "sale", "opens_at": "2027-01-15 07:00"}


async def test_the_last_hour_is_what_the_counters_went_up_by(replica):
    """This holds for any step, and without what happened before the hour."""
    site = await replica(total_active_users=2)
    site.turn.now_ms = site.turn.now_ms // 300_000 * 300_000
    known = []
    for minute in range(71):
        for _ in range(minute % 3):
            await site.check()
        await site.room.refresh()
        site.turn.forward(60)
        known.append((await told(site))["counters"])
    for step in (60, 300, 3600):
        steps = (await told(site, "/series", step=step))["steps"]
        assert [each["ends_ms"] for each in steps[:-1]] == [each["from_ms"] for each in steps[1:]]
        for name in ("joined", "admitted"):
            assert sum(each[name] for each in steps) == known[-1][name] - known[-61][name] > 0
    assert len((await told(site, "/series", step=300))["steps"]) == 13


async def test_a_part_of_the_time_is_asked_for(replica):
    """The series begins with the first sample and has the events. Invalid parameters are
    refused."""
    site = await replica(total_active_users=1, events=json.dumps([SALE]))
    begun_ms = site.turn.now_ms = site.turn.now_ms // 60_000 * 60_000
    first = await site.check()
    for _ in range(4):
        await site.room.refresh()
        site.turn.forward(60)
        await site.check(cookie_of(first))
    all_ms = [begun_ms, begun_ms + 60_000, begun_ms + 120_000]
    day = await told(site, "/series", **{"from": begun_ms - 86_400_000})
    assert [each["from_ms"] for each in day["steps"]] == all_ms
    assert [event["name"] for event in day["events"]] == ["sale"]
    part = await told(site, "/series", **{"from": begun_ms + 1, "until": begun_ms + 130_000})
    assert [each["from_ms"] for each in part["steps"]] == all_ms[1:2]
    assert part["steps"][0]["wait_half"] is None
    for wrong in ({"step": 59}, {"from": "yesterday"}):
        await told(site, "/series", 422, **wrong)


async def test_an_adaptive_room_has_its_sites_figures(replica):
    """With those of each minute; null while the room is not adaptive."""
    site = await replica(total_active_users=9, adaptive=json.dumps({"p90": 1.2}))
    learned = Learned(ceiling=5.7, p90_s=0.4, error_share=0.01)
    await site.room.store.store_learned(learned.to_json(), expected="")
    for adaptive in (None, {"mode": "off", "p90": 1.2}, None):
        await site.room.store.configure({"adaptive": adaptive})
        await site.room.refresh()
        site.turn.forward(60)
    steps = (await told(site, "/series"))["steps"]
    figures = [(each["ceiling"], each["p90"], each["error_share"]) for each in steps]
    assert figures == [(None, None, None), (5, 0.4, 0.01)]
