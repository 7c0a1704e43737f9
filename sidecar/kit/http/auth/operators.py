"""Who is logged in at the dashboard: a session is a signed cookie, and nothing is stored but which
were logged out of.

The signature's salt holds a digest of the admin token, so a new token voids every session. Keys
rotate as in queue/tokens.py: listed oldest to newest, the last signs, all verify.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from itsdangerous import BadData, URLSafeSerializer

from sidecar.kit.http.auth.throttle import Throttle
from sidecar.kit.signing import StrictSigner

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.kit.http.auth.ended_sessions import EndedSessions

#: Other cookies of ours have an underscore here, and any name may follow theirs.
COOKIE = "waitroom-desk"
LIFETIME_S = 12 * 3600
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


class Operators:
    """`keys` and `token` are the settings' secret_keys and admin_token."""

    def __init__(
        self,
        keys: list[str],
        token: str,
        *,
        ended: EndedSessions | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`ended`: where replicas tell each other of log-outs; None: this one is alone."""
        self._token = token
        self._now_s = now_s
        salt = "waitroom/desk/" + hashlib.sha256(token.encode()).hexdigest()
        how: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._cookies = URLSafeSerializer(keys, salt=salt, signer=StrictSigner, signer_kwargs=how)
        self._walls = URLSafeSerializer(
            keys, salt=salt + "/wall", signer=StrictSigner, signer_kwargs=how
        )
        self._csrf = StrictSigner(keys, salt=salt + "/csrf", **how)
        self._shared = ended
        #: Sessions that were logged out of, and when they would have ended.
        self._ended: dict[str, int] = {}
        #: Until the store was heard, sessions that began before may have been logged out of.
        self._unsure_before_s = now_s() if ended else 0.0
        #: Wrong tokens at the log-in and at /admin/.
        self.guesses = Throttle(now_s)
        #: And at /v1/, where programs with an old token must keep no operator out.
        self.guesses_of_programs = Throttle(now_s)

    @property
    def is_on(self) -> bool:
        """Whether there is an admin token to log in with."""
        return bool(self._token)

    def is_token(self, given: str) -> bool:
        """In constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self._token.encode()) and (
            self.is_on
        )

    def log_in(self, name: str) -> str:
        """The cookie's value."""
        ends_s = int(self._now_s()) + LIFETIME_S
        signed = self._cookies.dumps([name, secrets.token_urlsafe(16), ends_s])
        return signed if isinstance(signed, str) else signed.decode("ascii")

    def log_out(self, operator: Operator) -> None:
        """Ends the session at this replica, for any copy of the cookie; at the others
        when it is shared."""
        self._ended[operator.session] = operator.ends_s

    async def share(self) -> None:
        """Writes to the store what ended here and reads what ended elsewhere. Raises StoreError;
        what could not be written is written the next time."""
        if self._shared is not None:
            self._ended |= await self._shared.exchange(self._ended)
            self._unsure_before_s = 0.0
        now_s = self._now_s()
        self._ended = {s: ends_s for s, ends_s in self._ended.items() if ends_s > now_s}

    def read(self, cookie: str | None) -> Operator | None:
        """Whose session it is; None for whatever we did not sign, is over or was ended."""
        if not cookie or len(cookie) > MAX_LENGTH or not self.is_on:
            return None
        try:
            name, session, ends_s = self._cookies.loads(cookie)
            operator = Operator(str(name), str(session), int(ends_s))
        except (BadData, ValueError, TypeError):
            # A version before or after this one may have signed other fields.
            return None
        return None if self.is_over(operator) else operator

    def is_over(self, operator: Operator) -> bool:
        return (
            operator.ends_s <= self._now_s()
            or operator.session in self._ended
            or operator.ends_s - LIFETIME_S < int(self._unsure_before_s)
        )

    def wall(self, shown: str) -> str:
        """What the address of a display holds. A new admin token voids it."""
        signed = self._walls.dumps([shown, int(self._now_s()) + WALL_LIFETIME_S])
        return signed if isinstance(signed, str) else signed.decode("ascii")

    def read_wall(self, link: str) -> str | None:
        """What it shows; None for whatever we did not sign, or is over."""
        if len(link) > MAX_LENGTH or not self.is_on:
            return None
        try:
            shown, ends_s = self._walls.loads(link)
        except (BadData, ValueError, TypeError):
            return None
        return str(shown) if ends_s > self._now_s() else None

    def csrf(self, operator: Operator) -> str:
        """What the page sends along with every change: no other site's page can know it."""
        return self._csrf.get_signature(operator.session).decode("ascii")

    def is_csrf(self, operator: Operator, given: str) -> bool:
        return self._csrf.verify_signature(operator.session, given)


def clean_name(given: str) -> str:
    """What an operator calls themselves, fit for the log; "" when nothing is left."""
    return "".join(c for c in given if c.isprintable()).strip()[:NAME_LENGTH]
