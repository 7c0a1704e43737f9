"""Begins, checks and ends operators' sessions at the dashboard. A session is a signed cookie. Only
ended sessions are stored.

After a log-in with the admin token, the cookie is signed with a salt that contains a digest of the
token, so a new token ends the session. After a log-in with an account, the cookie contains a digest
of the account's role and password."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from itsdangerous import BadData, URLSafeSerializer
from multidict import CIMultiDictProxy

from sidecar.http.auth.accounts import Accounts
from sidecar.http.auth.ended_sessions import EndedSessions
from sidecar.http.auth.rights import Role
from sidecar.http.auth.throttle import Throttle
from sidecar.kit.signing import StrictSigner

#: The cookie of a session. It has a hyphen, because waitroom_NAME is the cookie of a room or lease.
COOKIE = "waitroom-desk"
#: The lifetime of a session, in seconds.
LIFETIME_S = 12 * 3600
#: The seconds after which the event stream of an operator whom the proxy has signed in is closed.
PROXY_LIFETIME_S = 300
#: The lifetime of a link to a wall display, in seconds.
WALL_LIFETIME_S = 30 * 86_400
#: The longest name of an operator, in characters.
NAME_LENGTH = 64
#: The longest cookie or link that is checked, in characters. Waitroom signs only shorter ones.
MAX_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator who is logged in."""

    name: str
    #: The random id of the session. The CSRF token is the signature of this id.
    session: str
    #: When the session expires, unix seconds.
    ends_s: int
    role: Role = "admin"
    #: How the operator logged in.
    by: Literal["token", "password", "proxy"] = "token"


class Operators:
    """The operators' sessions. `keys` is the setting secret_keys, from the oldest to the newest:
    the newest signs, and all verify. `token` is the setting admin_token."""

    def __init__(
        self,
        keys: list[str],
        token: str,
        accounts: Accounts | None = None,
        *,
        ended: EndedSessions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._token = token
        self.accounts = accounts or Accounts()
        self._now_s = now_s
        self._options: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._keys = keys
        salt = "waitroom/desk/" + hashlib.sha256(token.encode()).hexdigest()
        self._cookies, self._walls = self._serializer(salt), self._serializer(salt + "/wall")
        account_salt = "waitroom/operator"
        self._named_cookies = self._serializer(account_salt)
        self._named_walls = self._serializer(account_salt + "/wall")
        self._csrf = StrictSigner(keys, salt=salt + "/csrf", **self._options)
        self._ended_sessions = ended or EndedSessions(None, now_s=now_s)
        #: Counts wrong tokens and passwords at the log-in and at /admin/.
        self.guesses = Throttle(now_s)
        #: Counts wrong tokens sent to /v1/, apart from the others, so that a program with an old
        #: token cannot lock operators out.
        self.guesses_of_programs = Throttle(now_s)

    def _serializer(self, salt: str) -> URLSafeSerializer:
        options = self._options
        return URLSafeSerializer(self._keys, salt=salt, signer=StrictSigner, signer_kwargs=options)

    @property
    def is_on(self) -> bool:
        """Return True if there is an admin token or an account to log in with."""
        return bool(self._token or self.accounts)

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    def is_token(self, token: str) -> bool:
        """Compare a token with the admin token, in constant time."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token.encode()) and (
            bool(self._token)
        )

    def log_in(self, name: str) -> str:
        """Return the cookie of a new session after a log-in with the admin token."""
        return self._cookies.dumps([name, _new_session(), self._end_s(name)])

    def log_in_by_password(self, name: str) -> str:
        """Return the cookie of a new session after a log-in with an account's password."""
        fields = [name, _new_session(), self._end_s(name), self.accounts.digest(name)]
        return self._named_cookies.dumps(fields)

    def _end_s(self, name: str) -> int:
        """Return when a new session expires: after all sessions that log_out_everywhere ended."""
        return max(int(self._now_s()) + LIFETIME_S, self._last_ended_s(name) + 1)

    def _last_ended_s(self, name: str) -> int:
        """Return the latest expiry of a session that log_out_everywhere has ended, or 0."""
        return self._ended_sessions.would_end_s(_account_key(name))

    def log_out(self, operator: Operator) -> None:
        """End a session. Other replicas learn of it by share()."""
        self._ended_sessions.add(operator.session, operator.ends_s)

    def log_out_everywhere(self, name: str) -> None:
        """End all sessions of an account. Other replicas learn of it by share()."""
        # No existing session expires later than a new one would.
        self._ended_sessions.add(_account_key(name), self._end_s(name))

    async def share(self) -> None:
        """Exchange ended sessions with the other replicas. If this raises StoreError, the
        next call writes what this call could not write."""
        await self._ended_sessions.share()

    def read(self, cookie: str | None) -> Operator | None:
        """Return the operator, or None if the cookie is forged, expired or of an ended session."""
        if not cookie:
            return None
        operator = None
        if fields := _read_fields(self._named_cookies, cookie, str, str, int, str):
            name, session, ends_s, digest = fields
            role = self.accounts.find_role(name)
            if role is not None and digest == self.accounts.digest(name):
                operator = Operator(name, session, ends_s, role, "password")
        elif self._token and (fields := _read_fields(self._cookies, cookie, str, str, int)):
            # An account may have been created with this name since the log-in.
            operator = None if self.accounts.is_taken(fields[0]) else Operator(*fields)
        return None if operator is None or self.is_over(operator) else operator

    def from_proxy(self, headers: CIMultiDictProxy[str], peer: str | None) -> Operator | None:
        """Return the operator whom the proxy has signed in. Return None if the header is absent or
        not trusted, or if the operator has no role."""
        name = self.accounts.proxy.find_name(headers, peer)
        role = self.accounts.find_role(name) if name and name == clean_name(name) else None
        if not name or role is None:
            return None
        session = f"proxy:{name}:{self.accounts.digest(name)}"
        return Operator(name, session, int(self._now_s()) + PROXY_LIFETIME_S, role, "proxy")

    def is_over(self, operator: Operator) -> bool:
        """Return True if the operator's session has expired or was ended."""
        if operator.ends_s <= self._now_s():
            return True
        if operator.by == "proxy":
            return False
        return (
            self._ended_sessions.would_end_s(operator.session) > 0
            or self._ended_sessions.is_unsure(operator.ends_s - LIFETIME_S)
            or (operator.by == "password" and operator.ends_s <= self._last_ended_s(operator.name))
        )

    def sign_wall(self, room: str, operator: Operator) -> str:
        """Return the signed part of the URL of a room's wall display. A new admin token makes the
        URL invalid, or, if an account made it, a new role or password of the account."""
        ends_s = int(self._now_s()) + WALL_LIFETIME_S
        if operator.by == "token":
            return self._walls.dumps([room, ends_s])
        name = operator.name
        return self._named_walls.dumps([room, ends_s, name, self.accounts.digest(name)])

    def read_wall(self, link: str) -> str | None:
        """Return the room of a wall display's link, or None if the link is forged or expired."""
        room: str
        if fields := _read_fields(self._named_walls, link, str, int, str, str):
            room, ends_s, name, digest = fields
            is_valid = self.accounts.digest(name) == digest
        elif self._token and (fields := _read_fields(self._walls, link, str, int)):
            (room, ends_s), is_valid = fields, True
        else:
            return None
        return room if is_valid and ends_s > self._now_s() else None

    def csrf_token(self, operator: Operator) -> str:
        """Return the CSRF token of a session, which the dashboard sends with every change."""
        return self._csrf.get_signature(operator.session).decode("ascii")

    def is_csrf_token(self, operator: Operator, token: str) -> bool:
        return self._csrf.verify_signature(operator.session, token)


def _read_fields(serializer: URLSafeSerializer, signed: str, *kinds: type) -> list[Any]:
    """Return the fields of a signed text. Return [] if the text is forged, or if another version of
    Waitroom has signed it with fields of other types."""
    try:
        fields = serializer.loads(signed) if len(signed) <= MAX_LENGTH else None
    except (BadData, ValueError):
        return []
    return fields if isinstance(fields, list) and [*map(type, fields)] == [*kinds] else []


def _new_session() -> str:
    return secrets.token_urlsafe(16)


def _account_key(name: str) -> str:
    """Return the key that stands for all sessions of an account. Session ids have no colon."""
    return f"name:{name}"


def clean_name(name: str) -> str:
    """Return the printable characters of a name that a client sent, for the log."""
    return "".join(c for c in name if c.isprintable()).strip()[:NAME_LENGTH]
