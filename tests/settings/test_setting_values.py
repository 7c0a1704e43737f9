"""What a setting may be: durations, counts, addresses, names, and rules between them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import parse_duration
from sidecar.rooms.settings import RoomSettings
from sidecar.settings.load import load
from sidecar.settings.model import Settings
from tests.settings.problems import GOOD, SECRET, problems, room_problems

# Values.


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5), (0.25, 0.25), ("5", 5), ("90s", 90), ("5m", 300), ("1.5h", 5400), ("2d", 172_800),
        ("500ms", 0.5), (" 5 m ", 300), ("5M", 300), ("0", 0),
    ],
)  # fmt: skip
def test_durations(value, seconds):
    """A duration is a number of seconds, or text with a unit."""
    assert parse_duration(value) == seconds


NO_DURATIONS = [
    "", "soon", "5 minutes", "m", "-5s", "-5", "+5", "1e3", "5m30s", "5,5", "nan", "inf", "0x10",
    True, False, math.nan, math.inf, -math.inf, -1, 0, None, [], {}, "9" * 400,
]  # fmt: skip
NO_COUNTS = [True, False, -1, 1.5, math.nan, math.inf, "", "x", None, [1]]
NO_SWITCHES = ["perhaps", 2, None, [], 0.5]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("session_duration", value) for value in NO_DURATIONS),
        *(("total_active_users", value) for value in NO_COUNTS),
        *(("suspended", value) for value in NO_SWITCHES),
    ],
)
def test_a_value_of_another_kind_is_refused(name, value):
    """Also NaN and infinity, and a switch in place of a number."""
    (line,) = room_problems(**{name: value})
    assert line.startswith(f"{name}: ")


@pytest.mark.parametrize("value", [0, "0", 10_000_000])
def test_the_ends_of_a_count_are_allowed(value):
    """A room for nobody and one for ten million are rooms."""
    room = RoomSettings(total_active_users=1).with_overrides({"total_active_users": value})
    assert room.total_active_users == int(value)


@pytest.mark.parametrize(
    "value",
    ["127.0.0.1:8400", "0.0.0.0:0", "localhost:65535", "[::1]:8400", "unix:/run/w.sock", "a:1"],
)
def test_addresses(value):
    """Host and port, with an IPv6 address in brackets, or a unix socket."""
    assert load(None, {**GOOD, "WAITROOM_EDGE_LISTEN": value}).edge_listen == value


@pytest.mark.parametrize(
    "value",
    ["", "8400", ":8400", "127.0.0.1", "127.0.0.1:", "a:b", "a:-1", "a:65536", "unix:", "a:²",
     "http://a:80/"],
)  # fmt: skip
def test_what_is_no_address(value):
    """No host, no port, or none that can be."""
    (line,) = problems(**GOOD, WAITROOM_OPS_LISTEN=value)
    assert line.startswith("ops_listen: write host:port")


@pytest.mark.parametrize(
    "value",
    ["redis://localhost", "redis://:p%2Fw@host:6379/1", "rediss://user:pw@host:6380",
     "unix:///run/redis.sock?db=1", "memory://"],
)  # fmt: skip
def test_stores(value):
    """Redis by TCP, TLS or socket, with a password or without, and the process itself."""
    assert load(None, {**GOOD, "WAITROOM_STORE": value}).store == value


@pytest.mark.parametrize(
    "value",
    ["", "localhost:6379", "http://x", "redis:host", "redis://h:port", "redis://h:70000",
     "redis://:a/b@h:6379", "redis://[::1"],
)  # fmt: skip
def test_what_is_no_store(value):
    """Another scheme, or an address that no client can follow, is found before the start."""
    (line,) = problems(**GOOD, WAITROOM_STORE=value)
    assert line.startswith("store: ")


@pytest.mark.parametrize("name", ["shop", "a", "0", "my-shop_2", "a" * 48])
def test_room_names(write, name):
    """Lower-case letters, digits, - and _, up to 48."""
    path = write(f'[rooms."{name}"]\ntotal_active_users = 1')
    assert list(load(path, {"WAITROOM_SECRET_KEYS": SECRET}).rooms) == [name]


@pytest.mark.parametrize(
    "name", ["", "Shop", "-shop", "_shop", "my shop", "a.b", "a/b", "ä", "a" * 49, "a\\n", "{x}"]
)
def test_what_is_no_room_name(write, name):
    """What could not stand in a cookie's name, an address or a key's hash tag is refused."""
    path = write(f'[rooms."{name}"]\ntotal_active_users = 1')
    (line,) = problems(path, WAITROOM_SECRET_KEYS=SECRET)
    assert "lower-case letters, digits, - and _, 48 at most" in line


# Rules between fields.


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"heartbeat_interval": 60}, None),
        ({"heartbeat_interval": 61}, "heartbeat_interval: must be at most half of"),
        ({"heartbeat_interval": 61, "heartbeat_timeout": 122}, None),
        ({"heartbeat_timeout": 30}, None),
        ({"heartbeat_timeout": 29}, "claim_window: must not be longer than heartbeat_timeout"),
        ({"heartbeat_timeout": 29, "claim_window": 29}, None),
        ({"claim_window": 121}, "claim_window: must not be longer than heartbeat_timeout (120 s)"),
    ],
)
def test_durations_agree(values, problem):
    """Polls come twice in a timeout at least, and a claim does not outlast it."""
    if problem is None:
        RoomSettings(total_active_users=1, **values)
    else:
        (line,) = room_problems(**values)
        assert line.startswith(problem)


def test_a_rule_about_a_field_that_is_wrong_is_not_judged():
    """With a timeout that is none, nothing is said of what depends on it."""
    (line,) = room_problems(heartbeat_timeout="x", claim_window=3000)
    assert line.startswith("heartbeat_timeout: ")


# Changes at run time.


def test_a_change_leaves_the_rest():
    """`with_overrides` returns new settings, and the old ones stay as they are."""
    before = RoomSettings(total_active_users=1, message="hello")
    after = before.with_overrides({"total_active_users": 2, "session_duration": "10m"})
    assert (after.total_active_users, after.session_duration, after.message) == (2, 600, "hello")
    assert before.total_active_users == 1


def test_a_change_is_checked_like_the_file():
    """An unknown name, a wrong value and a broken rule between fields are all named."""
    names = [
        line.partition(":")[0]
        for line in room_problems(colour=1, poll_limit=0, heartbeat_timeout=10)
    ]
    assert sorted(names) == ["claim_window", "colour", "poll_limit"]


@given(st.dictionaries(st.sampled_from([*RoomSettings.model_fields, "x"]), st.none()
       | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
       | st.lists(st.integers(), max_size=2)))  # fmt: skip
def test_no_change_breaks_it(changes):
    """Whatever is asked for, the answer is settings that hold or problems in words."""
    try:
        after = RoomSettings(total_active_users=1).with_overrides(changes)
    except InputError as error:
        named = [line.partition(":")[0].partition(".")[0] for line in error.problems]
    else:
        # Settings that were accepted are accepted again.
        assert RoomSettings.model_validate(after.model_dump()) == after
        return
    assert named
    assert set(named) <= {*RoomSettings.model_fields, "x"}


def test_settings_do_not_change():
    """Settings are frozen: a change makes new ones."""
    settings = load(None, GOOD)
    with pytest.raises(ValueError, match="frozen"):
        settings.demo = True
    with pytest.raises(ValueError, match="frozen"):
        settings.rooms["shop"].suspended = True
    assert isinstance(settings, Settings)
