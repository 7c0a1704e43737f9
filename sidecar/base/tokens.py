"""The one cookie of a room: a ticket or a pass, signed.

A token is `fields joined by ~` + `.timestamp.signature`, made by itsdangerous'
TimestampSigner (HMAC-SHA-256; the key is derived per room and kind, so a ticket is no
pass and a cookie of one room is none of another's). The fields are letters, digits,
`-` and `_`, and their number is fixed, so they cannot run into each other.

Keys are listed oldest to newest: the last signs, all verify.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import TYPE_CHECKING

from itsdangerous import BadSignature, TimestampSigner

from sidecar.base.model import TICKET_LIFETIME_MS, Pass, Ticket

if TYPE_CHECKING:
    from sidecar.base.clock import StoreClock

COOKIE_PREFIX = "waitroom_"
#: Nothing that we signed is longer; what is longer is not looked at.
MAX_TOKEN_LENGTH = 512

_VISITOR = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_SEPARATOR = "~"
_KIND_TICKET = "t"
_KIND_PASS = "p"
_FIELDS = {_KIND_TICKET: 4, _KIND_PASS: 7}


def new_visitor() -> str:
    """A random 128-bit id in 22 characters."""
    return secrets.token_urlsafe(16)


def is_visitor(text: str) -> bool:
    """Whether this can be an id that `new_visitor` made."""
    return _VISITOR.match(text) is not None


class _Signer(TimestampSigner):
    def __init__(self, keys: list[str], *, salt: str, clock: StoreClock) -> None:
        super().__init__(
            keys, salt=salt, key_derivation="hmac", digest_method=hashlib.sha256
        )
        self._clock = clock

    def get_timestamp(self) -> int:
        return self._clock.now_ms() // 1000


class Tokens:
    """Signs and verifies the cookie of one room."""

    def __init__(self, room: str, keys: list[str], clock: StoreClock) -> None:
        self.cookie_name = COOKIE_PREFIX + room
        self._clock = clock
        self._signers = {
            kind: _Signer(keys, salt=f"waitroom/{room}/{kind}", clock=clock) for kind in _FIELDS
        }

    def write(self, token: Ticket | Pass) -> str:
        if isinstance(token, Pass):
            kind = _KIND_PASS
            fields = (token.visitor, token.order, token.joined_ms, token.epoch,
                      token.started_ms, token.renewed_ms, token.expires_ms)  # fmt: skip
        else:
            kind = _KIND_TICKET
            fields = (token.visitor, token.order, token.joined_ms, token.epoch)
        value = _SEPARATOR.join((kind, *map(str, fields)))
        return self._signers[kind].sign(value).decode("ascii")

    def read(self, text: str | None) -> Ticket | Pass | None:
        """The token in a cookie, or None for whatever we did not sign or is too old."""
        if not text or len(text) > MAX_TOKEN_LENGTH:
            return None
        signer = self._signers.get(text[0])
        if signer is None:
            return None
        try:
            value, signed_at = signer.unsign(text.encode("ascii"), return_timestamp=True)
        except (BadSignature, UnicodeEncodeError, ValueError, OverflowError):
            return None
        kind, visitor, *rest = value.decode("ascii").split(_SEPARATOR)
        if len(rest) != _FIELDS[kind] - 1:
            return None
        numbers = [int(field) for field in rest]
        if kind == _KIND_PASS:
            return Pass(visitor, *numbers)
        signed_ms = int(signed_at.timestamp()) * 1000
        if signed_ms + TICKET_LIFETIME_MS < self._clock.now_ms():
            return None
        return Ticket(visitor, *numbers, signed_ms=signed_ms)


def cookie_value(header: str | None, name: str) -> str | None:
    """One cookie's value out of a Cookie header; the first one that has the name.

    Reading the one by hand is several times cheaper than parsing all of them, and no
    other cookie's oddity can spoil it.
    """
    if not header or name not in header:
        return None
    for pair in header.split(";"):
        key, equals, value = pair.partition("=")
        if equals and key.strip() == name:
            return value.strip().strip('"')
    return None
