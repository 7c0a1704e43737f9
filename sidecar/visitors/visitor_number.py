"""Converts visitor ids to visitor numbers, a short form to read out on the telephone."""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

#: The digits of Crockford's base32, which has no I, L, O and U.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: A regular expression for a number as people may write it: in lower or upper case, with or without
#: the hyphen, with I or L for 1, and with O for 0.
NUMBER = "[0-9A-TV-Za-tv-z]{4}-?[0-9A-TV-Za-tv-z]{4}"
_LOOK_ALIKES = str.maketrans("ILO", "110", "-")


def visitor_number(visitor: str) -> str:
    """Return an id's first 40 bits, written like 7K2Q-9XDM. static/waiting.js has the same code."""
    bits = int.from_bytes(urlsafe_b64decode(visitor[:8])[:5])
    digits = "".join(_DIGITS[bits >> shift & 31] for shift in range(35, -5, -5))
    return f"{digits[:4]}-{digits[4:]}"


def read_number(text: str) -> str | None:
    """Parse a number as people may write it. Return it as visitor_number() does, or None."""
    if not re.fullmatch(NUMBER, text):
        return None
    digits = text.upper().translate(_LOOK_ALIKES)
    return f"{digits[:4]}-{digits[4:]}"


def get_id_prefix(number: str) -> str:
    """Return the first 6 characters of every id that has this number: 36 of its 40 bits."""
    bits = 0
    for digit in number.replace("-", ""):
        bits = bits << 5 | _DIGITS.index(digit)
    return urlsafe_b64encode(bits.to_bytes(5))[:6].decode("ascii")
