"""Each token that we sign is valid in exactly one spelling. base64 has others that decode to the
same: a last character with other spare bits, and characters that a lenient decoder skips. A cache
would have an entry for each of them."""

import string

import pytest

from sidecar.http.auth.operators import Operator, Operators
from sidecar.jobs.permits import PermitError, Permits
from sidecar.visitors.grants import Grant, GrantError, Grants
from sidecar.visitors.model import Outside, Pass, Ticket
from sidecar.visitors.tokens import Tokens

NOW_MS = 1_800_000_000_000
KEYS = ["old-" * 10, "new-" * 10]
VISITOR = "abcdefghijklmnopqrstu_"
PASS = Pass(VISITOR, 1, 1, 0, started_ms=1, renewed_ms=1, expires_ms=NOW_MS + 60_000)
ALPHABET = string.ascii_letters + string.digits + "-_"


class Clock:
    def now_ms(self) -> int:
        return NOW_MS


TOKENS = Tokens("shop", KEYS, Clock())
TICKET = Ticket(VISITOR, 1, NOW_MS, 0)
PERMITS = Permits("images", KEYS, Clock())
OPERATORS = Operators(KEYS, "admin-token", now_s=lambda: NOW_MS / 1000)
OPERATOR = Operator("Ann", "session", NOW_MS)


def is_permit(text: str) -> bool:
    try:
        PERMITS.verify(text)
    except PermitError:
        return False
    return True


def is_grant(text: str) -> bool:
    try:
        Grants("shop", KEYS).read(text, NOW_MS)
    except GrantError:
        return False
    return True


#: Maps a kind of token to the function that verifies it, and to a valid token.
KINDS = {
    "ticket": (TOKENS.read, TOKENS.write(TICKET)),
    "ticket with a class": (TOKENS.read, TOKENS.write(Ticket(VISITOR, 1, 1, 0, 0, "vip"))),
    "pass": (TOKENS.read, TOKENS.write(PASS)),
    "pass with a mark": (TOKENS.read, TOKENS.write(Pass(*[VISITOR, 1, 1, 0, 1, 1, NOW_MS], "ux"))),
    "outside": (TOKENS.read, TOKENS.write(Outside(1))),
    "claim": (TOKENS.read_claim, TOKENS.write_claim(TICKET)),
    "permit": (is_permit, PERMITS.write("job", 1, NOW_MS + 1)),
    "grant": (is_grant, Grants("shop", KEYS[:1]).sign(Grant("vip", NOW_MS // 1000 + 60, "id"))),
    "session": (OPERATORS.read, OPERATORS.log_in("Ann")),
    "CSRF token": (
        lambda text: OPERATORS.is_csrf_token(OPERATOR, text),
        OPERATORS.csrf_token(OPERATOR),
    ),
}


def spellings(text: str) -> set[str]:
    """Return the text with other last characters, and with characters that base64 may skip."""
    start = text.rfind(".") + 1
    skipped = ["=", "==", "~", "~~~~", "!", " ", "\n", "\0", "é", "+", "/", "%3D", "."]
    found = {text[:-1] + last for last in ALPHABET}
    found |= {text + more for more in skipped}
    found |= {text[:at] + more + text[at:] for more in skipped for at in (0, start, start + 9)}
    found |= {text.upper(), text.lower(), text + text[-4:], text + "." + text[start:]}
    return found - {text}


@pytest.mark.parametrize("kind", KINDS)
def test_one_spelling_of_a_token_is_valid(kind):
    """That is the spelling that we write."""
    read, text = KINDS[kind]
    assert read(text)
    assert [other for other in spellings(text) if read(other)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_any_changed_character_voids_a_token(kind):
    """A token that is cut off anywhere, or has one character changed, removed or added, is void."""
    read, text = KINDS[kind]
    for at in range(len(text)):
        other = "0" if text[at] != "0" else "1"  # a digit of base64, and of a grant's signature
        start, end = text[:at], text[at + 1 :]
        for changed in (start, start + other + end, start + end, start + other + text[at:]):
            assert not read(changed), at
