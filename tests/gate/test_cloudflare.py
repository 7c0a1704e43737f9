"""The status document with the field names of Cloudflare Waiting Room."""

import json

import pytest

from sidecar.gate.page import cloudflare
from sidecar.rooms.settings import RoomSettings
from tests.support.replica import ADMIN_TOKEN, cookie_of

OPENS, CLOSES = "2027-06-01T10:00Z", "2027-06-01T11:30Z"
DOCUMENT = {
    "state": "waiting",
    "wait_seconds": 540,
    "wait_seconds_low": 240,
    "wait_seconds_high": 840,
    "updated_at": "2027-06-01T09:41:30.250+00:00",
    "refresh_after_seconds": 19.2,
}
#: The members that Cloudflare's documentation names.
NAMES = {
    "inWaitingRoom", "waitTimeKnown", "waitTime", "waitTime25Percentile", "waitTime50Percentile",
    "waitTime75Percentile", "waitTimeFormatted", "queueIsFull", "queueAll", "lastUpdated",
    "refreshIntervalSeconds", "queueingMethod", "isFIFOQueue", "isRandomQueue",
    "isPassthroughQueue", "isRejectQueue", "isEventActive", "isEventPrequeueing",
    "timeUntilEventStart", "timeUntilEventStartFormatted", "timeUntilEventEnd",
    "timeUntilEventEndFormatted", "shuffleAtEventStart",
}  # fmt: skip


def members(*, at=None, settings=None, **changed):
    document = {**DOCUMENT, **changed, **({"updated_at": at} if at else {})}
    room = RoomSettings(total_active_users=1, **(settings or {}))
    return cloudflare.build_members(document, room)


def test_all_members_are_there():
    said = members()
    assert set(said) == NAMES
    assert said | {
        "inWaitingRoom": True, "waitTimeKnown": True, "waitTime": 9,
        "waitTimeFormatted": "9 minutes", "waitTime50Percentile": 0, "queueIsFull": False,
        "queueAll": False, "lastUpdated": "2027-06-01T09:41:30.250Z",
        "refreshIntervalSeconds": 20, "queueingMethod": "fifo", "isFIFOQueue": True,
        "isRandomQueue": False, "isEventActive": False, "timeUntilEventStart": 0,
        "timeUntilEventEndFormatted": "unavailable", "shuffleAtEventStart": False,
    } == said  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "1 minute"), (61, "2 minutes"), (3600, "1 hour"), (3660, "1 hour 1 minute"),
        (7500, "2 hours 5 minutes"), (None, "unavailable"),
    ],
)  # fmt: skip
def test_a_wait_is_in_whole_minutes(seconds, text):
    assert members(wait_seconds=seconds)["waitTimeFormatted"] == text


def test_a_random_room_has_quartiles():
    """Between the tenth and the ninetieth percentile that we have."""
    said = members(settings={"queueing_method": "random"})
    quarter, half, rest = (said[f"waitTime{n}Percentile"] for n in (25, 50, 75))
    assert 4 < quarter < half < rest < 14
    assert (said["waitTime"], said["isRandomQueue"], said["isFIFOQueue"]) == (half, True, False)
    assert said["waitTimeFormatted"] == f"{quarter} minutes to {rest} minutes"


def test_an_unknown_wait_of_a_random_room():
    unknown = dict.fromkeys(("wait_seconds", "wait_seconds_low", "wait_seconds_high"))
    said = members(settings={"queueing_method": "random"}, **unknown)
    assert (said["waitTimeKnown"], said["waitTime"], said["waitTime25Percentile"]) == (False, 0, 0)
    assert said["waitTimeFormatted"] == "unavailable"


@pytest.mark.parametrize(
    ("at", "active", "prequeue", "start", "end"),
    [
        ("09:20", False, False, "unavailable", "unavailable"),
        ("09:41", True, True, "19 minutes", "1 hour 49 minutes"),
        ("10:00", True, False, "unavailable", "1 hour 30 minutes"),
        ("11:30", False, False, "unavailable", "unavailable"),
    ],
)
def test_events(at, active, prequeue, start, end):
    event = {"name": "sale", "opens_at": OPENS, "closes_at": CLOSES}
    event["prequeue_from"] = "2027-06-01T09:30Z"
    said = members(at=f"2027-06-01T{at}:00.000+00:00", settings={"events": [event]})
    assert (said["isEventActive"], said["isEventPrequeueing"]) == (active, prequeue)
    assert said["timeUntilEventStartFormatted"] == start
    assert said["timeUntilEventEndFormatted"] == end
    assert said["shuffleAtEventStart"] == active


def test_who_is_refused_need_not_ask_again():
    """Only a room that refuses gives no interval; while it queues all, visitors poll."""
    refused = members(settings={"queueing_method": "reject"}, state="closed")
    assert (refused["refreshIntervalSeconds"], refused["isRejectQueue"]) == (0, True)
    waits = members(settings={"queueing_method": "reject", "queue_all": True})
    assert (waits["refreshIntervalSeconds"], waits["queueAll"]) == (20, True)


async def test_nginx_hears_of_it_only_where_the_room_says_so(replica):
    """`json_format` decides, also when it is changed at run time."""
    site = await replica(total_active_users=0)
    first = await site.check()
    assert "X-Waitroom-Json" not in first.headers
    change = await site.ops.patch(
        f"/admin/rooms/{site.room.name}",
        json={"json_format": "cloudflare"},
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
    )
    assert change.status == 200
    again = await site.check(cookie_of(first))
    said = json.loads(again.headers["X-Waitroom-Json"])["cfWaitingRoom"]
    assert (said["inWaitingRoom"], said["queueIsFull"]) == (True, False)


async def test_other_proxies_hand_it_on(replica):
    site = await replica(total_active_users=0, json_format="cloudflare", queueing_status_code=202)
    headers = {"Accept": "application/json", "X-Forwarded-Uri": "/api"}
    reply = await site.edge.get(f"/gate/{site.room.name}", headers=headers)
    assert (reply.status, reply.content_type) == (503, "application/json")
    assert (await reply.json())["cfWaitingRoom"]["inWaitingRoom"]
    assert "X-Waitroom-Json" not in reply.headers
    assert "Set-Cookie" in reply.headers
