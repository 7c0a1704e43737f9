"""Helpers for the endpoints that nginx's auth_request and other proxies ask about a request."""

from collections.abc import Mapping

import structlog
from aiohttp import web

from sidecar.kit.names import SEPARATOR

log = structlog.get_logger()

#: How many unknown names are logged. Each comes from a mistake in a proxy's configuration.
_MAX_LOGGED = 100
#: The unknown names that were logged, as pairs of kind and name.
logged_once: set[tuple[str, str]] = set()


def original_method(headers: Mapping[str, str]) -> str:
    """Return the method of the visitor's request about which the proxy asks."""
    return headers.get("X-Original-Method") or headers.get("X-Forwarded-Method") or "GET"


def is_preflight(headers: Mapping[str, str], method: str) -> bool:
    """Return True for a CORS preflight. A preflight has no cookie, unlike the request after it."""
    has_headers = "Access-Control-Request-Method" in headers and "Origin" in headers
    return method == "OPTIONS" and has_headers and "Cookie" not in headers


def close_if_body(request: web.Request, response: web.Response) -> web.Response:
    """Close the connection after this response if the request has an unread body. Otherwise the
    body would be parsed as the next request."""
    if request.can_read_body:
        response.force_close()
    return response


def log_unknown(name: str, kind: str) -> None:
    """Log an unknown name once. Ignore what follows SEPARATOR, which clients can choose."""
    printable = name[:64].encode("ascii", "backslashreplace").decode()
    key = kind, printable.partition(SEPARATOR)[0]
    if key not in logged_once and len(logged_once) < _MAX_LOGGED:
        logged_once.add(key)
        event = f"unknown_{kind}"
        hint = f"no {kind} of that name is configured; look at the name that the proxy sends"
        log.error(event, **{kind: printable}, hint=hint)
