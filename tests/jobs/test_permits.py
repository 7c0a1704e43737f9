"""Permits: what is signed, and what is believed."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.jobs.permits import MAX_LENGTH, Permit, PermitError, Permits, parse_target
from sidecar.kit.errors import InputError

OLD, KEY = "o" * 32, "key of thirty-two letters or more"
NOW_MS = 1_800_000_000_000
ENDS_MS = NOW_MS + 30_000
JOB = "abcdefghijklmnopqrstu_"


class Clock:
    """Redis' clock, as the test has it."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms


def permits(target: str = "images", *keys: str, now_ms: int = NOW_MS) -> Permits:
    return Permits(target, list(keys) or [OLD, KEY], Clock(now_ms))


TEXT = permits().write(JOB, 17, ENDS_MS)


def doubt(text: str, of: Permits | None = None) -> str:
    """Why it is not believed; "" where it is."""
    of = of or permits()
    try:
        of.raise_if_expired(of.verify(text))
    except PermitError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(
    "permit",
    [
        Permit("images", JOB, 17, ENDS_MS),
        Permit("i", "-_Zz0", 0, ENDS_MS),
        Permit("0-_" * 16, "J" * 64, 10**19 - 1, 10**16 - 1),
    ],
)
def test_what_was_signed_is_read(permit):
    """The longest and the shortest too; in an address and in a header it stays as it is."""
    of = permits(permit.target)
    text = of.write(permit.job, permit.fence, permit.expires_ms)
    assert of.verify(text) == permit
    assert parse_target(text) == permit.target
    assert re.fullmatch(r"[A-Za-z0-9_.~-]+", text)
    assert len(text) <= MAX_LENGTH


def test_it_is_an_hmac_over_all_of_it():
    """Written out here by itself: a change of it would end the permits that are out."""
    said, _, signature = TEXT.rpartition(".")
    assert said == f"images~{JOB}~17~{ENDS_MS}"
    key = hmac.digest(KEY.encode(), b"waitroom/permit/images", hashlib.sha256)
    digest = hmac.digest(key, said.encode(), hashlib.sha256)
    assert urlsafe_b64encode(digest).rstrip(b"=").decode() == signature


@pytest.mark.parametrize(
    ("job", "fence", "expires_ms"),
    [("", 1, ENDS_MS), ("a~b", 1, ENDS_MS), ("a.b", 1, ENDS_MS), ("a\n", 1, ENDS_MS),
     ("ä", 1, ENDS_MS), ("a" * 65, 1, ENDS_MS), (JOB, -1, ENDS_MS), (JOB, 10**19, ENDS_MS),
     (JOB, 1, 0), (JOB, 1, -1), (JOB, 1, 10**16)],
)  # fmt: skip
def test_nothing_else_is_signed(job, fence, expires_ms):
    """It would run into the other fields, or could not be read again."""
    with pytest.raises(InputError, match="can be no permit"):
        permits().write(job, fence, expires_ms)


def test_every_key_verifies_and_the_last_signs():
    """So a key is changed without a permit becoming worthless."""
    before, after = permits("images", OLD), permits("images", KEY)
    assert doubt(before.write(JOB, 17, ENDS_MS)) == ""
    assert doubt(TEXT, after) == ""
    assert doubt(TEXT, before) == "forged"


def test_a_permit_is_of_one_target():
    """With the same keys, and also where its name is changed."""
    assert doubt(TEXT, permits("videos")) == "forged"
    assert doubt(TEXT.replace("images", "videos"), permits("videos")) == "forged"
    assert doubt(TEXT.replace("images", "videos")) == "forged"


def test_it_ends_to_the_millisecond():
    """When it says; that it was ours is known for longer."""
    assert doubt(TEXT, permits(now_ms=ENDS_MS - 1)) == ""
    late = permits(now_ms=ENDS_MS)
    assert doubt(TEXT, late) == "expired"
    assert late.verify(TEXT) == Permit("images", JOB, 17, ENDS_MS)


@pytest.mark.parametrize(
    ("old", "new"),
    [("images", "image"), (JOB, JOB.upper()), ("~17~", "~18~"), ("~17~", "~1~"),
     (str(ENDS_MS), str(ENDS_MS + 1)), (str(ENDS_MS), "1")],
)  # fmt: skip
def test_what_is_changed_is_forged(old, new):
    """Whichever field; and nobody learns by it whether it would have ended."""
    assert old in TEXT
    assert doubt(TEXT.replace(old, new, 1)) == "forged"


SIGNATURE = "a" * 43


@pytest.mark.parametrize(
    "text",
    ["", ".", "~~~", "images", "x" * (MAX_LENGTH + 1), "é" * 80, "\ud800", "\0" * 50,
     TEXT + "\n", TEXT + " ", " " + TEXT, TEXT + "=", TEXT[:-1], TEXT.replace(".", "~"),
     f"images~{JOB}~17.{SIGNATURE}", f"images~{JOB}~17~{ENDS_MS}~1.{SIGNATURE}",
     f"images~{JOB}~017~{ENDS_MS}.{SIGNATURE}", f"images~{JOB}~-1~{ENDS_MS}.{SIGNATURE}",
     f"images~{JOB}~١٧~{ENDS_MS}.{SIGNATURE}", f"images~{JOB}~17~0{ENDS_MS}.{SIGNATURE}",
     f"Images~{JOB}~17~{ENDS_MS}.{SIGNATURE}", f"images~{'J' * 65}~17~{ENDS_MS}.{SIGNATURE}",
     f"images~{JOB}~17~{ENDS_MS}.{SIGNATURE}.{SIGNATURE}"],
)  # fmt: skip
def test_what_no_permit_is(text):
    """It is malformed, of no target, and no error of another kind."""
    assert (doubt(text), parse_target(text)) == ("malformed", "")


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_reading_never_fails_otherwise(text):
    """Whatever is sent is a permit or a PermitError."""
    assert doubt(text) == "malformed"
    assert parse_target(text) == ""
