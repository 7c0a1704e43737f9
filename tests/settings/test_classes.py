"""Settings of classes and lines: read from a file, from variables and at run time, and kept."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kit.errors import InputError
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from sidecar.visitors.classes import MAX_CLASSES, MAX_LINES
from tests.settings.problems import GOOD, problems, room_problems

LINES = [{"name": "first", "weight": 1}, {"name": "rest", "weight": 9}]


def room(**values: object) -> RoomSettings:
    return RoomSettings(total_active_users=1).with_overrides(values)


# Where they come from.


def test_tables_are_classes_and_lines(write):
    """A table for each class, a list of tables for the lines; what is left out gives nothing."""
    path = write(
        """
        [rooms.shop.classes]
        vip = { head_start = "5m", line = "first" }
        guest = {}
        [[rooms.shop.lines]]
        name = "first"
        [[rooms.shop.lines]]
        name = "rest"
        """
    )
    shop = load(path, GOOD).rooms["shop"]
    vip, guest = shop.classes["vip"], shop.classes["guest"]
    assert (vip.head_start, vip.priority, vip.line) == (300, 0, "first")
    assert (guest.head_start, guest.priority, guest.line) == (0, 0, None)
    assert [(line.name, line.weight) for line in shop.lines] == [("first", None), ("rest", None)]


def test_a_variable_has_json():
    """A variable is the whole setting, one class of it, or one value of one class."""
    name = "WAITROOM_ROOMS__SHOP__CLASSES"
    expected = room(classes={"vip": {"head_start": "5m"}}).classes
    for variables in (
        {name: '{"vip": {"head_start": "5m"}}'},
        {f"{name}__VIP": '{"head_start": 300}'},
        {f"{name}__VIP__HEAD_START": "5m"},
    ):
        assert load(None, {**GOOD, **variables}).rooms["shop"].classes == expected
    shop = load(None, {**GOOD, "WAITROOM_ROOMS__SHOP__LINES": json.dumps(LINES)}).rooms["shop"]
    assert [line.model_dump() for line in shop.lines] == LINES


def test_nothing_is_needed():
    """A room without them has no classes and no lines, and a list may be emptied again."""
    assert (room().classes, room().lines) == ({}, ())
    some = room(classes={"vip": {"line": "first"}}, lines=LINES)
    assert some.with_overrides({"classes": {}, "lines": []}) == room()


@pytest.mark.parametrize(
    ("value", "seconds"), [("1ms", 0.001), (1.23456, 1.235), ("0.4ms", 0), ("1d", 86_400)]
)
def test_a_head_start_is_whole_milliseconds(value, seconds):
    """The scripts count in them."""
    assert room(classes={"vip": {"head_start": value}}).classes["vip"].head_start == seconds


# What is wrong is named.


def test_every_problem_is_named_at_once(write):
    """By the setting's full name, whatever else is wrong."""
    path = write(
        """
        [rooms.shop.classes]
        VIP = {}
        vip = { head_start = "soon", priority = 4, colour = "gold" }
        partner = { head_start = "25h", line = "The Line" }
        guest = 7
        [[rooms.shop.lines]]
        name = "a"
        weight = 0
        [[rooms.shop.lines]]
        weight = true
        """
    )
    found = problems(path, **GOOD)
    assert sorted(line.partition(": ")[0].removeprefix("rooms.shop.") for line in found) == [
        "classes.VIP", "classes.guest", "classes.partner.head_start", "classes.partner.line",
        "classes.vip.colour", "classes.vip.head_start", "classes.vip.priority",
        "lines.0.weight", "lines.1.name", "lines.1.weight",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"lines": LINES[:1]}, f"lines: 2 to {MAX_LINES} lines, or none: these are 1"),
        ({"lines": [{"name": c} for c in "abcde"]}, f"lines: 2 to {MAX_LINES} lines, or none"),
        ({"lines": [LINES[0], LINES[0]]}, "lines: two lines are called 'first'"),
        ({"lines": [LINES[0], {"name": "rest"}]}, "lines: give each line a weight, or none"),
        ({"classes": {c: {} for c in "abcdefgh"}}, f"classes: at most {MAX_CLASSES} classes: thes"),
        ({"classes": {"vip": {"line": "x"}}, "lines": LINES},
         "classes: vip.line: no line of this room is called 'x'"),
        ({"classes": {"vip": {"line": "first"}}}, "classes: vip.line: no line of this room"),
        ({"classes": {"vip": {"priority": 1}}, "lines": LINES},
         "classes: vip.priority: where a room has lines, those say who goes first"),
    ],
)  # fmt: skip
def test_rules_between_them(values, problem):
    """How many, their names, and which lines there are."""
    (line,) = room_problems(**values)
    assert line.startswith(problem)


def test_several_rules_are_judged_at_once():
    """One broken rule hides no other."""
    lines = [{"name": "a", "weight": 1}] * 4 + [{"name": "b"}]
    assert len(room_problems(lines=lines)) == 3
    classes = {"x": {"line": "y", "priority": 1}, **{c: {} for c in "abcdefg"}}
    assert len(room_problems(classes=classes, lines=LINES)) == 3


def test_classes_are_not_judged_by_lines_that_are_wrong():
    """Only the lines are named then."""
    (line,) = room_problems(lines=[{"name": "a", "weight": "x"}], classes={"vip": {"line": "a"}})
    assert line.startswith("lines.0.weight: ")


@pytest.mark.parametrize("name", ["classes", "lines", "events"])
@pytest.mark.parametrize(
    "value",
    [None, True, 0, 1.5, math.nan, math.inf, 10**400, "", "x", "[", "7", "null", "NaN",
     "[" * 60_000, [None], [[]], ["x"], {"a": None}, {"a": []}, {"": {}}, {"a": {"b": {"c": {}}}}],
)  # fmt: skip
def test_what_is_neither_table_nor_list_is_named(name, value):
    """Whatever shape it has, in words that say how to write it."""
    for line in room_problems(**{name: value}):
        assert line.startswith((f"{name}: ", f"{name}."))


def test_the_words_say_how_to_write_it():
    """With an example of the very setting."""
    (line,) = room_problems(classes=[])
    assert 'write a table, in JSON such as {"vip": {"head_start": "5m"}}' in line
    (line,) = room_problems(lines="ordinary, vip")
    assert 'write JSON, such as [{"name": "ordinary"}]' in line
    (line,) = room_problems(lines=[7])
    assert line.startswith('lines.0: write a table, in JSON such as {"name": "ordinary"}')


# And nothing else happens, whatever an operator sends.

_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_TABLES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["a", "b", "A", ""]) | JSON,
        "head_start": st.floats(0, 1e5) | st.sampled_from(["5m", "x"]) | JSON,
        "priority": st.integers(-1, 4) | JSON,
        "line": st.sampled_from(["a", "b"]) | JSON,
        "weight": st.integers(0, 1001) | JSON,
        "timezone": st.sampled_from(["UTC", "Europe/Zurich", "../UTC"]) | JSON,
        "prequeue_from": st.integers() | JSON,
        "opens_at": st.sampled_from(["2026-12-01 10:00", "2026-03-29 02:30"]) | JSON,
        "closes_at": st.datetimes().map(str) | JSON,
    },
)
_VALUES = {
    "classes": JSON | st.dictionaries(st.sampled_from(["a", "b", "C"]), _TABLES, max_size=3),
    "lines": JSON | st.lists(_TABLES, max_size=3),
    "events": JSON | st.lists(_TABLES, max_size=3),
}


@given(st.fixed_dictionaries({}, optional=_VALUES), st.booleans())
def test_any_value_is_taken_or_named(values, as_text):
    """What is taken is the same when it was kept as JSON; what is not is named, and nothing is
    ever raised but that."""
    given = {name: json.dumps(value) if as_text else value for name, value in values.items()}
    try:
        after = room(**given)
    except InputError as error:
        named = {line.partition(":")[0].partition(".")[0] for line in error.problems}
    else:
        kept = json.loads(json.dumps(after.model_dump()))
        assert RoomSettings.model_validate(kept) == after
        return
    assert named
    assert named <= set(values)


@given(
    st.dictionaries(
        st.builds(str.__add__, st.sampled_from("az09"), st.text("abyz0189_-", max_size=31)),
        st.fixed_dictionaries({
            "head_start": st.floats(0, 86_400) | st.integers(0, 86_400_000).map("{}ms".format),
            "line": st.sampled_from([None, "first", "rest"]),
        }),
        max_size=MAX_CLASSES,
    )
)  # fmt: skip
def test_what_is_kept_is_the_same(classes):
    """Settings that were changed at run time lie in the store as JSON, without what is null, over
    those of the file."""
    some = room(classes=classes, lines=LINES)
    told = json.dumps(some.model_dump(exclude_none=True))
    kept = {name: json.loads(told)[name] for name in ("classes", "lines")}
    assert room().with_valid_overrides(kept) == (some, [])
