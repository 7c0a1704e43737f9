"""The way in to the dashboard, and who of those who ask has gone it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import structlog
from aiohttp import web

from sidecar.base.errors import StoreError
from sidecar.base.tokens import cookie_value
from sidecar.web import desk
from sidecar.web.cookies import secure
from sidecar.web.keys import OPERATORS
from sidecar.web.operators import COOKIE, LIFETIME_S, clean_name
from sidecar.web.problems import problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.web.operators import Operator

CSRF_HEADER = "X-Waitroom-CSRF"
_SAFE = {"GET", "HEAD", "OPTIONS"}

log = structlog.get_logger()


def operator_of(request: web.Request) -> Operator | None:
    """Whoever the request's cookie says is logged in."""
    cookie = cookie_value(request.headers.get("Cookie"), COOKIE)
    return request.app[OPERATORS].read(cookie)


def refusal(request: web.Request, operator: Operator) -> web.Response | None:
    """Why a request that comes with the session's cookie is not the dashboard's own; None when it
    may be. The cookie alone changes nothing: a browser sends it whoever made the request."""
    if not is_same_origin(request.headers):
        return problem(403, "From another site", detail="The session's cookie is for the dashboard")
    if request.method in _SAFE:
        return None
    if request.app[OPERATORS].is_csrf(operator, request.headers.get(CSRF_HEADER, "")):
        return None
    return problem(
        403, "Not from the dashboard", detail=f"Send {CSRF_HEADER}, or the token as bearer."
    )


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


async def log_in(request: web.Request) -> web.Response:
    """The form of login.html: the admin token, and a name for the log."""
    operators = request.app[OPERATORS]
    if not operators.is_on:
        return desk.off()
    if not is_same_origin(request.headers):
        return desk.login(403, "The form came from another site. Log in here.")
    refused_s = operators.guesses.refused_s(request.remote)
    if refused_s:
        response = desk.login(
            429, f"Too many wrong tokens came from your address. Try again in {refused_s} s."
        )
        response.headers["Retry-After"] = str(refused_s)
        return response
    fields = await _fields(request)
    name = clean_name(fields.get("name", ""))
    if not operators.is_token(fields.get("token", "").strip()):
        operators.guesses.note_wrong(request.remote)
        log.warning("login_refused", remote=request.remote)
        return desk.login(401, "That is not the admin token (admin_token in the settings).")
    if not name:
        return desk.login(422, "Say who you are: the log keeps the name with what you do.")
    log.info("login", operator=name)
    cookie = (
        f"{COOKIE}={operators.log_in(name)}; Max-Age={LIFETIME_S}; "
        f"Path=/; HttpOnly; SameSite=Strict{secure(request.headers)}"
    )
    return _to_dashboard(cookie)


async def log_out(request: web.Request) -> web.Response:
    """Ends the session; without one there is nothing to end."""
    operator = operator_of(request)
    if operator is None:
        return _to_dashboard()
    refused = refusal(request, operator)
    if refused is not None:
        return refused
    operators = request.app[OPERATORS]
    operators.log_out(operator)
    try:
        await operators.share()
    except StoreError as error:
        log.warning("logout_not_shared", operator=operator.name, error=str(error),
                    hint="other replicas hear of it when the store answers again")  # fmt: skip
    log.info("logout", operator=operator.name)
    return _to_dashboard(f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict")


def _to_dashboard(cookie: str = "") -> web.Response:
    headers = {**desk.HEADERS, "Location": "/dashboard"}
    if cookie:
        headers["Set-Cookie"] = cookie
    return web.Response(status=303, headers=headers)


async def _fields(request: web.Request) -> dict[str, str]:
    """Of a form as browsers send it; none of anything else."""
    if request.content_type != "application/x-www-form-urlencoded":
        return {}
    text = (await request.read()).decode(errors="replace")
    try:
        return {name: values[0] for name, values in parse_qs(text, max_num_fields=10).items()}
    except ValueError:
        return {}
