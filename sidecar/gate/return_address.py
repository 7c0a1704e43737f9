"""`next`: the address on the site where a visitor goes on to, and what may not be one."""

import re
from urllib.parse import parse_qs, quote, unquote

from aiohttp import web

from sidecar.gate.visitor_request import VisitorRequest

#: Of this site, as a browser reads it: to one, a backslash in the path is a slash. No spaces, no
#: control characters, and no bytes of a header that are no UTF-8, which could not be said again.
_PATH_AND_QUERY = re.compile(
    r"/(?!/)[^?\\\x00-\x20\x7f\ud800-\udfff]*(?:\?[^\x00-\x20\x7f\ud800-\udfff]*)?"
)
#: Stands before `next` in the page's own address if what its visitor sent has not arrived. As
#: `$waitroom_join` in nginx.
UNSENT = "unsent=1&"


def safe_next(value: str) -> str:
    """Return the path if it is one of this site, and else "/". As in static/waiting.js."""
    return value if _PATH_AND_QUERY.fullmatch(value) else "/"


def next_in_query(request: web.Request) -> str:
    """Return `next`. It is the last parameter and goes to the end: nginx cannot encode it."""
    return safe_next(request.rel_url.raw_query_string.partition("next=")[2])


def next_of_link(request: web.Request) -> str:
    """Return `next` of a link that a site has made. It goes to the end, encoded or not."""
    value = request.rel_url.raw_query_string.partition("next=")[2]
    if value[:3].lower() == "%2f":
        return quote(safe_next(unquote(value)), safe="/?#[]@!$&'()*+,;=:~%")
    return safe_next(value)


async def next_in_form(request: web.Request) -> str:
    """Return `next` of the page's own form and no other kind: urlencoded, in UTF-8."""
    if request.content_type != "application/x-www-form-urlencoded":
        return "/"
    try:
        text = (await request.read()).decode(errors="replace")
        fields = parse_qs(text, keep_blank_values=True)
    except (ValueError, web.HTTPException):
        return "/"
    return safe_next(fields.get("next", ["/"])[0])


def is_unsent(method: str) -> bool:
    """Return whether the visitor sent something, which has not arrived. The page never requests
    the address of such a request by GET. As `$waitroom_unsent` in nginx."""
    return method not in {"", "GET", "HEAD"}


def sent_from(visitor_request: VisitorRequest) -> str:
    """Return the path of the page with the form, by Referer, or "/" if the page is not of this
    site. As `$waitroom_sent_from` in nginx."""
    host, _, path = visitor_request.referer.partition("://")[2].partition("/")
    return safe_next(f"/{path}") if host and host == visitor_request.host else "/"
