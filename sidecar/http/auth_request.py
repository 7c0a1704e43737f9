"""Rules that all endpoints for nginx's auth_request share."""

from collections.abc import Mapping

import structlog
from aiohttp import web

from sidecar.kit.names import SEPARATOR

log = structlog.get_logger()


#: The most unknown names that are logged; each is a mistake in a proxy's configuration.
_MAX_LOGGED = 100

logged_once: set[tuple[str, str]] = set()


def original_method(headers: Mapping[str, str]) -> str:
    return headers.get("X-Original-Method") or headers.get("X-Forwarded-Method") or "GET"


def is_preflight(headers: Mapping[str, str], method: str) -> bool:
    """Return True for a CORS preflight. It has no cookie; the request after it is checked."""
    has_headers = "Access-Control-Request-Method" in headers and "Origin" in headers
    return method == "OPTIONS" and has_headers and "Cookie" not in headers


def close_if_body(request: web.Request, response: web.Response) -> web.Response:
    """Close the connection after a request with an unread body, which would be taken for the
    next."""
    if request.can_read_body:
        response.force_close()
    return response


def log_unknown(name: str, kind: str) -> None:
    """Log an unknown name once. Clients may choose the part after the separator."""
    shown = name[:64].encode("ascii", "backslashreplace").decode()
    about = kind, shown.partition(SEPARATOR)[0]
    if about not in logged_once and len(logged_once) < _MAX_LOGGED:
        logged_once.add(about)
        event = f"unknown_{kind}"
        hint = f"no {kind} of that name is configured; look at the name that the proxy sends"
        log.error(event, **{kind: shown}, hint=hint)
