"""Reads and validates `next`: the URL on the site that a visitor goes to after admission."""

import re
from urllib.parse import parse_qs, quote, unquote

from aiohttp import web

from sidecar.gate.visitor_request import VisitorRequest

#: A URL on this site, without scheme and host. It must not contain backslashes in the path, because
#: browsers read them as slashes, nor spaces, control characters, or bytes that are not UTF-8.
_PATH_AND_QUERY = re.compile(
    r"/(?!/)[^?\\\x00-\x20\x7f\ud800-\udfff]*(?:\?[^\x00-\x20\x7f\ud800-\udfff]*)?"
)
#: The query parameter that precedes `next` if the visitor sent data, such as a form, that did not
#: arrive at the site (`$waitroom_join` in nginx).
UNSENT_PARAMETER = "unsent=1&"


def make_next_safe(value: str) -> str:
    """Return the URL if it is on this site, and otherwise "/" (as in static/waiting.js)."""
    return value if _PATH_AND_QUERY.fullmatch(value) else "/"


def read_next_in_query(request: web.Request) -> str:
    """Return `next`, which is the rest of the query, because nginx cannot encode its value."""
    return make_next_safe(request.rel_url.raw_query_string.partition("next=")[2])


def read_next_of_link(request: web.Request) -> str:
    """Return `next` of a link that the site made: the rest of the query, encoded or not."""
    value = request.rel_url.raw_query_string.partition("next=")[2]
    if value[:3].lower() == "%2f":
        return quote(make_next_safe(unquote(value)), safe="/?#[]@!$&'()*+,;=:~%")
    return make_next_safe(value)


async def read_next_in_form(request: web.Request) -> str:
    """Return `next` of the page's form, which is urlencoded in UTF-8; "/" for other content."""
    if request.content_type != "application/x-www-form-urlencoded":
        return "/"
    try:
        text = (await request.read()).decode(errors="replace")
        fields = parse_qs(text, keep_blank_values=True)
    except (ValueError, web.HTTPException):
        return "/"
    return make_next_safe(fields.get("next", ["/"])[0])


def sends_data(method: str) -> bool:
    """Return True if requests with this method send data. It does not reach the site while the
    visitor waits, and the waiting page never repeats such a request by GET. `$waitroom_unsent` in
    nginx's files says the same."""
    return method not in {"", "GET", "HEAD"}


def find_form_page(visitor_request: VisitorRequest) -> str:
    """Return the URL of the page that sent the data, from Referer, or "/" for another site.
    nginx has the same rule in `$waitroom_sent_from`."""
    host, _, path = visitor_request.headers.get("Referer", "").partition("://")[2].partition("/")
    return make_next_safe(f"/{path}") if host and host == visitor_request.host else "/"
