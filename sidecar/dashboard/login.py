"""The way in to the dashboard, and who of those who ask has gone it."""

from __future__ import annotations

from urllib.parse import parse_qs

import structlog
from aiohttp import web

from sidecar.dashboard import page as desk
from sidecar.kit.errors import StoreError
from sidecar.kit.http.app_keys import OPERATORS
from sidecar.kit.http.auth.operators import COOKIE, LIFETIME_S, clean_name
from sidecar.kit.http.auth.session import is_same_origin, operator_of, refusal
from sidecar.kit.http.cookies import secure

log = structlog.get_logger()


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
