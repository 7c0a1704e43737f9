"""Permits: signed texts with which the client of an online job may call its target, once.

A permit is `target~job~fence~expires` and `.signature`, made by itsdangerous' Signer
(HMAC-SHA-256; the key is derived per target, so a permit of one target is none of another's).
`fence` is the number of the call that it is for, `expires` when it ends, ms since 1970 by the
clock of Redis. It is made of letters, digits and `- _ ~ .`, which neither an address nor a header
changes. Redis sees to it that it is used once.

Keys are listed oldest to newest: the last signs, all verify.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from itsdangerous import BadSignature

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import ConfigError, WaitroomError
from sidecar.kit.signing import StrictSigner

#: A longer text was not signed by us, and is not read.
MAX_LENGTH = 512

_FIELDS = (
    r"([a-z0-9][a-z0-9_-]{0,47})~([A-Za-z0-9_-]{1,64})~(0|[1-9][0-9]{0,18})~([1-9][0-9]{0,15})"
)
_CONTENT = re.compile(_FIELDS, re.ASCII)
_PERMIT = re.compile(_FIELDS + r"\.[A-Za-z0-9_-]{43}", re.ASCII)

#: Why a permit is not accepted.
Doubt: TypeAlias = Literal["forged", "expired", "malformed"]


class PermitError(WaitroomError):
    """A permit that is not accepted."""

    def __init__(self, reason: Doubt) -> None:
        super().__init__(f"the permit is {reason}")
        self.reason: Doubt = reason


@dataclass(frozen=True, slots=True)
class Permit:
    target: str
    job: str
    #: Of the call that it is for: a job that is called again has a greater one.
    fence: int
    #: ms since 1970: from then on it cannot be used.
    expires_ms: int


class Permits:
    """The permits of one target."""

    def __init__(self, target: str, keys: list[str], clock: StoreClock) -> None:
        self._target = target
        self._clock = clock
        self._signer = StrictSigner(
            keys,
            salt=f"waitroom/permit/{target}",
            key_derivation="hmac",
            digest_method=hashlib.sha256,
        )

    def write(self, job: str, fence: int, expires_ms: int) -> str:
        """Raises ConfigError for what no permit can name."""
        content = f"{self._target}~{job}~{fence}~{expires_ms}"
        if not _CONTENT.fullmatch(content):
            raise ConfigError([f"{content[:150]!r} can be no permit"])
        return self._signer.sign(content).decode("ascii")

    def check_time(self, permit: Permit) -> None:
        """Raises PermitError where it has expired."""
        if self._clock.now_ms() >= permit.expires_ms:
            raise PermitError("expired")

    def verify(self, text: str) -> Permit:
        """A permit that we signed, also when it has expired. Raises PermitError."""
        match = _PERMIT.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None:
            raise PermitError("malformed")
        try:
            self._signer.unsign(text)
        except BadSignature:
            raise PermitError("forged") from None
        target, job, fence, expires_ms = match.groups()
        if target != self._target:  # the key says so too
            raise PermitError("forged")
        return Permit(target, job, int(fence), int(expires_ms))


def target_of(text: str) -> str:
    """The target that a permit names, signed or not; "" if it is malformed."""
    match = _PERMIT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    return match[1] if match else ""
