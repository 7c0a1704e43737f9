"""Reads the request header Idempotency-Key, of draft-ietf-httpapi-idempotency-key-header."""

import re

from multidict import MultiMapping

from sidecar.kit.errors import InputError

HEADER = "Idempotency-Key"
#: A string of structured fields (RFC 9651), which the draft wants. Many clients send a plain key.
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
#: How many characters of a key an error message repeats.
_MAX_SHOWN = 40


def read_idempotency_key(
    headers: MultiMapping[str],
    in_body: str | None,
    *,
    member: str,
    pattern: re.Pattern[str] | str,
    hint: str,
) -> str | None:
    """Return the key of a request, from its header or from this member of its body, or None.

    Raises InputError if the header does not match the pattern, of which `hint` is the description,
    and if the body has another key."""
    if HEADER not in headers:
        return in_body
    keys = headers.getall(HEADER)
    if len(keys) > 1:
        raise InputError([f"{HEADER}: is there twice"])
    key = keys[0].strip(" \t")
    if key.startswith('"'):
        string = _STRING.fullmatch(key)
        key = re.sub(r"\\(.)", r"\1", string[1]) if string else ""
    if not re.fullmatch(pattern, key):
        raise InputError([f"{HEADER}: {hint} (got {keys[0][:_MAX_SHOWN]!r})"])
    if in_body is not None and in_body != key:
        shown = f"{in_body[:_MAX_SHOWN]!r}, and the header {HEADER} is {key[:_MAX_SHOWN]!r}"
        raise InputError([f"{member}: {shown}"])
    return key
