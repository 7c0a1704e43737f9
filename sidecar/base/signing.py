"""Signers of which exactly one spelling of a signature is valid.

itsdangerous decodes base64 leniently: it takes any spare bits in the last character and skips what
is not of the alphabet. Each spelling would be a cache key of its own, for nginx's verdicts and for
the replicas' memory.
"""

from __future__ import annotations

from itsdangerous import Signer, TimestampSigner
from itsdangerous.encoding import base64_decode, base64_encode, want_bytes
from itsdangerous.exc import BadData


class StrictSigner(Signer):
    """Takes a signature only as it writes it."""

    def verify_signature(self, value: str | bytes, sig: str | bytes) -> bool:
        try:
            given = want_bytes(sig)
            is_ours = base64_encode(base64_decode(given)) == given
        except (BadData, ValueError):  # text that has no UTF-8
            return False
        return is_ours and super().verify_signature(value, sig)


class StrictTimestampSigner(StrictSigner, TimestampSigner):
    """The same, with the time of signing."""
