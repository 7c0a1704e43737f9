"""Whom a room is not for: paths, addresses, nginx's word, and a stable share of visitors."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.kit.errors import InputError
from sidecar.kit.setting_types import clean_path
from sidecar.rooms.bearer import NOBODY, Bearer
from sidecar.rooms.exemptions import (
    ROLLOUT_NUMBERS,
    compute_rollout_number,
    is_below_any,
    is_exempt,
    is_in_networks,
    is_outside,
)
from sidecar.rooms.settings import RoomSettings

CHROME = "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0"


def room(**settings):
    return RoomSettings(total_active_users=1, **settings)


# Paths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    ["/static/", "/static/app.js", "/static/a/b.css?v=1", "/static/a%20b.png", "/static/caf%C3%A9",
     "/static/?next=/../checkout", "/feed.xml", "/feed.xml?page=2", "/%73tatic/x", "/static/.well"],
)  # fmt: skip
def test_a_path_that_is_exempt(uri):
    """A path is exempt if it is a prefix or below one, encoded or not, with any query."""
    assert is_below_any(uri, ("/static/", "/feed.xml"))


@pytest.mark.parametrize(
    "uri",
    [
        "", "/", "/checkout", "/static", "/statics/x", "/staticx", "/feed.xmlx", "/STATIC/x",
        "static/x", "http://a.test/static/x", "?/static/", "*",
        "/static/../checkout", "/static/..", "/static/./x", "/./static/x", "/x/../static/y",
        "/static/%2e%2e/checkout", "/static/%2E%2E%2Fcheckout", "/static/.%2e/checkout",
        "/static%2f..%2fcheckout", "/static/..%2fcheckout", "/static/%252e%252e/checkout",
        "//static/x", "/static//x", "/static//../checkout", "//checkout/../static/",
        "/static/..;/checkout", "/static/;/../checkout", "/static/x;y=1", "/static/%3b/x",
        "/static/\\..\\checkout", "/static/..%5ccheckout", "/static/%5c../checkout",
        "/static/%00/../checkout", "/static/x%00", "/static/x%0d%0a", "/static/\tx",
        "/static/%c0%ae%c0%ae/checkout", "/static/%ff", "/static/%zz", "/static/%",
        "/static/caf\xe9", "/static/\udce9", "/static/.../x", "/static/.. /checkout",
        "/static/%20/x", "/static/%EF%BC%8E%EF%BC%8E/checkout", "/static/%E2%80%A5/checkout",
        "/static/..%EF%BC%8Fcheckout", "/static/#/../../checkout", "/static/%23", "/static/%3f",
    ],
)  # fmt: skip
def test_a_path_that_is_not(uri):
    """A path that some server may read in another way is not exempt."""
    assert not is_below_any(uri, ("/static/", "/feed.xml"))


@given(st.text(), st.sampled_from(["/static/", "/static/%2e", "/static/..", ""]))
def test_no_address_is_too_odd(text, before):
    """Any string gives a result, and cleaning a clean path does not change it."""
    path = clean_path(before + text)
    if path is not None:
        assert path.startswith("/")
        assert clean_path(path) in (path, None)
        assert not {"..", "."} & set(path.split("/"))


# Addresses --------------------------------------------------------------------------------------

NETWORKS = (
    "192.0.2.0/24",
    "198.51.100.7",
    "2001:db8::/32",
    "2001:db9::1",
    "::ffff:203.0.113.0/120",
)


@pytest.mark.parametrize(
    "address",
    ["192.0.2.0", "192.0.2.255", "198.51.100.7", "2001:db8::1", "2001:DB8:ffff::", "2001:db9::1",
     "::ffff:192.0.2.9", "::ffff:c000:0209", "203.0.113.5", "::ffff:203.0.113.5",
     "2001:db8::1%eth0"],
)  # fmt: skip
def test_an_address_in_a_network(address):
    """IPv4, IPv6 and IPv4-mapped addresses are found in their networks."""
    assert is_in_networks(address, NETWORKS)


@pytest.mark.parametrize(
    "address",
    ["", "unix:", "192.0.3.0", "192.0.1.255", "198.51.100.8", "2001:db9::2", "::192.0.2.1",
     "203.0.114.1", "192.0.2", "192.0.2.1, 10.0.0.1", "0.0.0.0", "::", "192.0.2.1/24",
     "3221225985", "192.0.2.01", " 192.0.2.1", "\udce9"],
)  # fmt: skip
def test_an_address_in_none(address):
    """Neighbouring addresses and strings that are no address are in no network."""
    assert not is_in_networks(address, NETWORKS)


# All together -----------------------------------------------------------------------------------


def test_what_exempts():
    """The path, the address or nginx's header exempts a request, each only with its setting."""
    settings = room(exempt_paths=["/static"], exempt_addresses=["192.0.2.0/24"])
    assert is_exempt(settings, Bearer(uri="/static"))
    assert is_exempt(settings, Bearer(address="192.0.2.1"))
    assert is_exempt(room(exempt_header=True), Bearer(exempt="staff"))
    assert not is_exempt(room(), Bearer(exempt="staff"))
    assert not is_exempt(settings, Bearer(uri="/shop", address="192.0.3.1"))
    assert not is_exempt(room(), Bearer(uri="/static", address="192.0.2.1"))
    assert not is_exempt(settings, NOBODY)


# The share --------------------------------------------------------------------------------------


@functools.cache
def draws(number=10_000):
    return [
        compute_rollout_number("shop", address=f"198.51.{i // 256}.{i % 256}", user_agent=CHROME)
        for i in range(number)
    ]


@pytest.mark.parametrize("percent", [1, 10, 50, 90, 99.5])
def test_the_share_is_right(percent):
    """Of 10,000 addresses with one browser, the share is within two standard deviations, one point,
    of the percentage."""
    inside = sum(not is_outside(drawn, room(rollout_percent=percent)) for drawn in draws())
    assert abs(inside / 100 - percent) < 1


def test_raising_the_percentage_only_adds():
    """Visitors stay in the roll-out when it grows. At 0 it has nobody, at 100 everybody."""
    before: set[int] = set()
    for percent in (0, 0.01, 0.5, 1, 5, 25, 50, 75, 99.99, 100):
        settings = room(rollout_percent=percent)
        subject = {i for i, drawn in enumerate(draws(2000)) if not is_outside(drawn, settings)}
        assert before <= subject
        before = subject
        assert (percent > 0) or not subject
    assert len(before) == 2000
    assert not is_outside(ROLLOUT_NUMBERS - 1, room(rollout_percent=100))
    assert is_outside(0, room(rollout_percent=0))


def test_a_draw_is_stable_and_a_rooms_own():
    """The number depends on the room, the browser and the address, and is the same for all
    addresses of a household."""
    drawn = compute_rollout_number("shop", address="198.51.100.7", user_agent=CHROME)
    assert drawn == compute_rollout_number("shop", address="::ffff:198.51.100.7", user_agent=CHROME)
    assert drawn != compute_rollout_number("shop", address="198.51.100.7", user_agent="curl/8")
    assert drawn != compute_rollout_number("tickets", address="198.51.100.7", user_agent=CHROME)
    home = compute_rollout_number("shop", address="2001:db8::1", user_agent=CHROME)
    assert home == compute_rollout_number("shop", address="2001:db8::ffff:0:1", user_agent=CHROME)
    assert home != compute_rollout_number("shop", address="2001:db8:0:1::1", user_agent=CHROME)
    assert compute_rollout_number("shop", address="unix:", user_agent="\udce9") >= 0


# Settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("exempt_addresses", "192.0.2.0/24, 2001:db8::1", ("192.0.2.0/24", "2001:db8::1")),
        ("exempt_addresses", ["192.0.2.1", "192.0.2.1"], ("192.0.2.1",)),
        ("exempt_paths", "/static/ /caf\xe9/", ("/static/", "/caf\xe9/")),
        ("exempt_paths", [], ()),
        ("rollout_percent", "0.5", 0.5),
    ],
)
def test_a_list_may_be_text(name, value, kept):
    """Environment variables and the command line give lists as text."""
    assert getattr(room().with_overrides({name: value}), name) == kept


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("exempt_addresses", ["192.0.2.1/24"], "has host bits set"),
        ("exempt_addresses", ["shop.test"], "write 192.0.2.7"),
        ("exempt_addresses", "0.0.0.0/0", "that is what suspended is for"),
        ("exempt_addresses", ["10.0.0.1"] * 1001, "at most 1000"),
        ("exempt_addresses", 5, "write a list"),
        ("exempt_paths", ["static"], "cannot be exempt"),
        ("exempt_paths", "/", "cannot be exempt"),
        ("exempt_paths", ["/a/../b"], "cannot be exempt"),
        ("exempt_paths", ["/a%20b"], "cannot be exempt"),
        ("exempt_paths", ["/a?b"], "cannot be exempt"),
        ("rollout_percent", 101, "must be at most 100 (got 101)"),
        ("rollout_percent", True, "0 to 100"),
        ("rollout_percent", "nan", "must be at most 100 (got 'nan')"),
    ],
)
def test_what_cannot_be_set(name, value, said):
    """The error names the value and what is allowed."""
    with pytest.raises(InputError) as caught:
        room().with_overrides({name: value})
    [problem] = caught.value.problems
    assert problem.startswith(f"{name}: ")
    assert said in problem
