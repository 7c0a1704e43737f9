"""Who brings a cookie: the marks that passes are bound to, and the addresses that are counted."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.rooms.bearer import NOBODY, Bearer, belongs_to_other_client
from sidecar.rooms.settings import RoomSettings

ANN = Bearer("192.0.2.1", "Mozilla/5.0 (Ann)")
KINDS = ("user_agent", "ip")
#: What a token's field and a store's key may hold; addresses.lua ends a digest with `~`.
ALPHABET = set(string.ascii_letters + string.digits + "-_")

texts = st.text(max_size=200) | st.binary(max_size=200).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)


def bound(bind_pass: str) -> RoomSettings:
    return RoomSettings(total_active_users=1, bind_pass=bind_pass)


COUNTED = RoomSettings(total_active_users=1, max_places_per_address=3)


def place(address: str, room: str = "shop") -> str:
    return Bearer(address).compute_address_digest(room, COUNTED)


def test_a_room_that_binds_nothing_marks_nobody():
    """By default a pass has no fingerprint."""
    assert ANN.compute_fingerprint("shop", RoomSettings(total_active_users=1)) == ""


@pytest.mark.parametrize(
    ("other", "same_agent", "same_address"),
    [
        (ANN, True, True),
        (Bearer("192.0.2.2", ANN.user_agent), True, False),
        (Bearer(ANN.address, ANN.user_agent + " "), False, True),
        (Bearer(ANN.user_agent, ANN.address), False, False),
        (NOBODY, False, False),
    ],
)
def test_a_mark_is_of_what_is_asked_and_of_nothing_else(other, same_agent, same_address):
    for bind_pass, same in (("user_agent", same_agent), ("ip", same_address)):
        settings = bound(bind_pass)
        assert (
            other.compute_fingerprint("shop", settings) == ANN.compute_fingerprint("shop", settings)
        ) is same


def test_marks_of_two_kinds_and_of_two_rooms_differ():
    """A User-Agent that looks like an address has another fingerprint than the address, and
    fingerprints differ between rooms."""
    same = Bearer("x", "x")
    marks = {
        same.compute_fingerprint(room, bound(kind))
        for room in ("shop", "tickets")
        for kind in KINDS
    }
    assert len(marks) == 4


@given(texts, texts)
def test_a_mark_fits_a_token_and_tells_nothing(address, user_agent):
    """A fingerprint has a fixed length, and only characters that need no quoting."""
    for kind in KINDS:
        fingerprint = Bearer(address, user_agent).compute_fingerprint("shop", bound(kind))
        assert set(fingerprint) <= ALPHABET
        assert len(fingerprint) == 17


def test_a_room_that_counts_no_addresses_keeps_none():
    assert ANN.compute_address_digest("shop", RoomSettings(total_active_users=1)) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"),
        ("2001:db8:0:1::1", "2001:0DB8:0000:0001:0:0:0:2"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::2%eth1"),
    ],
)
def test_one_place_in_two_spellings(one, other):
    """An IPv6 network of 64 bits counts as one address, and so do all spellings of an address."""
    assert place(one) == place(other)
    marks = {Bearer(address).compute_fingerprint("shop", bound("ip")) for address in (one, other)}
    assert len(marks) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("192.0.2.1", "192.0.2.2"),
        ("2001:db8:0:1::1", "2001:db8:0:2::1"),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("192.0.2.1", "unix:"),
        ("unix:", "192.0.2.1.example"),
    ],
)
def test_two_places(one, other):
    """Two households have different digests."""
    assert place(one) != place(other)
    assert place(one, "shop") != place(one, "tickets")


@given(texts)
def test_any_address_is_a_place(address):
    """Any string from nginx gives a digest, without the character that separates the visitor's
    id."""
    assert set(place(address)) <= ALPHABET
    assert len(place(address)) == 16


@pytest.mark.parametrize("before", ["none", *KINDS])
@pytest.mark.parametrize("after", ["none", *KINDS])
def test_a_pass_is_anothers_only_by_the_mark_that_it_has(before, after):
    """A pass with a fingerprint of another kind is accepted from any client."""
    bob = Bearer("192.0.2.2", "Mozilla/5.0 (Bob)")
    given = ANN.compute_fingerprint("shop", bound(before))
    assert not belongs_to_other_client(given, ANN.compute_fingerprint("shop", bound(after)))
    assert belongs_to_other_client(given, bob.compute_fingerprint("shop", bound(after))) is (
        before == after != "none"
    )
