"""Where the waiting page leads on entry."""

import re
from collections.abc import Mapping

#: Of this site, as a browser reads it: to one, a backslash in the path is a slash. No spaces, no
#: control characters, and no bytes of a header that are no UTF-8, which could not be said again.
_PATH_AND_QUERY = re.compile(
    r"/(?!/)[^?\\\x00-\x20\x7f\ud800-\udfff]*(?:\?[^\x00-\x20\x7f\ud800-\udfff]*)?"
)


#: Of the page's own address, before `next`: what its visitor sent has not arrived. As
#: `$waitroom_join` in nginx.
UNSENT = "unsent=1&"


def safe_next(value: str) -> str:
    """A path on this site, or "/" for whatever could lead elsewhere. As in static/waiting.js."""
    return value if _PATH_AND_QUERY.fullmatch(value) else "/"


def is_unsent(method: str) -> bool:
    """Return whether the visitor sent something, which has not arrived. The page never requests
    the address of such a request by GET. As `$waitroom_unsent` in nginx."""
    return method not in {"", "GET", "HEAD"}


def sent_from(headers: Mapping[str, str]) -> str:
    """Return the path of the page with the form, by Referer, or "/" if the page is not of this
    site. As `$waitroom_sent_from` in nginx."""
    host, _, path = headers.get("Referer", "").partition("://")[2].partition("/")
    return safe_next(f"/{path}") if host and host == own_host(headers) else "/"


def own_host(headers: Mapping[str, str]) -> str:
    """Return the host name and port that the visitor requested, as the proxy passes them on."""
    return headers.get("X-Forwarded-Host") or headers.get("Host", "")
