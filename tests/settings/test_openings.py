"""Settings of events, and what a room does when."""

import json
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lupa import lua51

from sidecar.kit.moments import LATEST_MS, read_moment
from sidecar.rooms.messages import Message
from sidecar.rooms.openings import (
    MAX_EVENTS,
    RoomEvent,
    Schedule,
    apply_event_settings,
    find_event_problems,
    find_schedule,
)
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from sidecar.storage.redis.lua_source import LUA_ROOT
from sidecar.visitors.model import Phase
from tests.settings.problems import GOOD, problems, room_problems

ZURICH = "Europe/Zurich"
#: 2026-12-01 10:00 in Zurich.
TEN = 1_796_115_600_000
DAY = datetime.fromisoformat("2026-12-01")
SALE = {"name": "sale", "timezone": ZURICH, "opens_at": "2026-12-01 10:00"}


def room(*events: object, **values: object) -> RoomSettings:
    return RoomSettings(total_active_users=1).with_overrides({"events": list(events), **values})


def event_problem(**values: object) -> str:
    """The only problem of an event."""
    (line,) = room_problems(events=[{**SALE, **values}])
    return line.removeprefix("events.0.")


# Times.


@pytest.mark.parametrize(
    "value",
    [
        "2026-12-01 10:00", "2026-12-01T10:00", "2026-12-01T10:00:00", " 2026-12-01 10:00:00.000 ",
        "2026-12-01T09:00Z", "2026-12-01t09:00:00z", "2026-12-01 10:00+01:00",
        "2026-12-01T04:00:00.000-05:00", "2026-12-01 14:45:00.000000000+05:45",
        DAY.replace(hour=10), DAY.replace(hour=9, tzinfo=UTC),
        DAY.replace(hour=4, tzinfo=timezone(timedelta(hours=-5))), TEN, float(TEN),
    ],
)  # fmt: skip
def test_ways_to_write_a_time(value):
    """Text as ISO 8601 has it, with an offset or in the event's time zone; ms since 1970."""
    (event,) = room({**SALE, "opens_at": value}).events
    assert event.opens_at == TEN


@pytest.mark.parametrize("offset", ["", "Z", "+05:00"])
def test_a_time_of_toml(write, offset):
    """Its own kinds of time are understood, with an offset and without."""
    path = write(
        '[[rooms.shop.events]]\nname = "sale"\ntimezone = "Europe/Zurich"\n'
        f"opens_at = 2026-12-01T10:00:00{offset}\ncloses_at = 2026-12-01 20:00:00.5{offset}\n"
    )
    (event,) = load(path, GOOD).rooms["shop"].events
    hours = {"": 0, "Z": 1, "+05:00": -4}[offset]
    assert event.opens_at == TEN + hours * 3_600_000
    assert event.closes_at == event.opens_at + 36_000_500


@pytest.mark.parametrize(
    "value",
    ["", "soon", "10:00", "2026-12-01", "20261201T1000", "2026-12-01110:00", "2026-W49-2 10:00",
     "2026-13-01 10:00", "2026-12-01 24:00", "2026-12-01 10:00+1", "2026-12-01 10:00 CET",
     "1.12.2026 10:00", "٢٠٢٦-12-01 10:00", "1796115600000", "9" * 5000, True, None, [], {},
     1.5, float("nan"), float("inf"), DAY.date(), DAY.time()],
)  # fmt: skip
def test_what_is_no_time(value):
    """A date alone, a time of day alone, another calendar or order, a number that is no ms."""
    assert event_problem(opens_at=value).startswith("opens_at: write a date and a time, such as")


@pytest.mark.parametrize("kind", ["2026-12-01", "10:00:00"])
def test_a_date_alone_and_a_time_alone_of_toml(write, kind):
    """Are named with the setting's full name."""
    path = write(f'[[rooms.shop.events]]\nname = "sale"\nopens_at = {kind}\n')
    (line,) = problems(path, **GOOD)
    assert line.startswith("rooms.shop.events.0.opens_at: write a date and a time, such as")


@pytest.mark.parametrize("value", [-1, LATEST_MS + 1, 10**400, 1e300, "0001-01-01 00:00",
                                   "9999-12-31 23:59-23:59", "1969-12-31 23:59Z"])  # fmt: skip
def test_a_time_out_of_all_bounds(value):
    """What is before 1970, or far away."""
    assert event_problem(opens_at=value).startswith("opens_at: write a time from 1970 to 2199")


def test_a_time_that_is_over_is_allowed():
    """A file stays right when its event is over."""
    assert room({**SALE, "opens_at": "1970-01-02 00:00"}).events[0].opens_at == 82_800_000
    assert room({**SALE, "opens_at": 0}).events[0].opens_at == 0


# Daylight saving.


def test_a_time_that_never_comes():
    """The clocks are put forward: the problem names time and zone, and what may be meant."""
    assert event_problem(opens_at="2026-03-29 02:30").startswith(
        "opens_at: 2026-03-29 02:30 never comes in Europe/Zurich, where the clocks are put forward "
        "then: write the time that is meant, 2026-03-29 01:30+01:00 or 2026-03-29 03:30+02:00"
    )
    assert event_problem(timezone="Pacific/Apia", opens_at="2011-12-30 12:00:01").startswith(
        "opens_at: 2011-12-30 12:00:01 never comes in Pacific/Apia, where the clocks are put "
        "forward then: write the time that is meant, 2011-12-29 12:00:01-10:00 or "
        "2011-12-31 12:00:01+14:00"
    )


def test_a_time_that_comes_twice():
    """The clocks are put back: its offset says which is meant, the first of the two first."""
    assert event_problem(opens_at=datetime.fromisoformat("2026-10-25 02:30")).startswith(
        "opens_at: 2026-10-25 02:30 comes twice in Europe/Zurich, where the clocks are put back "
        "then: say which with its offset, 2026-10-25 02:30+02:00 or 2026-10-25 02:30+01:00"
    )
    first, second = (
        room({**SALE, "opens_at": f"2026-10-25 02:30{offset}"}).events[0].opens_at
        for offset in ("+02:00", "+01:00")
    )
    assert second - first == 3_600_000


@given(
    st.integers(2 * 86_400, LATEST_MS // 1000 - 2 * 86_400),
    st.sampled_from([ZURICH, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC"]),
)
@example(1_792_888_200, ZURICH)  # 2026-10-25 00:30 and 01:30 UTC
@example(1_792_891_800, ZURICH)
@example(1_775_315_700, "Australia/Lord_Howe")  # where the clocks go by half an hour
def test_every_time_can_be_written(second, zone):
    """As the clocks of a zone show it; where they show it twice, as the problem says."""
    wall, expected = datetime.fromtimestamp(second, ZoneInfo(zone)), second * 1000
    assert read_moment(wall.isoformat(" "), "UTC") == expected
    try:
        found = {read_moment(str(wall.replace(tzinfo=None)), zone)}
    except ValueError as error:
        ways = str(error).partition("offset, ")[2].split(" or ")
        found = {read_moment(way, "UTC") for way in ways}
        assert len(found) == 2
    assert expected in found


# Time zones.


@pytest.mark.parametrize(
    "zone",
    ["", "Zurich", "europe/zurich", "Europe", "Europe/", "/etc/localtime", "../../etc/passwd",
     "right/Europe/Zurich", "posixrules", "localtime", "zone.tab", "Europe/__init__.py", "+01:00",
     "a\0b", "Europe/Z\u00fcrich", "a" * 60_000],
)  # fmt: skip
def test_what_is_no_time_zone(zone):
    """Paths, folders, files that are none, and what only some machines know."""
    line = event_problem(timezone=zone)
    assert line.startswith("timezone: no time zone is called so: write a name such as")


@pytest.mark.parametrize("zone", [1, None, [], {}, True])
def test_a_time_zone_is_text(zone):
    """And nothing else."""
    assert event_problem(timezone=zone).startswith("timezone: ")


def test_a_wrong_zone_is_the_only_problem():
    """Times that it would be needed for are not judged by another."""
    line = event_problem(
        timezone="Mars",
        prequeue_from="2026-12-01T10:00-12:00",
        opens_at="2026-12-01 09:00",
        closes_at="2026-12-01T10:00+05:00",
    )
    assert line.startswith("timezone: ")


def test_a_system_without_time_zones():
    """The names and rules come with the package."""
    zoneinfo.reset_tzpath(to=[])
    ZoneInfo.clear_cache()
    try:
        assert room(SALE).events[0].opens_at == TEN
    finally:
        zoneinfo.reset_tzpath()
        ZoneInfo.clear_cache()


# Rules.


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"prequeue_from": "2026-12-01 10:00"}, "opens_at: must be later than prequeue_from"),
        ({"closes_at": "2026-12-01 10:00"}, "closes_at: must be later than opens_at"),
        ({"name": "The Sale"}, "name: a name has lower-case letters"),
        ({"total_active_users": True}, "total_active_users: write a whole number"),
        ({"new_users_per_minute": 0}, "new_users_per_minute: must be at least 1 (got 0)"),
        ({"message": "m" * 501}, "message: must have at most 500 characters"),
        ({"colour": "red"}, "colour: unknown setting"),
    ],
)
def test_an_events_own_rules(values, problem):
    """Times in their order, and values as the room's have them."""
    assert event_problem(**values).startswith(problem)


def test_every_problem_is_named_at_once():
    """Of all events, by number, and of the room's other settings."""
    found = room_problems(
        events=[{"name": "a"}, 7, {**SALE, "opens_at": "x", "closes_at": 0, "message": 1}],
        rank_limit=0,
    )
    assert sorted(line.partition(": ")[0] for line in found) == [
        "events.0.opens_at", "events.1", "events.2.message", "events.2.opens_at", "rank_limit",
    ]  # fmt: skip


def event(name: str, *times: int | None) -> dict[str, object]:
    """Pre-queue, opening and close, in seconds."""
    steps = zip(("prequeue_from", "opens_at", "closes_at"), times, strict=True)
    return {"name": name} | {key: at and at * 1000 for key, at in steps if at is not None}


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([event("a", 1, 2, 5), event("b", 4, 6, 7)], "events: b begins before a is over"),
        ([event("b", 4, 6, 7), event("a", 1, 2, 5)], "events: b begins before a is over"),
        ([event("a", None, 1, 9), event("b", None, 2, 3), event("c", None, 4, None)],
         "events: b begins before a is over\nevents: c begins before a is over"),
        ([event("a", 1, 5, None), event("b", 2, 6, None)], "events: b begins before a has opened"),
        ([event("a", None, 5, None), event("b", None, 5, 6)], "before a has opened"),
        ([event("a", 1, 2, 3), event("a", 4, 5, 6)], "events: two events are called 'a'"),
        ([event(f"e{n}", None, n, None) for n in range(1, MAX_EVENTS + 2)],
         "events: at most 20 events, these are 21: take out those that are over"),
    ],
)  # fmt: skip
def test_rules_between_events(events, problem):
    """One at a time, each opens, each has a name of its own, and there is an end to them."""
    assert problem in "\n".join(room_problems(events=events))


def test_the_bounds_are_the_rooms():
    """What an event replaces is bound as what it replaces: it is laid over without a look."""
    assert RoomSettings.model_fields["message"].annotation == (Message | None)
    assert RoomEvent.model_fields["message"].annotation == (Message | None)
    for name in ("total_active_users", "new_users_per_minute"):
        own = {type(one): one for one in RoomSettings.model_fields[name].metadata}
        events = {type(one): one for one in RoomEvent.model_fields[name].metadata}
        assert {kind: one for kind, one in own.items() if kind in events} == events
        assert events


def test_what_is_kept_is_the_same():
    """As JSON in the store, without what is null, in whatever zone it was written."""
    some = room({**SALE, "prequeue_from": "2026-10-25 02:30+01:00"}, event("b", None, 9, 10))
    kept = json.loads(json.dumps(some.model_dump(exclude_none=True)))["events"]
    assert room().with_valid_overrides({"events": kept}) == (some, [])
    assert some.with_overrides({"max_waiting": 5}).events == some.events


# What the room does when.


@st.composite
def sales(draw) -> list[RoomEvent]:
    """Events that are right, in any order, within the first seconds of 1970."""
    found: list[RoomEvent] = []
    ends = 1
    for number in range(draw(st.integers(0, 4))):
        begins = ends + draw(st.integers(0, 3))
        opens = begins + draw(st.integers(0, 3))
        closes = opens + draw(st.integers(1, 3)) if draw(st.booleans()) else None
        times = {"prequeue_from": begins if opens > begins else None, "opens_at": opens}
        found.append(RoomEvent(name=f"e{number}", closes_at=closes, **times))
        ends = opens + 1 if closes is None else closes
    return draw(st.permutations(found))


@given(sales(), st.booleans())
def test_there_is_one_phase_at_any_time(events, is_open_between):
    """An event is first in its pre-queue, if it has one, and then open until it closes or the next
    begins; a beginning is part of what begins, an end is not. The list's order is nothing."""
    assert find_event_problems(events) == []
    between = Phase.OPEN if is_open_between or not events else Phase.CLOSED
    for at in range(45):
        coming = min(
            (event for event in events if event.begins_ms > at),
            key=lambda event: event.begins_ms, default=None,
        )  # fmt: skip
        expected = [
            Schedule(Phase.PREQUEUE if at < event.opens_at else Phase.OPEN, event, coming)
            for event in events
            if at in range(event.begins_ms, ends_of(event, events))
        ]
        expected = expected or [Schedule(between, None, coming)]
        assert [find_schedule(events, at, is_open_between=is_open_between)] == expected


def ends_of(event: RoomEvent, events: list[RoomEvent]) -> int:
    later = [other.begins_ms for other in events if other.begins_ms > event.opens_at]
    return event.closes_at or min(later, default=LATEST_MS)


_ANY = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3), st.none() | st.integers(1, 3)), max_size=4
)


@given(_ANY)
def test_events_that_overlap_are_found(times):
    """Some problem is named where two of them do, and none where none do."""
    events = [
        RoomEvent(
            name=f"e{number}", prequeue_from=begins if queue else None, opens_at=begins + queue,
            closes_at=begins + queue + lasts if lasts else None,
        )
        for number, (begins, queue, lasts) in enumerate(times)
    ]  # fmt: skip
    spans = [range(e.begins_ms, e.closes_at or e.opens_at + 1) for e in events]
    taken = [at for span in spans for at in span]
    assert bool(find_event_problems(events)) == (len(taken) > len(set(taken)))


@pytest.fixture(scope="module")
def script():
    """What rooms/lua/parts/openings.lua says of a room at a time."""
    folder = LUA_ROOT / "rooms" / "lua" / "parts"
    lua = lua51.LuaRuntime()
    text = (folder / "openings.lua").read_text()
    says = "phase == OPEN and 'open' or phase == CLOSED and 'closed' or 'prequeue'"
    run = lua.eval(f"function(room, now) {text}\n begin_events() return {says}, cap end")

    def ask(settings: RoomSettings, now_ms: int) -> tuple[str, int]:
        values = settings.get_script_settings()
        return tuple(run(lua.table_from(values, recursive=True), now_ms))

    return ask


@given(sales(), st.booleans(), st.data())
def test_the_scripts_go_by_the_same_rule(script, events, is_open_between, data):
    """The phase, and what an open event replaces."""
    capped = [event.model_copy(update={"total_active_users": n}) for n, event in enumerate(events)]
    between = "open" if is_open_between else "closed"
    some = RoomSettings(total_active_users=99, events=capped, between_events=between)
    now_ms = data.draw(st.integers(0, 40))
    now = some.schedule_at(now_ms)
    assert script(some, now_ms) == (now.phase, apply_event_settings(some, now).total_active_users)


def test_what_holds_during_an_event():
    """Only what the event says, only from its opening to its close."""
    own = {"new_users_per_minute": 7, "message": "hello", "total_active_users": 5}
    some = room({**event("a", 1, 2, 3), "total_active_users": 0, "message": ""}, **own)
    held = [
        apply_event_settings(some, some.schedule_at(at)) for at in (0, 1000, 1999, 2000, 2999, 3000)
    ]
    caps = [(one.total_active_users, one.message) for one in held]
    assert caps == [(5, "hello")] * 3 + [(0, "")] * 2 + [(5, "hello")]
    assert {one.new_users_per_minute for one in held} == {7}
    assert held[0] is some


def test_scripts_hear_of_events_only_where_there_are_some():
    """What a room does not have takes no room in each call."""
    plain = RoomSettings(total_active_users=1).get_script_settings()
    assert not {"events", "classes", "lines"} & set(plain)
    assert len(room(SALE).get_script_settings()["events"]) == 1
