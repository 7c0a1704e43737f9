"""The files of page/ as responses.

They are not below static/, which nginx serves to visitors. index.html has the parts that all views
share, and each view-*.html has one view.
"""

import html
from functools import cache
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).resolve().with_name("page")
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers send Origin: null with a form.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


STREAM = {
    **HEADERS,
    "Content-Type": "text/event-stream; charset=utf-8",
    "X-Accel-Buffering": "no",  # an nginx in front passes each event on at once
}


def respond(name: str, status: int = 200, **texts: str) -> web.Response:
    """Return a file as a response, with `texts` in place of the comments of these names."""
    page = load()[name]
    for comment, text in texts.items():
        page = page.replace(f"<!-- {comment} -->", html.escape(text))
    return web.Response(
        status=status,
        text=page,
        content_type=_TYPES[Path(name).suffix],
        charset="utf-8",
        headers=HEADERS,
    )


@cache
def load() -> dict[str, str]:
    files = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(FOLDER.iterdir())
        if file.suffix in _TYPES
    }
    views = "".join(text for name, text in files.items() if name.startswith("view-"))
    files["index.html"] = files["index.html"].replace("<!-- views -->\n", views)
    return files
