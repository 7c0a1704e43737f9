"""Tokens: the signed cookie of a room (a ticket, a pass, or the proof of being outside the
roll-out), and the signed query parameters of claim links and join addresses.

A token is `fields joined by ~` + `.timestamp.signature`, as made by the TimestampSigner of
itsdangerous with HMAC-SHA-256. The key is derived for each room and kind, so a ticket cannot be
used as a pass, nor a cookie of one room in another. The fields consist of letters, digits, `-` and
`_`, and each kind has a fixed number of them, so they are unambiguous. A token has only one valid
spelling (kit/signing.py).

Keys are listed oldest to newest. The last key signs, and all keys verify.
"""

import os
import re
from binascii import b2a_base64
from functools import lru_cache

from itsdangerous import BadSignature

from sidecar.kit.clock import StoreClock
from sidecar.kit.signing import SAFE, TimeSigner
from sidecar.visitors.model import TICKET_LIFETIME_MS, Outside, Pass, Ticket, Token

COOKIE_PREFIX = "waitroom_"
#: The greatest length of a token. Longer strings are not verified.
MAX_TOKEN_LENGTH = 512
#: The number of verified tokens in the cache of a room, which takes about 6 MB.
CACHE_SIZE = 8192

_VISITOR = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_HYPHEN = ord("-")
_SEPARATOR = "~"
_KIND_TICKET = "t"
_KIND_CLASSED = "k"  # a ticket with a class
_KIND_PASS = "p"  # noqa: S105 - the letter that a pass begins with
_KIND_BOUND = "m"  # a pass bound to an address or a browser
_KIND_OUTSIDE = "o"  # the proof of being outside the roll-out
_KINDS = (_KIND_TICKET, _KIND_CLASSED, _KIND_PASS, _KIND_BOUND, _KIND_OUTSIDE)
_KIND_CLAIM = "c"  # the ticket in a claim link
_KIND_JOIN = "j"  # the token in a `join_url`
#: The ages from which and up to which a join token is valid, seconds.
JOIN_FROM_S, JOIN_UNTIL_S = 2, 60


def new_visitor() -> str:
    """Return a new visitor id: 128 random bits in 22 characters. It never begins with a hyphen,
    because a command would take the id for an option, and a spreadsheet for a formula."""
    while (visitor := b2a_base64(os.urandom(16), newline=False).translate(SAFE)[:22])[0] == _HYPHEN:
        pass
    return visitor.decode("ascii")


def is_visitor_id(text: str) -> bool:
    """Return whether a string has the form of a visitor id."""
    return _VISITOR.match(text) is not None


class Tokens:
    """The signer and verifier of the tokens of one room."""

    def __init__(self, room: str, keys: list[str], clock: StoreClock) -> None:
        self.cookie_name = COOKIE_PREFIX + room
        self.lifetime_ms = TICKET_LIFETIME_MS
        self._clock = clock
        self._signers = {kind: TimeSigner(keys, salt=f"waitroom/{room}/{kind}") for kind in _KINDS}
        self._claims = TimeSigner(keys, salt=f"waitroom/{room}/{_KIND_CLAIM}")
        self._joins = TimeSigner(keys, salt=f"waitroom/{room}/{_KIND_JOIN}")
        # Tokens are cached because a browser sends the same cookie with every request, and
        # verifying is most of a verdict's cost. An invalid token raises, so it is not cached.
        self._verify_cached = lru_cache(CACHE_SIZE)(self._verify)

    def write(self, token: Token) -> str:
        if isinstance(token, Outside):
            return self._sign(_KIND_OUTSIDE, token.draw)
        if isinstance(token, Ticket):
            return self._sign(*_fields(token))
        kind = _KIND_BOUND if token.fingerprint else _KIND_PASS
        fields: list[str | int] = [token.visitor, token.order, token.joined_ms, token.epoch]
        fields += [token.started_ms, token.renewed_ms, token.expires_ms]
        return self._sign(kind, *fields, *([token.fingerprint] if token.fingerprint else []))

    def _sign(self, kind: str, *fields: str | int) -> str:
        value = _SEPARATOR.join((kind, *map(str, fields)))
        return self._signers[kind].sign(value, self._clock.now_ms() // 1000)

    def write_claim(self, ticket: Ticket) -> str:
        """Return the token of a claim link, with which another browser can take the ticket."""
        value = _SEPARATOR.join((_KIND_CLAIM, *map(str, _fields(ticket))))
        return self._claims.sign(value, self._clock.now_ms() // 1000)

    def read_claim(self, text: str | None) -> Ticket | None:
        """Return the ticket in the token of a claim link. None if it is forged or too old."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return None
        try:
            value, signed_s = self._claims.unsign(text)
            _, _, fields = value.partition(_SEPARATOR)
            ticket = _parse(fields, signed_s * 1000)
        except (BadSignature, ValueError, TypeError, OverflowError):
            return None
        oldest_ms = self._clock.now_ms() - TICKET_LIFETIME_MS
        return ticket if isinstance(ticket, Ticket) and ticket.signed_ms >= oldest_ms else None

    def write_join(self) -> str:
        """Return the token with which a newcomer joins while the shield is up."""
        return self._joins.sign(_KIND_JOIN, self._clock.now_ms() // 1000)

    def may_join(self, text: str | None) -> bool:
        """Return whether a join token is genuine, and JOIN_FROM_S to JOIN_UNTIL_S old."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return False
        try:
            _, signed_s = self._joins.unsign(text)
        except (BadSignature, ValueError, OverflowError):
            return False
        return JOIN_FROM_S <= self._clock.now_ms() // 1000 - signed_s <= JOIN_UNTIL_S

    def read(self, text: str | None) -> Token | None:
        """Return the token in a cookie. None if it is forged or too old. The age of a pass is not
        checked, because its `expires_ms` limits it."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return None
        try:
            token = self._verify_cached(text)
        except (BadSignature, KeyError, ValueError, TypeError, OverflowError):
            # Not only forged tokens raise: another version of the sidecar may sign other fields.
            return None
        oldest_ms = self._clock.now_ms() - self.lifetime_ms
        if not isinstance(token, Pass) and token.signed_ms < oldest_ms:
            return None
        return token

    def _verify(self, text: str) -> Token:
        value, signed_s = self._signers[text[0]].unsign(text)
        return _parse(value, signed_s * 1000)


def _fields(ticket: Ticket) -> tuple[str, str | int, *tuple[str | int, ...]]:
    fields = ticket.visitor, ticket.order, ticket.joined_ms, ticket.epoch
    if ticket.class_name:
        return (_KIND_CLASSED, *fields, ticket.class_name)
    return (_KIND_TICKET, *fields)


def _parse(value: str, signed_ms: int) -> Token:
    """Return the token for the signed fields, joined by ~. Raises ValueError or TypeError."""
    kind, visitor, *numbers = value.split(_SEPARATOR)
    if kind == _KIND_OUTSIDE:
        return Outside(int(visitor), signed_ms, *numbers)  # TypeError if there are more fields
    fingerprint = ""
    if kind == _KIND_BOUND:
        *numbers, fingerprint = numbers
    if kind in {_KIND_PASS, _KIND_BOUND}:
        order, joined_ms, epoch, *times = map(int, numbers)
        started_ms, renewed_ms, expires_ms = times
        return Pass(
            visitor, order, joined_ms, epoch, started_ms, renewed_ms, expires_ms, fingerprint
        )
    class_name = ""
    if kind == _KIND_CLASSED:
        *numbers, class_name = numbers
    order, joined_ms, epoch = map(int, numbers)
    return Ticket(visitor, order, joined_ms, epoch, signed_ms, class_name)
