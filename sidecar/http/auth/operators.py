"""Who is logged in at the dashboard: a session is a signed cookie, and nothing is stored but which
were logged out of.

Of the admin token's sessions the signature's salt holds a digest of it, so a new token voids every
one. An operator's with an account holds a digest of that: a new role or password voids it. Keys
rotate as in visitors/tokens.py: listed oldest to newest, the last signs, all verify.
"""

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

#: Other cookies of ours have an underscore here, and any name may follow theirs.
COOKIE = "waitroom-desk"
LIFETIME_S = 12 * 3600
#: After so long a proxy is asked anew whether it still knows the operator.
PROXY_LIFETIME_S = 300
#: Of a link that shows one thing and lets nobody do anything.
WALL_LIFETIME_S = 30 * 86_400
NAME_LENGTH = 64
#: Nothing that we signed is longer; what is longer is not looked at.
MAX_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Operator:
    name: str
    #: Random; what the CSRF token is made of.
    session: str
    ends_s: int
    role: Role = "admin"
    #: What opened the session.
    by: Literal["token", "password", "proxy"] = "token"


class Operators:
    """`keys` and `token` are the settings' secret_keys and admin_token."""

    def __init__(
        self,
        keys: list[str],
        token: str,
        accounts: Accounts | None = None,
        *,
        ended: EndedSessions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`ended`: where replicas tell each other of log-outs; None: this one is alone."""
        self._token = token
        self.accounts = accounts or Accounts()
        self._now_s = now_s
        self._how: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._keys = keys
        salt = "waitroom/desk/" + hashlib.sha256(token.encode()).hexdigest()
        self._cookies, self._walls = self._signing(salt), self._signing(salt + "/wall")
        named = "waitroom/operator"
        self._named_cookies = self._signing(named)
        self._named_walls = self._signing(named + "/wall")
        self._csrf = StrictSigner(keys, salt=salt + "/csrf", **self._how)
        self._shared = ended
        #: Sessions that were logged out of, and when they would have ended.
        self._ended: dict[str, int] = {}
        #: Until the store was heard, sessions that began before may have been logged out of.
        self._unsure_before_s = now_s() if ended else 0.0
        #: Wrong tokens at the log-in and at /admin/.
        self.guesses = Throttle(now_s)
        #: And at /v1/, where programs with an old token must keep no operator out.
        self.guesses_of_programs = Throttle(now_s)

    def _signing(self, salt: str) -> URLSafeSerializer:
        return URLSafeSerializer(
            self._keys, salt=salt, signer=StrictSigner, signer_kwargs=self._how
        )

    @property
    def is_on(self) -> bool:
        """Whether there is anything to log in with."""
        return bool(self._token or self.accounts)

    @property
    def has_token(self) -> bool:
        return bool(self._token)

    def is_token(self, given: str) -> bool:
        """In constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode()) and (
            bool(self._token)
        )

    def log_in(self, name: str) -> str:
        """The cookie's value, for one who has the admin token."""
        return _text(self._cookies.dumps([name, _new_session(), self._end_s(name)]))

    def log_in_by_password(self, name: str) -> str:
        """For one whose password was right."""
        fields = [name, _new_session(), self._end_s(name), self.accounts.digest(name)]
        return _text(self._named_cookies.dumps(fields))

    def _end_s(self, name: str) -> int:
        """After that of all that were ended at once."""
        return max(int(self._now_s()) + LIFETIME_S, self._all_ended_s(name) + 1)

    def _all_ended_s(self, name: str) -> int:
        return self._ended.get(_all_of(name), 0)

    def log_out(self, operator: Operator) -> None:
        """Ends the session at this replica, for any copy of the cookie; at the others
        when it is shared."""
        self._ended[operator.session] = operator.ends_s

    def log_out_everywhere(self, name: str) -> None:
        """Ends all sessions that an account has, in any browser; shared as a log-out is."""
        # A log-in since the last time may end a second later than it would.
        ends_s = max(int(self._now_s()) + LIFETIME_S, self._all_ended_s(name) + 1)
        self._ended[_all_of(name)] = ends_s

    async def share(self) -> None:
        """Writes to the store what ended here and reads what ended elsewhere. Raises StoreError;
        what could not be written is written the next time."""
        if self._shared is not None:
            found = await self._shared.exchange(self._ended)
            self._ended |= {s: max(e, self._ended.get(s, 0)) for s, e in found.items()}
            self._unsure_before_s = 0.0
        now_s = self._now_s()
        self._ended = {s: ends_s for s, ends_s in self._ended.items() if ends_s > now_s}

    def read(self, cookie: str | None) -> Operator | None:
        """Whose session it is; None for whatever we did not sign, is over or was ended."""
        if not cookie or len(cookie) > MAX_LENGTH or not self.is_on:
            return None
        operator = self._read_named(cookie) or self._read_tokens(cookie)
        return None if operator is None or self.is_over(operator) else operator

    def _read_tokens(self, cookie: str) -> Operator | None:
        if not self._token:
            return None
        try:
            name, session, ends_s = self._cookies.loads(cookie)
            # An account may have its name by now, or at this replica.
            if self.accounts.is_taken(str(name)):
                return None
            return Operator(str(name), str(session), int(ends_s))
        except (BadData, ValueError, TypeError):
            # A version before or after this one may have signed other fields.
            return None

    def _read_named(self, cookie: str) -> Operator | None:
        try:
            name, session, ends_s, digest = self._named_cookies.loads(cookie)
            role = self.accounts.role_of(name)
            if role is None or digest != self.accounts.digest(name):
                return None
            return Operator(str(name), str(session), int(ends_s), role, "password")
        except (BadData, ValueError, TypeError):
            return None

    def from_proxy(self, headers: CIMultiDictProxy[str], peer: str | None) -> Operator | None:
        """Whom the proxy in front has signed in; None: the header does not count, says nobody, or
        names one who has no account."""
        name = self.accounts.proxy.name(headers, peer)
        role = self.accounts.role_of(name) if name and name == clean_name(name) else None
        if not name or role is None:
            return None
        session = f"proxy:{name}:{self.accounts.digest(name)}"
        return Operator(name, session, int(self._now_s()) + PROXY_LIFETIME_S, role, "proxy")

    def is_over(self, operator: Operator) -> bool:
        if operator.ends_s <= self._now_s():
            return True
        if operator.by == "proxy":
            return False
        return (
            operator.session in self._ended
            or operator.ends_s - LIFETIME_S < int(self._unsure_before_s)
            or (
                operator.by == "password"
                and operator.ends_s <= self._ended.get(_all_of(operator.name), 0)
            )
        )

    def wall(self, shown: str, operator: Operator) -> str:
        """What the address of a display holds. A new admin token voids it; or, of an operator with
        an account, a new role or password."""
        ends_s = int(self._now_s()) + WALL_LIFETIME_S
        if operator.by == "token":
            return _text(self._walls.dumps([shown, ends_s]))
        name = operator.name
        return _text(self._named_walls.dumps([shown, ends_s, name, self.accounts.digest(name)]))

    def read_wall(self, link: str) -> str | None:
        """What it shows; None for whatever we did not sign, or is over."""
        if len(link) > MAX_LENGTH or not self.is_on:
            return None
        try:
            shown, ends_s, name, digest = self._named_walls.loads(link)
            is_good = self.accounts.digest(name) == digest is not None
        except (BadData, ValueError, TypeError):
            try:
                shown, ends_s = self._walls.loads(link)
                is_good = bool(self._token)
            except (BadData, ValueError, TypeError):
                return None
        return str(shown) if is_good and ends_s > self._now_s() else None

    def csrf(self, operator: Operator) -> str:
        """What the page sends along with every change: no other site's page can know it."""
        return self._csrf.get_signature(operator.session).decode("ascii")

    def is_csrf(self, operator: Operator, given: str) -> bool:
        return self._csrf.verify_signature(operator.session, given)


def _new_session() -> str:
    return secrets.token_urlsafe(16)


def _all_of(name: str) -> str:
    """Stands for all sessions of an account; no session has a colon."""
    return f"name:{name}"


def _text(signed: str | bytes) -> str:
    return signed if isinstance(signed, str) else signed.decode("ascii")


def clean_name(given: str) -> str:
    """What an operator calls themselves, fit for the log; "" when nothing is left."""
    return "".join(c for c in given if c.isprintable()).strip()[:NAME_LENGTH]
