"""The preview of a room's events, and the settings that operators send for them."""

import json

import pytest

from sidecar.rooms.openings_preview import find_warnings
from sidecar.rooms.settings import RoomSettings
from tests.rooms.operator_calls import TOKEN, ask, told

ZURICH = "Europe/Zurich"
#: The test's clock stands at 2027-01-15 08:00 UTC.
SALE = {
    "name": "sale",
    "timezone": ZURICH,
    "prequeue_from": "2027-01-15 09:30",
    "opens_at": "2027-01-15 10:00",
    "closes_at": "2027-01-15 18:00",
    "new_users_per_minute": 60,
    "message": "The sale is on.",
}
#: Of the day on which the clocks are put forward.
SPRING = {"name": "spring", "timezone": ZURICH, "opens_at": "2027-03-28 03:00",
          "total_active_users": 9}  # fmt: skip


@pytest.fixture
async def site(replica):
    return await replica(total_active_users=3, message="Hello.", events=[SPRING, SALE])


async def preview(site, status=200, **query):
    return await told(site, "/events", status, **query)


async def test_each_event_is_told_step_by_step(site):
    """Steps are sorted by time, in the event's time zone and in UTC, with the settings in force
    while the event is open."""
    shown = await preview(site)
    sale, spring = shown["events"]
    assert sale["name"] == "sale"
    assert (sale["state"], sale["before"], sale["timezone"]) == ("coming", "closed", ZURICH)
    assert sale["steps"] == [
        {"step": "prequeue_from", "phase": "prequeue", "in_seconds": 1800,
         "at": "2027-01-15T08:30:00.000+00:00", "local": "2027-01-15T09:30:00.000+01:00"},
        {"step": "opens_at", "phase": "open", "in_seconds": 3600,
         "at": "2027-01-15T09:00:00.000+00:00", "local": "2027-01-15T10:00:00.000+01:00"},
        {"step": "closes_at", "phase": "closed", "in_seconds": 9 * 3600,
         "at": "2027-01-15T17:00:00.000+00:00", "local": "2027-01-15T18:00:00.000+01:00"},
    ]  # fmt: skip
    assert holding(sale) == (3, 60, "The sale is on.")
    # I expect the night in which an hour is missing to be an hour shorter.
    assert [(step["step"], step["local"], step["in_seconds"]) for step in spring["steps"]] == [
        ("opens_at", "2027-03-28T03:00:00.000+02:00", 71 * 86_400 + 17 * 3600)
    ]
    assert holding(spring) == (9, None, "Hello.")
    assert shown["warnings"] == []


def holding(shown):
    return tuple(shown[n] for n in ("total_active_users", "new_users_per_minute", "message"))


@pytest.mark.parametrize(
    ("at", "phase", "event", "coming", "held"),
    [
        ("2027-01-15 09:29:59", "closed", None, "sale", (3, None, "Hello.")),
        ("2027-01-15 09:30", "prequeue", "sale", "spring", (3, None, "Hello.")),
        ("2027-01-15 10:00", "open", "sale", "spring", (3, 60, "The sale is on.")),
        ("2027-01-15T09:00Z", "open", "sale", "spring", (3, 60, "The sale is on.")),
        ("2027-01-15 17:59:59.999", "open", "sale", "spring", (3, 60, "The sale is on.")),
        ("2027-01-15 18:00", "closed", None, "spring", (3, None, "Hello.")),
        ("2030-01-01 00:00", "open", "spring", None, (9, None, "Hello.")),
        ("0001-01-01 00:00", "closed", None, "sale", (3, None, "Hello.")),
    ],
)
async def test_what_holds_at_a_time(site, at, phase, event, coming, held):
    """The preview has phase, event and settings. A time without an offset is in the events' time
    zone."""
    shown = await preview(site, at=at)
    assert (shown["phase"], shown["event"], shown["coming"]) == (phase, event, coming)
    assert holding(shown) == held


async def test_without_a_time_it_is_now_by_the_stores_clock(site):
    """`in_seconds` counts from now, also for another `at`, and is negative for past steps."""
    shown = await preview(site)
    assert (shown["at"], shown["local"]) == (
        "2027-01-15T08:00:00.000+00:00", "2027-01-15T09:00:00.000+01:00",
    )  # fmt: skip
    assert (shown["phase"], shown["mode"], shown["coming"]) == ("closed", "running", "sale")
    site.turn.forward(12 * 3600)
    shown = await preview(site, at="2027-01-15 10:00")
    assert shown["phase"] == "open"
    assert [event["state"] for event in shown["events"]] == ["open", "coming"]
    assert shown["events"][0]["steps"][0]["in_seconds"] == -11.5 * 3600
    assert shown["warnings"] == ["sale: is over"]
    site.turn.forward(90 * 86_400)
    shown = await preview(site)
    assert [event["state"] for event in shown["events"]] == ["over", "open"]


async def test_what_was_changed_at_run_time_is_previewed(site):
    """The room's own settings are shown for times outside of the open event."""
    change = {"events": [SALE, {**SPRING, "timezone": "UTC"}], "message": "Soon."}
    await ask(site, "PATCH", body=change)
    site.turn.forward(2 * 3600)
    shown = await preview(site)
    assert (shown["phase"], shown["event"], holding(shown)[2]) == (
        "open",
        "sale",
        "The sale is on.",
    )
    spring = shown["events"][1]
    assert (spring["timezone"], holding(spring)) == ("UTC", (9, None, "Soon."))
    # Their time zones differ, so a time needs an offset, and is told in UTC.
    assert shown["local"] == shown["at"]
    problem = await preview(site, 422, at="2027-01-15 10:00")
    assert problem["errors"] == [
        "at: give the offset too, because the events' time zones are Europe/Zurich, UTC"
    ]
    await preview(site, at="2027-01-15 10:00Z")


async def test_a_room_without_events_has_a_preview_too(replica):
    """Such a room is open at any time."""
    shown = await preview(await replica(), at="2027-01-15 10:00")
    assert (shown["phase"], shown["events"], shown["warnings"]) == ("open", [], [])
    assert shown["at"] == "2027-01-15T10:00:00.000+00:00"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("", "write a date and a time"), ("soon", "write a date and a time"),
        ("2027-01-15", "write a date and a time"), ("1800000000000", "write a date and a time"),
        ("2027-03-28 02:30", "2027-03-28 02:30 never comes in Europe/Zurich"),
        ("\ud7ff\0", "write a date and a time"), ("9" * 3000, "write a date and a time"),
    ],
)  # fmt: skip
async def test_a_time_that_is_none_is_named(site, at, said):
    """The response is a 422, as for a setting."""
    problem = await preview(site, 422, at=at)
    assert problem["errors"][0].startswith(f"at: {said}")


async def test_it_is_for_operators_alone(site):
    """A request without the token gets a 401, an unknown room a 404."""
    assert (await site.ops.get(f"/admin/rooms/{site.room.name}/events")).status == 401
    assert (await site.ops.get("/admin/rooms/nope/events", headers=TOKEN)).status == 404


STAYS = (
    "sale: the room is open before its pre-queue, and who is inside then stays inside as long as "
    "they click: set session_max_duration, or close the room in between"
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"events": [{**SALE, "prequeue_from": "2027-01-15 09:59:01"}]},
         ["sale: its pre-queue is shorter than a minute"]),
        ({"events": [{**SALE, "total_active_users": 0}]},
         ["sale: total_active_users is 0, so nobody is let in"]),
        ({"total_active_users": 0}, ["sale: total_active_users is 0, so nobody is let in"]),
        ({"events": [{**SALE, "total_active_users": 5}], "total_active_users": 0}, []),
        ({"events": [{"name": "old", "opens_at": 0, "closes_at": 1}, SALE]}, ["old: is over"]),
        ({"events": [{"name": "old", "opens_at": 0, "closes_at": 1}], "queue_all": True},
         ["old: is over", "events: none is to come, so the room stays closed"]),
        ({"events": [{"name": "old", "opens_at": 0, "closes_at": 1}], "between_events": "open"},
         ["old: is over"]),
        ({"events": [{"name": "now", "opens_at": 0}, SALE]}, [STAYS]),
        ({"between_events": "open"}, [STAYS]),
        ({"between_events": "open", "session_max_duration": "31m"}, [STAYS]),
        ({"between_events": "open", "session_max_duration": "30m"}, []),
        ({"between_events": "open", "disable_session_renewal": True}, []),
        ({"between_events": "open", "events": [SPRING]}, []),
        ({"suspended": True}, ["suspended: everybody passes, whatever the events say"]),
        ({"queueing_method": "passthrough"},
         ["queueing_method: passthrough lets everybody in, whatever the events say"]),
        ({"queueing_method": "reject"},
         [("queueing_method: reject lets nobody wait: a pre-queue stays empty, and after the "
          "opening everybody is refused while the room is full")]),
        ({"queueing_method": "reject", "events": [SPRING]}, []),
        ({"queue_all": True, "max_waiting": 0, "rollout_percent": 90},
         ["queue_all: nobody is let in, also while an event is open",
          "max_waiting: it is 0, so nobody gets a place, also in a pre-queue",
          "rollout_percent: 10 % of visitors pass, whatever the events say"]),
        ({"events": [], "suspended": True}, []),
    ],
)  # fmt: skip
def test_what_looks_like_a_mistake_is_warned_of(settings, expected):
    """Warnings name the event or setting, and only matter for events that are not over."""
    some = RoomSettings(**{"total_active_users": 3, "events": [SALE], **settings})
    assert find_warnings(some, 1_800_000_000_000) == expected


# Settings that operators send.

DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize("name", ["classes", "lines", "events"])
async def test_whatever_is_sent_is_taken_or_refused(site, name):
    """A refusal is a 422 with the setting's name, or with a number that is not JSON, and changes
    nothing."""
    path = f"/admin/rooms/{site.room.name}"
    table = '{"name": "a", "opens_at": %s, "head_start": %s, "weight": %s}'
    values = [
        DEEP, json.dumps("[" * 60_000), json.dumps(DEEP), '{"a": ' * 400 + "0" + "}" * 400,
        "true", "1e999", "-0.0", "NaN", "9" * 4000, '"\\ud800"', "[null]", "[[]]", '{"a": null}',
        *(f"[{table % (value, value, value)}]" for value in ("NaN", "1e999", "true", DEEP, "[]")),
        *(f'{{"a": {table % (value, value, value)}}}' for value in ("NaN", "-1", "9" * 4000)),
    ]  # fmt: skip
    for value in values:
        reply = await site.ops.patch(path, data=f'{{"{name}": {value}}}', headers=TOKEN)
        problem = await reply.json()
        assert reply.status == 422, value[:99]
        begins = (f"{name}:", f"{name}.")
        if "NaN" in value or "1e999" in value:
            begins = "the body has the number "
        assert all(error.startswith(begins) for error in problem["errors"])
    assert (await site.room.refresh()).overrides == {}


async def test_what_was_sent_holds_and_can_be_taken_back(site):
    """Events may be sent as text, and are shown with times in ms."""
    change = {
        "events": json.dumps([SALE]),
        "lines": [{"name": "first"}, {"name": "rest"}],
        "classes": {"vip": {"head_start": "5m", "line": "first"}},
    }
    shown = (await ask(site, "PATCH", body=change))["settings"]
    assert shown["events"][0]["opens_at"] == 1_800_003_600_000
    assert shown["classes"] == {"vip": {"head_start": 300, "priority": 0, "line": "first"}}
    again = await ask(site, "PATCH", body={name: shown[name] for name in change})
    assert again["settings"] == shown
    assert (await ask(site, "PATCH", body=dict.fromkeys(change)))["changed"] == {}
