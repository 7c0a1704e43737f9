"""A visitor's id in short: what somebody can read out on the telephone."""

from __future__ import annotations

from base64 import urlsafe_b64decode

#: Crockford's base32: no I, L, O, U.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def visitor_number(visitor: str) -> str:
    """The first 40 bits of the id, such as 7K2Q-9XDM (static/waiting.js has the same rule)."""
    bits = int.from_bytes(urlsafe_b64decode(visitor[:8])[:5])
    digits = "".join(_DIGITS[bits >> shift & 31] for shift in range(35, -5, -5))
    return f"{digits[:4]}-{digits[4:]}"
