"""Creates responses with HTML pages for visitors."""

from collections.abc import Mapping

from aiohttp import web

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def make_page_response(text: str, headers: Mapping[str, str], *, status: int = 200) -> web.Response:
    """Return a response with a page that must not be cached. `headers` replace or extend the usual
    headers."""
    usual = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Referrer-Policy": "same-origin",
    }
    response = web.Response(text=text, status=status, content_type="text/html", charset="utf-8")
    response.headers.update({**usual, **headers})
    return response
