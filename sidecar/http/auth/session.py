"""Which operator's session a request comes with, and whether it may."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from aiohttp import web

from sidecar.http.app_keys import OPERATORS
from sidecar.http.auth.operators import COOKIE, Operator, clean_name
from sidecar.http.auth.rights import Role, covers
from sidecar.http.cookies import cookie_value
from sidecar.http.problem_kinds import CSRF_WRONG, FOREIGN_SITE
from sidecar.http.problems import problem

CSRF_HEADER = "X-Waitroom-CSRF"
_SAFE = {"GET", "HEAD", "OPTIONS"}


def operator_of(request: web.Request) -> Operator | None:
    """The operator whom the proxy in front has signed in, or else the request's cookie names."""
    operators = request.app[OPERATORS]
    signed_in = operators.from_proxy(request.headers, request.remote)
    return signed_in or operators.read(cookie_value(request.headers.get("Cookie"), COOKIE))


def refusal(request: web.Request, operator: Operator) -> web.Response | None:
    """Why a request that comes with the session's cookie is not the dashboard's own; None when it
    may be. The cookie alone changes nothing: a browser sends it with any site's request."""
    if not is_same_origin(request.headers):
        return problem(FOREIGN_SITE, detail="The session's cookie is for the dashboard")
    if request.method in _SAFE:
        return None
    if request.app[OPERATORS].is_csrf(operator, request.headers.get(CSRF_HEADER, "")):
        return None
    return problem(CSRF_WRONG, detail=f"Send {CSRF_HEADER}, or the token as bearer.")


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether the browser says that a page of this very origin sent the request, or says nothing.

    Sec-Fetch-Site is right behind a proxy too, but is sent only over https and to localhost.
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
    """Whether the caller, whom the endpoint lets in, has this role: the admin token has each."""
    who = _by_session(request)
    return who is None or covers(who.role, needed)


def operator(request: web.Request) -> str:
    """The operator's name, for the log: of the session, or as a client with the token gives it."""
    if who := _by_session(request):
        return who.name
    name = clean_name(request.headers.get("X-Waitroom-Operator", "")) or "api"
    # With the token anyone can give any name, but not that of an account.
    return f"{name} (admin_token)" if request.app[OPERATORS].accounts.is_taken(name) else name


def _by_session(request: web.Request) -> Operator | None:
    """None: by a token, which comes before a session."""
    return None if "Authorization" in request.headers else operator_of(request)
