"""Serves the files in page/.

index.html has the parts that all views share, and each view-*.html has one view. The files are not
in static/, because nginx serves that folder to visitors.
"""

import html
from functools import cache
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).resolve().with_name("page")
#: The media types of the files, by suffix.
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
#: The headers of all responses of the dashboard.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # With no-referrer browsers would send Origin: null with a form.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: The headers of a stream of server-sent events.
STREAM_HEADERS = {
    **HEADERS,
    "Content-Type": "text/event-stream; charset=utf-8",
    "X-Accel-Buffering": "no",  # an nginx in front must not delay events
}


def build_response(name: str, status: int = 200, /, **texts: str) -> web.Response:
    """Return a response with a file. Each of `texts` replaces the HTML comment with its name."""
    page = load_files()[name]
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
def load_files() -> dict[str, str]:
    """Return the text of each file, by name."""
    files = {
        file.name: file.read_text(encoding="utf-8")
        for file in sorted(FOLDER.iterdir())
        if file.suffix in _TYPES
    }
    views = "".join(text for name, text in files.items() if name.startswith("view-"))
    files["index.html"] = files["index.html"].replace("<!-- views -->\n", views)
    return files
