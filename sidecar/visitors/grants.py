"""Grants: signed text that gives its bearer a class of a room, or of a target, for a while.

A grant is `class.expires.id.signature`: the class's name; when it ends, in unix seconds; an id,
with which it gives the class to one visitor only (empty: to any bearer); and the
HMAC-SHA256 (RFC 2104) of "waitroom-grant:{kind}:{name}:{class}:{expires}:{id}" in 64 hexadecimal
digits, small letters; `kind` is room or target. A site's own server makes one in a line
(docs/who-is-next.md). Earlier ones were signed without the kind; a room believes them as long as no
target has its name, a target does not.

Keys are listed oldest to newest: the last signs, all verify.
"""

import hmac
import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sidecar.kit.errors import ConfigError, WaitroomError
from sidecar.visitors.classes import is_class_name

#: An address's parameter that holds a grant.
PARAMETER = "waitroom_grant"
MAX_LIFE_S = 366 * 86_400
#: No grant is longer; longer text is not parsed.
MAX_LENGTH = 32 + 1 + 11 + 1 + 64 + 1 + 64

_IN_ADDRESS = re.compile(rf"[?&]{PARAMETER}=([^?&#]+)")
_GRANT = re.compile(r"([a-z0-9_-]+)\.([1-9][0-9]{0,10})\.([A-Za-z0-9_-]{0,64})\.([0-9a-f]{64})")
_ID = re.compile(r"[A-Za-z0-9_-]{0,64}")

#: What a grant is for.
GrantKind: TypeAlias = Literal["room", "target"]
#: Why a grant is refused. outdated: it was signed without its kind, and could be for either.
GrantDoubt: TypeAlias = Literal["forged", "expired", "malformed", "outdated"]


class GrantError(WaitroomError):
    """A grant is refused; `word` says why."""

    def __init__(self, word: GrantDoubt) -> None:
        super().__init__(f"the grant is {word}")
        self.word: GrantDoubt = word


@dataclass(frozen=True, slots=True)
class Grant:
    """What a verified grant gives."""

    class_name: str
    #: Unix seconds: when it expires.
    expires_s: int
    #: Empty: it may be used again and again.
    id: str = ""


def sign(key: str, name: str, grant: Grant, *, kind: GrantKind = "room") -> str:
    """Return a signed grant for a room or target. Raises ConfigError for an invalid class or id."""
    if not is_class_name(grant.class_name):
        raise ConfigError([f"{grant.class_name[:40]!r} is no class's name"])
    if not _ID.fullmatch(grant.id):
        raise ConfigError(["id: letters, digits, - and _, 64 at most"])
    signature = _signature(key, f"{kind}:{name}", grant)
    return f"{grant.class_name}.{grant.expires_s}.{grant.id}.{signature}"


def _signature(key: str, about: str, grant: Grant) -> str:
    """Return the HMAC. `about` is kind and name; of an earlier grant the name alone, which cannot
    be confused, for no field has a colon."""
    text = f"waitroom-grant:{about}:{grant.class_name}:{grant.expires_s}:{grant.id}"
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def expiry(life_s: float, now_ms: int) -> int:
    """Return when a grant ends, unix seconds. Raises ConfigError for an invalid lifetime."""
    if not 0 < life_s <= MAX_LIFE_S:
        raise ConfigError([f"a grant ends after now, and within {MAX_LIFE_S // 86_400} days"])
    return math.ceil(now_ms / 1000 + life_s)


def new_id() -> str:
    """Return a random id of 96 bits, for a grant that gives the class to one visitor."""
    return secrets.token_urlsafe(12)


def grant_in(address: str) -> str | None:
    """Return the first grant, unverified, in an address's parameters (`/shop?waitroom_grant=…`),
    or in those of its `next` (`/_waitroom/shop/?next=/shop?waitroom_grant=…`)."""
    query = address.find("?")
    match = _IN_ADDRESS.search(address, query) if query >= 0 else None
    return match[1] if match else None


class Grants:
    """The grants of one room, or of one target."""

    def __init__(self, name: str, keys: list[str], kind: GrantKind = "room") -> None:
        self._name = name
        self._keys = keys
        self._kind = kind
        #: Returns whether a target has the room's name.
        self.has_namesake: Callable[[], bool] = lambda: False

    def read(self, text: str, now_ms: int) -> Grant:
        """Verify a grant and return it. Raises GrantError."""
        match = _GRANT.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None or not is_class_name(match[1]):
            raise GrantError("malformed")
        grant = Grant(match[1], int(match[2]), match[3])
        if not self._fits(f"{self._kind}:{self._name}", grant, match[4]):
            if not self._fits(self._name, grant, match[4]):
                raise GrantError("forged")
            if self._kind != "room" or self.has_namesake():
                raise GrantError("outdated")
        if now_ms >= grant.expires_s * 1000:
            raise GrantError("expired")
        return grant

    def sign(self, grant: Grant) -> str:
        """Return the grant as signed text. Raises ConfigError."""
        return sign(self._keys[-1], self._name, grant, kind=self._kind)

    def _fits(self, about: str, grant: Grant, signature: str) -> bool:
        """Compare in constant time, and always with all keys."""
        fits = [hmac.compare_digest(_signature(key, about, grant), signature) for key in self._keys]
        return any(fits)
