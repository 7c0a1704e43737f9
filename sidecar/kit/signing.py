"""Signers of which exactly one spelling of a signature is valid.

itsdangerous decodes base64 leniently: it takes any spare bits in the last character and skips what
is not of the alphabet. Each spelling would be a cache key of its own, for nginx's verdicts and for
the replicas' memory.
"""

import hashlib
import hmac
from binascii import a2b_base64, b2a_base64
from functools import lru_cache

from itsdangerous import BadSignature, Signer
from itsdangerous.encoding import base64_decode, base64_encode, want_bytes
from itsdangerous.exc import BadData

MIN_WEBHOOK_SECRET_LENGTH = 16


#: From the letters of base64 to those that an address may hold, and back.
SAFE = bytes.maketrans(b"+/", b"-_")
_USUAL = bytes.maketrans(b"-_", b"+/")


class StrictSigner(Signer):
    """Takes a signature only as it writes it."""

    def verify_signature(self, value: str | bytes, sig: str | bytes) -> bool:
        try:
            given = want_bytes(sig)
            is_ours = base64_encode(base64_decode(given)) == given
        except (BadData, ValueError):  # text that has no UTF-8
            return False
        return is_ours and super().verify_signature(value, sig)


class TimeSigner:
    """Text with the time of signing, `text.time.signature`: what itsdangerous' TimestampSigner
    makes of it with SHA-256 and `key_derivation="hmac"`, for a fifth of the time. Each request is
    signed or verified: so keys are derived once, and all of HMAC is done in C.

    Keys are listed oldest to newest: the last signs, all verify.
    """

    def __init__(self, keys: list[str], *, salt: str) -> None:
        self.keys = [hmac.digest(key.encode(), salt.encode(), "sha256") for key in keys]
        self._macs = [_Mac(key) for key in self.keys]

    def sign(self, text: str, now_s: int) -> str:
        said = f"{text}.{_written(now_s)}"
        return f"{said}.{_signature(self._macs[-1], said.encode('ascii')).decode('ascii')}"

    def unsign(self, text: str) -> tuple[str, int]:
        """What was signed, and when, unix seconds. Raises BadSignature or ValueError for whatever
        we did not sign."""
        said, _, given = text.encode("ascii").rpartition(b".")
        # Compared as it is written, so that no other spelling is valid; the newest key first.
        for mac in reversed(self._macs):
            if hmac.compare_digest(_signature(mac, said), given):
                break
        else:
            raise BadSignature("signed by somebody else, or not at all")
        value, _, time = said.rpartition(b".")
        return value.decode("ascii"), _read(time)


class _Mac:
    """HMAC-SHA-256 by a key that is taken in once (RFC 2104), for half the time."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        """`key`: a block of SHA-256 at most, 64 bytes."""
        padded = key.ljust(64, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def digest(self, said: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(said)
        outer.update(inner.digest())
        return outer.digest()


def _signature(mac: _Mac, said: bytes) -> bytes:
    written = b2a_base64(mac.digest(said), newline=False)
    return written.translate(SAFE)[:-1]  # of 32 bytes there is one = at the end


@lru_cache(64)
def _written(seconds: int) -> str:
    """Most signatures of a moment are of the same second."""
    number = seconds.to_bytes(8, "big").lstrip(b"\0")
    return b2a_base64(number, newline=False).translate(SAFE).rstrip(b"=").decode("ascii")


def _read(time: bytes) -> int:
    padded = time.translate(_USUAL) + b"=" * (-len(time) % 4)
    return int.from_bytes(a2b_base64(padded), "big")


def signature(secret: str, body: bytes, now_s: int) -> str:
    """For X-Waitroom-Signature. The time is signed too, so that an old message is known as one."""
    signed = f"{now_s}.".encode() + body
    return f"t={now_s},v1={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"
