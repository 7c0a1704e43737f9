"""Tokens: the signed cookie of a room (a ticket, a pass, or the proof of being outside), and the
claims of links, which are no cookies.

A token is `fields joined by ~` + `.timestamp.signature`, as itsdangerous'
TimestampSigner makes it (HMAC-SHA-256; the key is derived per room and kind, so a ticket is no
pass and a cookie of one room is none of another's). The fields are letters, digits,
`-` and `_`, and their number is fixed, so they cannot run into each other. A token has one
spelling that is valid (kit/signing.py).

Keys are listed oldest to newest: the last signs, all verify.
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
#: No token is longer; longer text is not verified.
MAX_TOKEN_LENGTH = 512
#: How many verified tokens a room remembers: some 6 MB.
REMEMBERED = 8192

_VISITOR = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_HYPHEN = ord("-")
_SEPARATOR = "~"
_KIND_TICKET = "t"
_KIND_CLASSED = "k"  # a ticket with a class
_KIND_PASS = "p"  # noqa: S105 - the letter that a pass begins with
_KIND_BOUND = "m"  # a pass bound to an address or a browser
_KIND_OUTSIDE = "o"
_KINDS = (_KIND_TICKET, _KIND_CLASSED, _KIND_PASS, _KIND_BOUND, _KIND_OUTSIDE)
_KIND_CLAIM = "c"  # a ticket for a link
_KIND_JOIN = "j"  # in a `join_url`
#: From when until when after its signing a join token is valid, seconds.
JOIN_FROM_S, JOIN_UNTIL_S = 2, 60


def new_visitor() -> str:
    """Return a random 128-bit id in 22 characters. It never begins with -, which a command would
    take for an option, and a spreadsheet for a formula."""
    while (visitor := b2a_base64(os.urandom(16), newline=False).translate(SAFE)[:22])[0] == _HYPHEN:
        pass
    return visitor.decode("ascii")


def is_visitor(text: str) -> bool:
    """Return whether a text can be a visitor's id."""
    return _VISITOR.match(text) is not None


class Tokens:
    """Signs and verifies the cookie of one room."""

    def __init__(self, room: str, keys: list[str], clock: StoreClock) -> None:
        self.cookie_name = COOKIE_PREFIX + room
        self.lifetime_ms = TICKET_LIFETIME_MS
        self._clock = clock
        self._signers = {kind: TimeSigner(keys, salt=f"waitroom/{room}/{kind}") for kind in _KINDS}
        self._claims = TimeSigner(keys, salt=f"waitroom/{room}/{_KIND_CLAIM}")
        self._joins = TimeSigner(keys, salt=f"waitroom/{room}/{_KIND_JOIN}")
        # The same cookie comes again with every request, and verifying is most of a verdict's
        # cost. What does not verify raises, and is not remembered.
        self._verified = lru_cache(REMEMBERED)(self._verify)

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
        """Return a ticket for a link: the browser that opens the link may take the ticket."""
        value = _SEPARATOR.join((_KIND_CLAIM, *map(str, _fields(ticket))))
        return self._claims.sign(value, self._clock.now_ms() // 1000)

    def read_claim(self, text: str | None) -> Ticket | None:
        """Return the ticket in a link, or None if it is forged or too old."""
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
        """Return whether a join token is ours, and JOIN_FROM_S to JOIN_UNTIL_S old."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return False
        try:
            _, signed_s = self._joins.unsign(text)
        except (BadSignature, ValueError, OverflowError):
            return False
        return JOIN_FROM_S <= self._clock.now_ms() // 1000 - signed_s <= JOIN_UNTIL_S

    def read(self, text: str | None) -> Token | None:
        """Return the token in a cookie, or None if it is forged or too old. A pass is never too old
        here: its end is one of its fields."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return None
        try:
            token = self._verified(text)
        except (BadSignature, KeyError, ValueError, TypeError, OverflowError):
            # A version before or after this one may have signed other fields.
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
    """Return the token of these fields. Raises ValueError or TypeError."""
    kind, visitor, *numbers = value.split(_SEPARATOR)
    if kind == _KIND_OUTSIDE:
        return Outside(int(visitor), signed_ms, *numbers)  # TypeError where there are more
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
