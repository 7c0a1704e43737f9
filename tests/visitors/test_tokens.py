"""The cookie: what we signed is read as it was, anything else as nothing."""

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.http.cookies import cookie_value
from sidecar.visitors.model import TICKET_LIFETIME_MS, Outside, Pass, Ticket
from sidecar.visitors.tokens import MAX_TOKEN_LENGTH, Tokens, is_visitor_id, new_visitor

NOW_MS = 1_800_000_000_000
OLD, NEW, NEWEST = ("old-" * 10, "new-" * 10, "newest-" * 6)
VISITOR = "abcdefghijklmnopqrstu_"
TICKET = Ticket(VISITOR, order=1_799_999_999_999_999, joined_ms=NOW_MS - 1000, epoch=3)
PASS = Pass(
    VISITOR,
    order=1_799_999_999_999_999,
    joined_ms=NOW_MS - 60_000,
    epoch=3,
    started_ms=NOW_MS - 30_000,
    renewed_ms=NOW_MS - 10_000,
    expires_ms=NOW_MS + 290_000,
)
ALPHABET = string.ascii_letters + string.digits + "-_"

numbers = st.integers(min_value=-(2**53), max_value=2**53)
visitors = st.text(ALPHABET, min_size=22, max_size=22)
tickets = st.builds(Ticket, visitors, numbers, numbers, numbers)
passes = st.builds(Pass, visitors, numbers, numbers, numbers, numbers, numbers, numbers)


class Clock:
    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(clock):
    return Tokens("shop", [OLD], clock)


def signed(ticket: Ticket, at_ms: int = NOW_MS) -> Ticket:
    """The ticket as it is read back: it knows when it was signed, to the second."""
    return Ticket(ticket.visitor, ticket.order, ticket.joined_ms, ticket.epoch, at_ms)


# Round trips and the format.


@given(tickets | passes)
def test_a_token_is_read_as_it_was_written_and_fits_a_cookie(token):
    """Every field comes back, also when a ticket was signed, and the text needs no quoting."""
    tokens = Tokens("shop", [OLD], Clock())
    text = tokens.write(token)
    assert tokens.read(text) == (signed(token) if isinstance(token, Ticket) else token)
    assert set(text) <= set(ALPHABET + "~.")
    assert len(text) <= MAX_TOKEN_LENGTH


def test_the_format_stays(tokens):
    """Cookies that an earlier version signed still verify: the format is a contract."""
    assert tokens.write(TICKET) == (
        "t~abcdefghijklmnopqrstu_~1799999999999999~1799999999000~3"
        ".a0nSAA.fdWkF2L2rTIYwCIrV5spMNVL5qlg2TEi3Z9LmfcD-V4"
    )
    assert tokens.write(PASS) == (
        "p~abcdefghijklmnopqrstu_~1799999999999999~1799999940000~3"
        "~1799999970000~1799999990000~1800000290000"
        ".a0nSAA.y446FS21IlCHlzKjLwxHNvEMzYL7298W-BjdtAS3juk"
    )


def test_the_time_of_signing_is_cut_to_the_second(tokens, clock):
    """A ticket signed within a second says that second's beginning, never a later time."""
    clock.ms += 999
    assert tokens.read(tokens.write(TICKET)).signed_ms == NOW_MS


# What we did not sign.


@pytest.mark.parametrize(
    ("room", "key"),
    [("shop2", OLD), ("sho", OLD), ("tickets", OLD), ("shop/p", OLD), ("shop", NEW)],
)
def test_a_token_of_another_room_or_secret_is_void(tokens, clock, room, key):
    """A key signs for every room, and yet no room accepts another's token."""
    other = Tokens(room, [key], clock)
    assert tokens.read(other.write(PASS)) is None
    assert tokens.read(other.write(TICKET)) is None


@pytest.mark.parametrize(
    "text",
    [
        None, "", " ", "t", "p", "t~", "~", ".", "..", "t.", "t..", "t~a~1~2~3", "t~a~1~2~3.x.y",
        "x" + "~a~1~2~3.x.y", "\0", "t\0", "é", "t~é.x.y", "p~" + "ー" * 20, "t~\ud800",
        "t~a~1~2~3." + "A" * 12 + ".x", "p" * MAX_TOKEN_LENGTH, "t" * 1_000_000,
    ],
)  # fmt: skip
def test_nonsense_is_nothing(tokens, text):
    """Absent, empty, odd, non-ASCII and huge cookies and claims are nothing, and no error
    (tests/kit/test_signing.py: nor is any other text)."""
    assert tokens.read(text) is None
    assert tokens.read_claim(text) is None
    assert tokens.read_claim(f"c~{text}") is None


def test_an_oversized_token_is_not_looked_at(tokens, clock):
    """Even what we signed is nothing when it is longer than anything that we sign."""
    long = Ticket("v" * MAX_TOKEN_LENGTH, order=1, joined_ms=1, epoch=0)
    assert tokens.read(tokens.write(long)) is None


# Time and keys.


@pytest.mark.parametrize("kind", ["ticket", "claim"])
def test_a_ticket_and_its_claim_end_a_day_after_their_signing(tokens, clock, kind):
    """They are valid to the last millisecond of the day."""
    read = tokens.read_claim if kind == "claim" else tokens.read
    text = tokens.write_claim(TICKET) if kind == "claim" else tokens.write(TICKET)
    clock.ms = NOW_MS + TICKET_LIFETIME_MS
    assert read(text) == signed(TICKET)
    clock.ms += 1
    assert read(text) is None


def test_a_pass_is_read_however_old(tokens, clock):
    """A pass that ran out is still read: the room knows then who comes back."""
    text = tokens.write(PASS)
    clock.ms += 365 * TICKET_LIFETIME_MS
    assert tokens.read(text) == PASS


def test_a_clock_that_went_back_voids_nothing(tokens, clock):
    """A token signed in what is now the future, by a store since replaced, is still good."""
    text = tokens.write(TICKET)
    clock.ms -= 3600 * 1000
    assert tokens.read(text) == signed(TICKET)


def test_keys_rotate_without_loss(clock):
    """While a key is in the list its tokens verify; the last in the list signs."""
    before = Tokens("shop", [OLD], clock)
    during = Tokens("shop", [OLD, NEW, NEWEST], clock)
    after = Tokens("shop", [NEWEST], clock)
    for token in (signed(TICKET), PASS):
        # I expect the old cookie to hold until its key is removed.
        assert during.read(before.write(token)) == token
        assert after.read(before.write(token)) is None
        # And the new cookie to be the newest key's, which the old replicas do not know.
        assert after.read(during.write(token)) == token
        assert before.read(during.write(token)) is None
        # A key in the middle is neither first nor last, and verifies too.
        assert during.read(Tokens("shop", [NEW], clock).write(token)) == token


# Visitors' ids and cookie headers.


def test_ids_are_new_and_look_like_ids():
    """Ids are unique, have 22 characters, and look like no option or formula."""
    ids = {new_visitor() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(is_visitor_id(id_) and set(id_) <= set(ALPHABET) and id_[0] != "-" for id_ in ids)


@pytest.mark.parametrize(
    "text", ["", "a" * 21, "a" * 23, "a" * 21 + "~", "é" * 22, "a" * 22 + "\n"]
)
def test_what_no_id_can_be(text):
    """Too short, too long, other characters, a line's end: no id."""
    assert not is_visitor_id(text)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (None, None), ("", None), ("waitroom_shop=x", "x"), ("a=1; waitroom_shop=x; b=2", "x"),
        ("a=1;waitroom_shop=x;b=2", "x"), ("a=1; waitroom_shop = x ", "x"),
        ('waitroom_shop="x"', "x"), ("waitroom_shop=", ""), ("waitroom_shop=a=b", "a=b"),
        ("waitroom_shop=first; waitroom_shop=second", "first"), ("waitroom_shop", None),
        ("waitroom_shop2=x", None), ("xwaitroom_shop=x", None), ("WAITROOM_SHOP=x", None),
        ("a=waitroom_shop; b=1", None), ("a=waitroom_shop=x", None),
        ("broken; =; ;; a; waitroom_shop=x", "x"), ("a=\xff\xfe; waitroom_shop=x", "x"),
    ],
)  # fmt: skip
def test_one_cookie_out_of_a_header(header, value):
    """The cookie of that very name is found, whatever stands beside it."""
    assert cookie_value(header, "waitroom_shop") == value


# Claims: tickets in links.


@given(tickets)
def test_a_claim_is_the_ticket(ticket):
    """Every field of it comes back, the class too; and an address may hold it as it is."""
    tokens = Tokens("shop", [OLD], Clock())
    classed = replace(ticket, class_name="vip")
    text = tokens.write_claim(classed)
    assert tokens.read_claim(text) == replace(classed, signed_ms=NOW_MS)
    assert tokens.read_claim(tokens.write_claim(ticket)) == signed(ticket)
    assert set(text) <= set(ALPHABET + "~.")


def test_a_claim_is_no_cookie_and_a_cookie_no_claim(tokens):
    """Claims and cookies are signed with different keys, as are those of two rooms."""
    claim = tokens.write_claim(TICKET)
    assert claim.startswith("c~")
    signers = [*tokens._signers.values(), *tokens._link_signers.values()]
    assert len({signer.keys[0] for signer in signers}) == len(signers)
    assert tokens.read(claim) is None
    for token in (TICKET, PASS, Outside(5)):
        text = tokens.write(token)
        assert tokens.read_claim(text) is None
        assert tokens.read_claim("c" + text[1:]) is None
    assert tokens.read("t" + claim[1:]) is None
    assert Tokens("cinema", [OLD], Clock()).read_claim(claim) is None
