"""Finds who sent a request to the dashboard or the API, and prevents cross-site requests (CSRF)."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from aiohttp import web

from sidecar.http.auth.operators import COOKIE, Operator, Operators, clean_name
from sidecar.http.auth.rights import Role, covers
from sidecar.http.cookies import cookie_value
from sidecar.http.problem_kinds import CSRF_WRONG, FOREIGN_SITE
from sidecar.http.problems import problem

OPERATORS = web.AppKey("operators", Operators)
CSRF_HEADER = "X-Waitroom-CSRF"
#: The HTTP methods of requests that change nothing.
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}


def find_operator(request: web.Request) -> Operator | None:
    """Return the operator whom the proxy has signed in, else the operator of the session's cookie,
    or None if there is neither."""
    operators = request.app[OPERATORS]
    signed_in = operators.from_proxy(request.headers, request.remote)
    return signed_in or operators.read(cookie_value(request.headers.get("Cookie"), COOKIE))


def check_origin(request: web.Request, operator: Operator) -> web.Response | None:
    """Return a problem if a request with a session's cookie may come from another site, else None.
    A change needs a CSRF token too, because browsers may send the cookie from another site."""
    if not is_same_origin(request.headers):
        return problem(FOREIGN_SITE, detail="The session's cookie is for the dashboard")
    token = request.headers.get(CSRF_HEADER, "")
    if request.method in _SAFE_METHODS or request.app[OPERATORS].is_csrf_token(operator, token):
        return None
    return problem(CSRF_WRONG, detail=f"Send {CSRF_HEADER}, or the token as bearer.")


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return False if the headers show that a page of another origin sent the request.

    Sec-Fetch-Site is reliable behind a proxy too, but browsers send it only over https and to
    localhost. Without this header, compare Origin with Host.
    """
    if (site := headers.get("Sec-Fetch-Site")) is not None:
        return site in {"same-origin", "none"}
    try:
        return urlsplit(headers["Origin"]).netloc == headers.get("Host")
    except KeyError:
        return True
    except ValueError:
        return False


def has_role(request: web.Request, needed: Role) -> bool:
    """Return True if the sender of an authorised request has the admin token, or a session with at
    least the needed role."""
    operator = find_session_operator(request)
    return operator is None or covers(operator.role, needed)


def find_session_operator(request: web.Request) -> Operator | None:
    """Return the session's operator, or None if the request has a token, which takes precedence."""
    return None if "Authorization" in request.headers else find_operator(request)


def find_logged_name(request: web.Request) -> str:
    """Return the name under which an operator's change is logged: the name of the session's
    operator, else the one in X-Waitroom-Operator, else "api". A client with the admin token may
    send any name. If an account has that name, add a suffix."""
    if operator := find_session_operator(request):
        return operator.name
    name = clean_name(request.headers.get("X-Waitroom-Operator", "")) or "api"
    return f"{name} (admin_token)" if request.app[OPERATORS].accounts.is_taken(name) else name
