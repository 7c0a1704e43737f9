"""Heartbeats: when they are due, who misses them, and who polls too often."""

from sidecar.visitors.tokens import new_visitor
from tests.support.visitors import queue


async def test_durations_of_odd_fractions_count_in_whole_milliseconds(make_room_store, turn):
    """A fraction of a half marks an unused place, so no setting may bring in another fraction."""
    store = make_room_store(total_active_users=0, claim_window=5.0005, heartbeat_timeout=60)
    await queue(store, 1)
    turn.forward(1)
    await store.configure({"total_active_users": 1})
    assert (await store.snapshot()).provisional == 1


async def test_a_newcomer_is_asked_to_poll_well_within_claim_window(open_room):
    """Otherwise an honest newcomer would lose the place."""
    store, _, _ = await open_room(claim_window=6, heartbeat_interval=30)
    assert (await store.enter(new_visitor())).refresh_ms == 3000


async def test_a_longer_patience_does_not_hold_a_slot_for_a_place_never_polled(
    make_room_store, turn
):
    """The score of an unused place stays valid when heartbeat_timeout is changed."""
    store = make_room_store(total_active_users=0, heartbeat_timeout=60)
    await queue(store, 1)
    await store.configure({"heartbeat_timeout": 3600, "total_active_users": 1})
    assert (await store.snapshot()).provisional == 1
    turn.forward(30.001)
    assert (await store.snapshot()).provisional == 0


async def test_polls_when_they_are_due_are_never_limited(open_room, turn):
    """Neither polls that are due nor the poll of a called visitor count."""
    store, _, [ticket] = await open_room(waiting=1, poll_limit=1, heartbeat_interval=1)
    for _ in range(130):
        assert (await store.beat(ticket)).limited_ms == 0
        turn.forward(1)
