"""Settings of leases and limits: rules between them, names, and the keys of calls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kit.errors import InputError
from sidecar.limits.settings import MAX_KEY_LENGTH, LimitSettings
from sidecar.settings.load import load
from tests.settings.problems import SECRET, problems

ONLY_SECRET = {"WAITROOM_SECRET_KEYS": SECRET}
FIXED = 'algorithm = "fixed_window"\nwindow = "1s"\n'


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('algorithm = "leaky"', "algorithm: must be 'fixed_window', "),
        ("limit = 5", "algorithm: "),
        ('algorithm = "leaky_bucket"', "window: is needed for leaky_bucket"),
        ('algorithm = "concurrency"\nwindow = 1', "window: is not for concurrency"),
        (FIXED + "burst = 5", "burst: is for token_bucket; fixed_window has none"),
        ('algorithm = "concurrency"\non_exceed = "pace"', "on_exceed: concurrency cannot pace"),
        (FIXED + "limit = -2", "limit: write a whole number from 0 to 1000000, or -1"),
        (FIXED + "limit = 1000001", "limit: write a whole number from 0 to 1000000"),
        (FIXED + "limit = true", "limit: write a whole number"),
        (FIXED + "limit = 1.5", "limit: "),
        (FIXED + 'values = { "a" = -2 }', "values.a: write a whole number from 0 to"),
        (FIXED + 'key = "{Biz}"', 'key: write fields in braces, such as "{biz}:{chan'),
        *(
            (FIXED + f'key = "{{biz}}:{{{word}}}"', f"key: no field can be called {word}")
            for word in ("key", "cost", "id", "wait", "rule")
        ),
        (FIXED + 'key = "{biz"', "key: write fields in braces"),
        (FIXED + 'key = "a b"', "key: write fields in braces"),
        (FIXED + f'key = "{"k" * 129}"', "key: "),
        (FIXED + "colour = 1", "colour: "),
    ],
)
def test_limits_that_are_not_allowed(write, lines, said):
    """One line says which setting it is, and what is allowed."""
    (line,) = problems(write(f"[limits.pay]\n{lines}\n"), **ONLY_SECRET)
    assert line.startswith(f"limits.pay.{said}")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("capacity = 2", "term: "),
        ("term = 0", "term: "),
        ('term = "1m"\ncapacity = 0', "capacity: "),
        ('term = "1m"\nmax_term = "2m"', "max_term: requires renewable = true"),
        ('term = "1m"\nrenewable = true\nmax_term = "59s"',
         "max_term: must not be shorter than the term (60 s)"),
        ('term = "1m"\nclaim_window = "61s"',
         "heartbeat_timeout: must not be shorter than claim_window (61 s)"),
        ('term = "1m"\nqueueing_status_code = 404', "queueing_status_code: "),
        ('term = "1m"\nholder = "a"', "holder: "),
        ('term = "1m"\nresources = "[1-9"', "resources: is not a regular expression: "),
    ],
)  # fmt: skip
def test_leases_that_are_not_allowed(write, lines, said):
    """One line says which setting it is, and what is allowed."""
    (line,) = problems(write(f"[leases.seat]\n{lines}\n"), **ONLY_SECRET)
    assert line.startswith(f"leases.seat.{said}")


def test_names_that_are_not_allowed(write):
    """Of a lease as of a room, of a limit nearly so; a room and a lease share no name."""
    for table in ("limits.A", 'limits."a:b"', "leases.A", 'leases."a~b"', "leases.static"):
        lines = FIXED if table.startswith("limits") else "term = 60"
        assert len(problems(write(f"[{table}]\n{lines}\n"), **ONLY_SECRET)) == 1, table
    both = "[rooms.seat]\ntotal_active_users = 1\n[leases.seat]\nterm = 60\n"
    (line,) = problems(write(both), **ONLY_SECRET)
    assert line.startswith("rooms: seat: a lease has this name too")


def test_no_room_is_needed(write):
    """Where there is a lease or a limit. A site that has nothing is a mistake."""
    assert load(write("[leases.seat]\nterm = 60\n"), ONLY_SECRET).rooms == {}
    assert load(write(f"[limits.static]\n{FIXED}"), ONLY_SECRET).rooms == {}
    (line,) = problems(write(""), **ONLY_SECRET)
    assert line.startswith("rooms: at least one is needed, such as [rooms.shop] with total_active")


def rule(key: str) -> LimitSettings:
    return LimitSettings(algorithm="fixed_window", window=1, key=key)


def test_the_key_of_a_call():
    """Its fields in their places; a rule without fields has one key."""
    assert rule("{biz}:{channel}").make_key({"channel": "wx", "biz": "refund"}) == "refund:wx"
    assert rule("{a}-{b}-{a}").make_key({"a": "1", "b": "2"}) == "1-2-1"
    assert rule("{a}").make_key({"a": "a:b/ä%"}) == "a%3Ab%2F%C3%A4%25"
    assert rule("").make_key({}) == ""
    assert rule("all").make_key({}) == "all"
    assert rule("{b}{a}{b}").fields == ("b", "a")


def test_calls_that_have_no_key():
    """Each field that is missing, empty or unknown is named."""
    with pytest.raises(InputError) as caught:
        rule("{biz}:{channel}").make_key({"biz": "", "shop": "a"})
    assert caught.value.problems == [
        "biz: is needed, a part of the key {biz}:{channel}",
        "channel: is needed, a part of the key {biz}:{channel}",
        "shop: is no part of the key (biz, channel)",
    ]
    with pytest.raises(InputError, match="this limit has no fields"):
        rule("").make_key({"biz": "a"})
    with pytest.raises(InputError, match=f"longer than {MAX_KEY_LENGTH} characters"):
        rule("{a}").make_key({"a": "ä" * 50})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(st.tuples(TEXT, TEXT), st.tuples(TEXT, TEXT))
def test_no_two_calls_share_a_key(one, other):
    """Whatever their fields are; and a key is printable ASCII."""
    keys = [
        rule("{a}:{b}").make_key(dict(zip("ab", values, strict=True))) for values in (one, other)
    ]
    assert (keys[0] == keys[1]) == (one == other)
    assert all("!" <= letter <= "~" for letter in keys[0])
