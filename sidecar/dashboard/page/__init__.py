"""The dashboard's files, which lie beside this one, as responses.

They are not below static/: what is there, nginx shows to visitors.
"""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path

from aiohttp import web

_FOLDER = Path(__file__).resolve().parent
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with it browsers send Origin: null with a form.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def page() -> web.Response:
    return _respond("index.html")


def login(status: int = 200, note: str = "") -> web.Response:
    """The log-in form, with a word about what went wrong."""
    return _respond("login.html", status, note)


def off() -> web.Response:
    return _respond("off.html", 403)


def asset(name: str) -> web.Response | None:
    """None where there is no such file; a page is none."""
    found = _files().get(name)
    return None if found is None or name.endswith(".html") else _respond(name)


def _respond(name: str, status: int = 200, note: str = "") -> web.Response:
    kind = _TYPES[Path(name).suffix]
    return web.Response(
        status=status,
        text=_files()[name].replace("<!-- note -->", html.escape(note)),
        content_type=kind,
        charset="utf-8",
        headers=HEADERS,
    )


@cache
def _files() -> dict[str, str]:
    return {
        file.name: file.read_text(encoding="utf-8")
        for file in _FOLDER.iterdir()
        if file.suffix in _TYPES
    }
