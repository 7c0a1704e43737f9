"""Signs and verifies the tokens of a room: its cookie (a ticket, a pass, or the proof of being
outside the roll-out), and the tokens in the URLs of claim links and of `join_url`.

A token is the fields, joined by `~`, and `.timestamp.signature`, as the TimestampSigner of
itsdangerous makes them with HMAC-SHA-256. The key is derived for each room and kind of token, so a
ticket cannot be used as a pass, and a cookie of one room not in another. The fields consist of
letters, digits, `-` and `_`, and each kind has a fixed number of them, so they are unambiguous.
Each token can be written in one way only (kit/signing.py).

Keys are listed oldest to newest. The last key signs, and all keys verify."""

import os
import re
from binascii import b2a_base64
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from itsdangerous import BadSignature

from sidecar.kit.clock import StoreClock
from sidecar.kit.signing import TO_URL_SAFE, TimeSigner
from sidecar.visitors.model import TICKET_LIFETIME_MS, Outside, Pass, Ticket, Token

COOKIE_PREFIX = "waitroom_"
#: The length of the longest token. Longer strings are not verified.
MAX_TOKEN_LENGTH = 512
#: The highest number of verified tokens in a room's cache, which then takes about 6 MB.
CACHE_SIZE = 8192

_VISITOR = re.compile(r"[A-Za-z0-9_-]{22}\Z")
_HYPHEN = ord("-")
_SEPARATOR = "~"
_Contents = TypeVar("_Contents")
_KIND_TICKET = "t"
_KIND_CLASSED = "k"  # a ticket with a class
_KIND_PASS = "p"  # noqa: S105 - the letter that a pass begins with
_KIND_BOUND = "m"  # a pass bound to an address or a browser
_KIND_OUTSIDE = "o"  # the proof of being outside the roll-out
_COOKIE_KINDS = (_KIND_TICKET, _KIND_CLASSED, _KIND_PASS, _KIND_BOUND, _KIND_OUTSIDE)
_KIND_CLAIM = "c"  # the ticket in a claim link
_KIND_JOIN = "j"  # the token in a `join_url`
_LINK_KINDS = (_KIND_CLAIM, _KIND_JOIN)
#: The lowest and the highest age at which the token in a `join_url` is valid, in seconds.
JOIN_FROM_S, JOIN_UNTIL_S = 2, 60


def new_visitor() -> str:
    """Return a new visitor id: 128 random bits in 22 characters. It never begins with a hyphen, so
    that no command takes it for an option, and no spreadsheet for a formula."""
    visitor = b"-"
    while visitor[0] == _HYPHEN:
        visitor = b2a_base64(os.urandom(16), newline=False).translate(TO_URL_SAFE)[:22]
    return visitor.decode("ascii")


def is_visitor_id(text: str) -> bool:
    return _VISITOR.match(text) is not None


class Tokens:
    """The signer and verifier of the tokens of one room."""

    def __init__(self, room: str, keys: list[str], clock: StoreClock) -> None:
        self.cookie_name = COOKIE_PREFIX + room
        self.lifetime_ms = TICKET_LIFETIME_MS
        self._clock = clock

        def make_signers(kinds: tuple[str, ...]) -> dict[str, TimeSigner]:
            return {kind: TimeSigner(keys, salt=f"waitroom/{room}/{kind}") for kind in kinds}

        self._signers, self._link_signers = make_signers(_COOKIE_KINDS), make_signers(_LINK_KINDS)
        # A browser sends the same cookie with every request, and verifying it takes most of a
        # verdict's time, so verified tokens are cached. Invalid tokens raise, so they are not.
        self._verify_cached = lru_cache(CACHE_SIZE)(self._verify)

    def write(self, token: Token) -> str:
        if isinstance(token, Outside):
            return self._sign(_KIND_OUTSIDE, token.rollout_number)
        if isinstance(token, Ticket):
            return self._sign(*_list_ticket_fields(token))
        fields: list[str | int] = [token.visitor, token.order, token.joined_ms, token.epoch]
        fields += [token.started_ms, token.renewed_ms, token.expires_ms]
        if token.fingerprint:
            return self._sign(_KIND_BOUND, *fields, token.fingerprint)
        return self._sign(_KIND_PASS, *fields)

    def write_claim(self, ticket: Ticket) -> str:
        """Return the token of a claim link, with which another browser can take over the ticket."""
        return self._sign(_KIND_CLAIM, *_list_ticket_fields(ticket))

    def write_join(self) -> str:
        """Return the token for `join_url`, with which a newcomer joins while the shield is up."""
        return self._sign(_KIND_JOIN)

    def _sign(self, kind: str, *fields: str | int) -> str:
        value = _SEPARATOR.join((kind, *map(str, fields)))
        signer = self._signers.get(kind) or self._link_signers[kind]
        return signer.sign(value, self._clock.now_ms() // 1000)

    def read(self, text: str | None) -> Token | None:
        """Verify a cookie and return its token, or None if it is forged or too old. The age of a
        pass is not checked, because `expires_ms` limits its lifetime."""
        token = _verify_or_none(self._verify_cached, text)
        if token is None or isinstance(token, Pass):
            return token
        return token if token.signed_ms >= self._clock.now_ms() - self.lifetime_ms else None

    def read_claim(self, text: str | None) -> Ticket | None:
        """Verify a claim link's token and return its ticket, or None if it is forged or too old."""
        ticket = _verify_or_none(self._verify_claim, text)
        oldest_ms = self._clock.now_ms() - TICKET_LIFETIME_MS
        return ticket if isinstance(ticket, Ticket) and ticket.signed_ms >= oldest_ms else None

    def may_join(self, text: str | None) -> bool:
        """Return True if a `join_url`'s token is valid, and JOIN_FROM_S to JOIN_UNTIL_S old."""
        signed = _verify_or_none(self._link_signers[_KIND_JOIN].unsign, text)
        now_s = self._clock.now_ms() // 1000
        return signed is not None and JOIN_FROM_S <= now_s - signed[1] <= JOIN_UNTIL_S

    def _verify(self, text: str) -> Token:
        value, signed_s = self._signers[text[0]].unsign(text)
        return _parse(value, signed_s * 1000)

    def _verify_claim(self, text: str) -> Token:
        value, signed_s = self._link_signers[_KIND_CLAIM].unsign(text)
        return _parse(value.partition(_SEPARATOR)[2], signed_s * 1000)


def _verify_or_none(verify: Callable[[str], _Contents], text: str | None) -> _Contents | None:
    """Return verify(text), or None if the text is missing, too long or forged."""
    if not text or len(text) > MAX_TOKEN_LENGTH:
        return None
    try:
        return verify(text)
    except (BadSignature, KeyError, ValueError, TypeError, OverflowError):
        # A token of another version of the sidecar may have other fields, and raises too.
        return None


def _list_ticket_fields(ticket: Ticket) -> tuple[str, str | int, *tuple[str | int, ...]]:
    fields = ticket.visitor, ticket.order, ticket.joined_ms, ticket.epoch
    if ticket.class_name:
        return (_KIND_CLASSED, *fields, ticket.class_name)
    return (_KIND_TICKET, *fields)


def _parse(value: str, signed_ms: int) -> Token:
    """Parse the verified fields of a token, joined by ~. Raises ValueError or TypeError."""
    kind, visitor, *numbers = value.split(_SEPARATOR)
    if kind == _KIND_OUTSIDE:
        return Outside(int(visitor), signed_ms, *numbers)  # TypeError if there are more fields
    last = ""
    if kind in {_KIND_BOUND, _KIND_CLASSED}:
        *numbers, last = numbers
    order, joined_ms, epoch, *times = map(int, numbers)
    if kind in {_KIND_PASS, _KIND_BOUND}:
        started_ms, renewed_ms, expires_ms = times
        return Pass(visitor, order, joined_ms, epoch, started_ms, renewed_ms, expires_ms, last)
    if times:
        raise ValueError("a ticket has no such fields")
    return Ticket(visitor, order, joined_ms, epoch, signed_ms, last)
