"""Reads cookies by name, and decides whether new cookies get the attribute Secure."""

from collections.abc import Mapping


def secure_flag(headers: Mapping[str, str]) -> str:
    """Return "; Secure" if the client uses https, else "". If several proxies have added a scheme
    to X-Forwarded-Proto, the first scheme is the client's."""
    scheme = headers.get("X-Forwarded-Proto", "").partition(",")[0]
    return "; Secure" if scheme.strip().lower() == "https" else ""


def cookie_value(header: str | None, name: str) -> str | None:
    """Return the value of the first cookie with this name, or None."""
    return next(iter(cookie_values(header, name)), None)


def cookie_values(header: str | None, name: str) -> list[str]:
    """Return the values of all cookies with this name, because each path and domain may have one.
    This is several times faster than parsing all cookies. Malformed cookies are ignored."""
    if not header or name not in header:
        return []
    pairs = (pair.partition("=") for pair in header.split(";"))
    return [
        value.strip().strip('"') for key, equals, value in pairs if equals and key.strip() == name
    ]
