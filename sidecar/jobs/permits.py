"""Signs and verifies permits. A permit is a string with which the client of an online job may call
the job's target once.

A permit has the form `target~job~fence~expires.signature`. `fence` is the number of the call.
`expires` is when the permit expires, in ms since 1970 by the clock of Redis. itsdangerous signs it
(HMAC-SHA-256) with a key that is derived for each target, so a permit is valid for one target only.
A permit needs no encoding in URLs and headers. Redis ensures that it is used only once."""

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from itsdangerous import BadSignature

from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import InputError, SidecarError
from sidecar.kit.signing import StrictSigner

#: The length of the longest permit, in characters.
MAX_LENGTH = 512

_FIELDS = (
    r"([a-z0-9][a-z0-9_-]{0,47})~([A-Za-z0-9_-]{1,64})~(0|[1-9][0-9]{0,18})~([1-9][0-9]{0,15})"
)
_CONTENT = re.compile(_FIELDS, re.ASCII)
_PERMIT = re.compile(_FIELDS + r"\.[A-Za-z0-9_-]{43}", re.ASCII)


class PermitError(SidecarError):
    """A permit is not valid. `reason` says why."""

    def __init__(self, reason: Literal["forged", "expired", "malformed"]) -> None:
        super().__init__(f"the permit is {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Permit:
    target: str
    job: str
    #: The number of the call, which grows with each call of the job.
    fence: int
    expires_ms: int


class Permits:
    """Signs and verifies the permits of one target. `keys` are the signing keys, the newest last.
    The newest signs new permits. A permit signed with any of them is valid."""

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
        """Return a signed permit. Raises InputError if a permit cannot contain these values."""
        content = f"{self._target}~{job}~{fence}~{expires_ms}"
        if not _CONTENT.fullmatch(content):
            raise InputError([f"{content[:150]!r} can be no permit"])
        return self._signer.sign(content).decode("ascii")

    def raise_if_expired(self, permit: Permit) -> None:
        if self._clock.now_ms() >= permit.expires_ms:
            raise PermitError("expired")

    def verify(self, text: str) -> Permit:
        """Verify a permit's signature, not its expiry. Return its content. Raises PermitError."""
        match = _PERMIT.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None:
            raise PermitError("malformed")
        try:
            self._signer.unsign(text)
        except BadSignature:
            raise PermitError("forged") from None
        target, job, fence, expires_ms = match.groups()
        if target != self._target:  # cannot happen: each target has its own signing key
            raise PermitError("forged")
        return Permit(target, job, int(fence), int(expires_ms))


def parse_target(text: str) -> str:
    """Return the target that an unverified permit names, or "" if the permit is malformed."""
    match = _PERMIT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    return match[1] if match else ""
