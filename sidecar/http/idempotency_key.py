"""Reads the request header Idempotency-Key, of draft-ietf-httpapi-idempotency-key-header."""

import re

from multidict import MultiMapping

from sidecar.kit.errors import InputError

HEADER = "Idempotency-Key"
#: A quoted string (RFC 9651), which the draft requires. Many clients send the key without quotes.
_STRING = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
#: How many characters of a key an error message repeats.
_MAX_SHOWN = 40


def read_idempotency_key(
    headers: MultiMapping[str],
    body_key: str | None,
    *,
    member: str,
    pattern: re.Pattern[str] | str,
    hint: str,
) -> str | None:
    """Return a request's idempotency key from its header, else `body_key`, which is the value of
    `member` in the body or None. Raises InputError if the header does not match `pattern`, which
    `hint` describes, or if the header and the body have different keys."""
    if HEADER not in headers:
        return body_key
    keys = headers.getall(HEADER)
    if len(keys) > 1:
        raise InputError([f"{HEADER}: is there twice"])
    key = keys[0].strip(" \t")
    if key.startswith('"'):
        string = _STRING.fullmatch(key)
        key = re.sub(r"\\(.)", r"\1", string[1]) if string else ""
    if not re.fullmatch(pattern, key):
        raise InputError([f"{HEADER}: {hint} (got {keys[0][:_MAX_SHOWN]!r})"])
    if body_key is not None and body_key != key:
        difference = f"{body_key[:_MAX_SHOWN]!r}, and the header {HEADER} is {key[:_MAX_SHOWN]!r}"
        raise InputError([f"{member}: {difference}"])
    return key
