"""One table of settings: what the scripts go by is what a replica goes by without them."""

import pytest

from sidecar.rooms.settings import RoomSettings, merge_settings
from sidecar.visitors.model import Phase

NOW_MS = 1_800_000_000_000
MINUTE = 60_000


def event(name, opens_in, *, lasts=10, **more):
    """Return an opening that begins and ends some minutes from now."""
    opens_ms = NOW_MS + opens_in * MINUTE
    return {"name": name, "opens_at": opens_ms, "closes_at": opens_ms + lasts * MINUTE, **more}


ON = event("on", -1, total_active_users=7)
LATER = event("later", 5, total_active_users=9, prequeue_from=NOW_MS + MINUTE)
DRAWING = event("drawing", 5, total_active_users=9, prequeue_from=NOW_MS)
OVER = event("over", -20, total_active_users=8)


@pytest.mark.parametrize(
    ("file", "overrides", "phase", "cap"),
    [
        ({}, {}, Phase.OPEN, 5),
        ({}, {"total_active_users": 3}, Phase.OPEN, 3),
        ({}, {"total_active_users": 0}, Phase.OPEN, 0),
        ({}, {"queue_all": True}, Phase.OPEN, 5),
        ({}, {"hold": {"until": NOW_MS + 1, "why": "ill"}}, Phase.OPEN, 5),
        ({"hold": {"until": NOW_MS}}, {}, Phase.OPEN, 5),
        ({"events": [ON]}, {}, Phase.OPEN, 7),
        ({"events": [ON]}, {"total_active_users": 3}, Phase.OPEN, 7),
        ({"events": [ON]}, {"events": []}, Phase.OPEN, 5),
        ({"events": [LATER]}, {}, Phase.CLOSED, 5),
        ({"events": [LATER]}, {"between_events": "open"}, Phase.OPEN, 5),
        ({"events": [LATER], "between_events": "open"}, {}, Phase.OPEN, 5),
        ({"events": [DRAWING]}, {"total_active_users": 3}, Phase.PREQUEUE, 3),
        ({"events": [OVER]}, {}, Phase.CLOSED, 5),
        ({"events": [OVER, LATER]}, {"events": [OVER, ON]}, Phase.OPEN, 7),
        ({}, {"events": [DRAWING]}, Phase.PREQUEUE, 5),
    ],
)
async def test_a_replica_and_the_scripts_go_by_the_same_settings(
    make_room_store, turn, file, overrides, phase, cap
):
    """Both merge the file's settings, changes at run time, and an open event's settings."""
    turn.now_ms = NOW_MS
    file = {"total_active_users": 5, **file}
    store = make_room_store(**file)
    settings, problems = merge_settings(RoomSettings(**file), overrides, NOW_MS)
    assert (settings.schedule_at(NOW_MS).phase, settings.total_active_users) == (phase, cap)
    assert problems == []
    checked = RoomSettings(**file).with_overrides(overrides).model_dump()
    await store.configure({name: checked[name] for name in overrides})
    snapshot = await store.snapshot()
    _, _, _, pace, _ = await store.forecast({})
    assert (snapshot.phase, pace.cap) == (phase, cap)
    assert merge_settings(RoomSettings(**file), snapshot.overrides, NOW_MS) == (settings, [])
