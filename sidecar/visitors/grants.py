"""Signs and verifies grants: strings that give a visitor a class of a room, or a job a class of a
target, for a limited time.

A grant is `class.expires.id.signature`: the name of the class; the time when the grant expires, in
Unix seconds; an id, which limits the grant to one visitor (empty: anybody may use it); and the
HMAC-SHA256 (RFC 2104) of "waitroom-grant:{kind}:{name}:{class}:{expires}:{id}" in 64 lower-case
hexadecimal digits. `kind` is room or target, and `name` its name. A site's own server can make a
grant with one line of code (docs/who-is-next.md). Old grants were signed without the kind. A room
accepts them if no target has the same name; a target never accepts them.

Keys are listed oldest to newest. The last key signs, and all keys verify."""

import hmac
import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sidecar.kit.errors import InputError, SidecarError
from sidecar.visitors.classes import is_class_name

#: The query parameter that holds a grant.
PARAMETER = "waitroom_grant"
#: The longest lifetime of a grant.
MAX_LIFE_S = 366 * 86_400
#: The length of the longest valid grant. Longer strings are not parsed.
MAX_LENGTH = 32 + 1 + 11 + 1 + 64 + 1 + 64

_IN_QUERY = re.compile(rf"[?&]{PARAMETER}=([^?&#]+)")
_GRANT = re.compile(r"([a-z0-9_-]+)\.([1-9][0-9]{0,10})\.([A-Za-z0-9_-]{0,64})\.([0-9a-f]{64})")
_ID = re.compile(r"[A-Za-z0-9_-]{0,64}")

GrantKind: TypeAlias = Literal["room", "target"]
#: The reasons to refuse a grant. "outdated": it lacks the kind, and a target has the same name.
GrantRefusal: TypeAlias = Literal["forged", "expired", "malformed", "outdated"]


class GrantError(SidecarError):
    """Raised when a grant is refused. `reason` says why."""

    def __init__(self, reason: GrantRefusal) -> None:
        super().__init__(f"the grant is {reason}")
        self.reason: GrantRefusal = reason


@dataclass(frozen=True, slots=True)
class Grant:
    """The contents of a grant."""

    class_name: str
    #: When the grant expires, in Unix seconds.
    expires_s: int
    #: If not empty, only the first visitor who sends a grant with this id may use it.
    id: str = ""


def _compute_signature(key: str, subject: str, grant: Grant) -> str:
    """Return the HMAC of a grant. `subject` is "kind:name", or only the name for an old grant. No
    field contains a colon, so the two forms cannot be confused."""
    text = f"waitroom-grant:{subject}:{grant.class_name}:{grant.expires_s}:{grant.id}"
    return hmac.digest(key.encode(), text.encode(), "sha256").hex()


def compute_expiry_s(life_s: float, now_ms: int) -> int:
    """Return a grant's expiry in Unix seconds. Raises InputError if the lifetime is invalid."""
    if not 0 < life_s <= MAX_LIFE_S:
        raise InputError([f"a grant ends after now, and within {MAX_LIFE_S // 86_400} days"])
    return math.ceil(now_ms / 1000 + life_s)


def new_grant_id() -> str:
    """Return a random 96-bit id for a grant that only one visitor may use."""
    return secrets.token_urlsafe(12)


def find_grant(url: str) -> str | None:
    """Return the first grant in a URL's query (`/shop?waitroom_grant=…`), or in that of its `next`
    parameter (`/_waitroom/shop/?next=/shop?waitroom_grant=…`). The grant is not verified."""
    query_start = url.find("?")
    match = _IN_QUERY.search(url, query_start) if query_start >= 0 else None
    return match[1] if match else None


class Grants:
    """The signer and verifier of the grants of one room or target."""

    def __init__(self, name: str, keys: list[str], kind: GrantKind = "room") -> None:
        self._name = name
        self._keys = keys
        self._kind = kind
        #: A function that returns True if a target has the same name as this room.
        self.has_namesake: Callable[[], bool] = lambda: False

    def read(self, text: str, now_ms: int) -> Grant:
        """Verify a grant and return its contents. Raises GrantError."""
        match = _GRANT.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None or not is_class_name(match[1]):
            raise GrantError("malformed")
        grant = Grant(match[1], int(match[2]), match[3])
        if not self._is_signed(f"{self._kind}:{self._name}", grant, match[4]):
            if not self._is_signed(self._name, grant, match[4]):
                raise GrantError("forged")
            if self._kind != "room" or self.has_namesake():
                raise GrantError("outdated")
        if now_ms >= grant.expires_s * 1000:
            raise GrantError("expired")
        return grant

    def sign(self, grant: Grant) -> str:
        """Return the grant as a signed string. Raises InputError for an invalid class or id."""
        if not is_class_name(grant.class_name):
            raise InputError([f"{grant.class_name[:40]!r} is no class's name"])
        if not _ID.fullmatch(grant.id):
            raise InputError(["id: letters, digits, - and _, 64 at most"])
        signature = _compute_signature(self._keys[-1], f"{self._kind}:{self._name}", grant)
        return f"{grant.class_name}.{grant.expires_s}.{grant.id}.{signature}"

    def _is_signed(self, subject: str, grant: Grant, signature: str) -> bool:
        """Return True if the signature was made with one of the keys. Always compares with all keys
        in constant time, so that the time reveals nothing about a valid signature."""
        expected = (_compute_signature(key, subject, grant) for key in self._keys)
        matches = [hmac.compare_digest(digest, signature) for digest in expected]
        return any(matches)
