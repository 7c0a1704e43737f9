"""Holds: nobody is called for some time, as an operator, an alert or the room's site asks."""

from collections import Counter

from sidecar.rooms.adaptive.signals import STEP_S, find_bucket
from sidecar.rooms.adaptive.worker import adapt
from tests.rooms.operator_calls import ask, told
from tests.support.visitors import beat_all, go_in, queue

ALERT = {"version": "4", "receiver": "waitroom", "alerts": [{"labels": {"severity": "page"}}]}


def alert(status, summary="The database\n\x00is slow"):
    return {**ALERT, "status": status, "commonAnnotations": {"summary": summary}}


async def test_a_hold_ends_by_itself_and_gently(make_room_store, turn):
    """Nobody is called, and newcomers wait. Then at most half of the cap is let in per minute."""
    store = make_room_store(total_active_users=60, heartbeat_timeout=600)
    inside = await go_in(store)
    await store.configure({"hold": {"until": turn.now_ms + 30_000, "why": ""}})
    tickets = await queue(store, 40)
    turn.now_ms += 29_999
    assert (await store.snapshot()).active == 1
    turn.now_ms += 1
    assert 1 < (await store.snapshot()).active <= 2
    for _ in range(60):
        turn.now_ms += 1000
        await beat_all(store, tickets)
    assert (await store.renew(inside)).outcome.name == "ADMITTED"
    assert 30 <= (await store.snapshot()).active <= 32
    turn.now_ms += 60_000
    await beat_all(store, tickets)
    turn.now_ms += 1
    snapshot = await store.snapshot()
    assert (snapshot.active, snapshot.waiting) == (41, 0)
    assert "hold" not in snapshot.overrides


async def test_an_operator_holds_a_room(replica):
    """It shows who holds it and why. `resume` ends the hold, and so does an undo."""
    site = await replica(total_active_users=3)
    held = await ask(site, "POST", "/hold?seconds=60&why=new%20database", by="anna")
    assert (held["state"], held["mode"]) == ("paused", "paused")
    assert held["settings"]["hold"]["why"] == "new database"
    await site.check()
    assert (await told(site))["waiting"] == 1
    assert (await told(site, "/log"))["log"][0]["by"] == "anna"
    assert (await ask(site, "POST", "/resume"))["state"] == "running"
    held = await ask(site, "POST", "/hold")
    assert (await ask(site, "POST", "/undo", {"revision": held["change"]}))["state"] == "running"
    for more in ("?seconds=0", "?seconds=86401", "?seconds=x", "?why=two%0Alines"):
        await ask(site, "POST", f"/hold{more}", status=422)


async def test_alertmanager_holds_a_room_until_the_alert_is_resolved(replica):
    """A repeated alert prolongs the hold. It neither shortens nor ends an operator's own hold."""
    site = await replica(total_active_users=3)
    room = await ask(site, "POST", "/hold?seconds=60", alert("firing"))
    assert room["settings"]["hold"]["why"] == "alert: The database is slow"
    site.turn.forward(30)
    later = await ask(site, "POST", "/hold?seconds=60", alert("firing"))
    assert later["settings"]["hold"]["until"] > room["settings"]["hold"]["until"]
    assert (await ask(site, "POST", "/hold", alert("resolved")))["state"] == "running"
    own = await ask(site, "POST", "/hold?seconds=600&why=mine")
    for status in ("firing", "resolved", "resolved"):
        room = await ask(site, "POST", "/hold?seconds=60", alert(status))
        assert room["settings"]["hold"] == own["settings"]["hold"]
    await ask(site, "POST", "/resume")
    assert (await ask(site, "POST", "/hold", alert("resolved")))["state"] == "running"
    for body in ({**ALERT, "status": "on"}, {**ALERT, "commonAnnotations": 1}):
        await ask(site, "POST", "/hold", body, status=422)


async def test_a_resolved_alert_leaves_an_operators_shorter_hold(replica):
    """The alert was to hold for longer than the operator."""
    site = await replica(total_active_users=3)
    own = (await ask(site, "POST", "/hold?seconds=60&why=mine"))["settings"]["hold"]
    for status in ("firing", "resolved"):
        held = await ask(site, "POST", "/hold?seconds=600", alert(status))
        assert held["settings"]["hold"]["until"] > own["until"], status
        assert held["settings"]["hold"]["why"] == "mine"


async def count(site, seconds, errors=0, number=30):
    """Count responses of the site that took some seconds, now."""
    step = site.turn.now_ms // 1000 // STEP_S
    counts = Counter({"n": number, "p": 100 * number, "e": errors, find_bucket(seconds): number})
    await site.room.store.count_responses(step, counts)


async def tick(site):
    """Run one tick, and return why the room is held, or None."""
    await adapt(site.room, await site.room.refresh())
    await site.room.refresh()
    hold = site.room.settings.hold
    return hold and hold.why


async def test_an_ill_site_holds_its_room(replica):
    """The hold ends 15 s after the site is clearly well again, or no longer reports."""
    site = await replica(total_active_users=9, pause_on_response_time=2, pause_on_error_share=0.1)
    await count(site, 1, number=19, errors=19)
    assert await tick(site) is None  # too few
    await count(site, 1, number=200)
    assert await tick(site) is None
    site.turn.forward(20)
    await count(site, 3)
    assert await tick(site) == "the site's p90 is 3 s, limit 2 s"
    assert (await told(site))["state"] == "paused"
    for _ in range(2):
        await site.check()
    assert (await told(site))["waiting"] == 2
    site.turn.forward(14)
    await count(site, 1.8)  # is still ill, as the room is held
    assert (await tick(site)).startswith("the site's p90 is 1.")
    site.turn.forward(14)
    await count(site, 1, errors=4)
    assert await tick(site) == "13% of the responses are errors, limit 10%"
    site.turn.forward(14)
    await count(site, 1)
    assert await tick(site) is not None
    site.turn.forward(1)
    assert await tick(site) is None
    assert (await told(site))["state"] == "running"


async def test_an_ill_site_leaves_an_operators_longer_hold_alone(replica):
    site = await replica(total_active_users=9, pause_on_response_time=2)
    await ask(site, "POST", "/hold?seconds=600&why=mine")
    await count(site, 3)
    assert await tick(site) == "mine"
