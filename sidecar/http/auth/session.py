"""The operator of a request to the dashboard or the API, and the checks against other sites."""

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
_SAFE = {"GET", "HEAD", "OPTIONS"}


def operator_of(request: web.Request) -> Operator | None:
    """Return the operator whom the proxy has signed in, else the one of the cookie, or None."""
    operators = request.app[OPERATORS]
    signed_in = operators.from_proxy(request.headers, request.remote)
    return signed_in or operators.read(cookie_value(request.headers.get("Cookie"), COOKIE))


def refusal(request: web.Request, operator: Operator) -> web.Response | None:
    """Return a problem if a request with a session's cookie may come from another site, else None.
    A change needs the CSRF token too, because a browser may send the cookie for another site."""
    if not is_same_origin(request.headers):
        return problem(FOREIGN_SITE, detail="The session's cookie is for the dashboard")
    if request.method in _SAFE:
        return None
    if request.app[OPERATORS].is_csrf(operator, request.headers.get(CSRF_HEADER, "")):
        return None
    return problem(CSRF_WRONG, detail=f"Send {CSRF_HEADER}, or the token as bearer.")


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return False if the browser says that a page of another origin sent the request.

    Sec-Fetch-Site is right behind a proxy too, but sent only over https and to localhost.
    """
    site = headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("Origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc == headers.get("Host")
    except ValueError:
        return False


def has_role(request: web.Request, needed: Role) -> bool:
    """Return True if an authorised request has this role or a higher one, or the admin token."""
    session_operator = _session_operator(request)
    return session_operator is None or covers(session_operator.role, needed)


def operator(request: web.Request) -> str:
    """Return the operator's name for the log, from the session or from X-Waitroom-Operator."""
    if session_operator := _session_operator(request):
        return session_operator.name
    name = clean_name(request.headers.get("X-Waitroom-Operator", "")) or "api"
    # A client with the admin token may send any name, so an account's name gets a mark.
    return f"{name} (admin_token)" if request.app[OPERATORS].accounts.is_taken(name) else name


def _session_operator(request: web.Request) -> Operator | None:
    """Return the session's operator, or None if the request has a token, which takes precedence."""
    return None if "Authorization" in request.headers else operator_of(request)
