"""One cookie's value out of a header, and whether one is for https alone."""

from collections.abc import Mapping


def secure(headers: Mapping[str, str]) -> str:
    """The attribute of a cookie whose client came by https. Schemes are written in any case, and
    of several proxies each may add its own: the first is the client's."""
    scheme = headers.get("X-Forwarded-Proto", "").partition(",")[0]
    return "; Secure" if scheme.strip().lower() == "https" else ""


def cookie_value(header: str | None, name: str) -> str | None:
    """One cookie's value out of a Cookie header; the first one that has the name."""
    return next(iter(cookie_values(header, name)), None)


def cookie_values(header: str | None, name: str) -> list[str]:
    """The values of all cookies of one name: a browser sends those of other paths and of parent
    domains, too.

    Reading them by hand is several times cheaper than parsing all cookies, and no other cookie's
    oddity can spoil it.
    """
    found: list[str] = []
    if not header or name not in header:
        return found
    for pair in header.split(";"):
        key, equals, value = pair.partition("=")
        if equals and key.strip() == name:
            found.append(value.strip().strip('"'))
    return found
