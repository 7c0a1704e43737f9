"""One cookie's value out of a header, and whether one is for https alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def secure(headers: Mapping[str, str]) -> str:
    """The attribute of a cookie whose client came by https. Schemes are written in any case, and
    of several proxies each may add its own: the first is the client's."""
    scheme = headers.get("X-Forwarded-Proto", "").partition(",")[0]
    return "; Secure" if scheme.strip().lower() == "https" else ""


def cookie_value(header: str | None, name: str) -> str | None:
    """One cookie's value out of a Cookie header; the first one that has the name.

    Reading the one by hand is several times cheaper than parsing all of them, and no
    other cookie's oddity can spoil it.
    """
    if not header or name not in header:
        return None
    for pair in header.split(";"):
        key, equals, value = pair.partition("=")
        if equals and key.strip() == name:
            return value.strip().strip('"')
    return None
