"""Endpoints of the dashboard: its page, its live events, log-in and log-out."""

import contextlib
from functools import partial
from typing import Literal
from urllib.parse import parse_qs

import structlog
from aiohttp import web

from sidecar.dashboard import pages, preview, wall
from sidecar.dashboard.live import LIVE
from sidecar.history.lookups import HISTORY
from sidecar.http.app_keys import SETTINGS, STOPPING
from sidecar.http.auth.operators import COOKIE, LIFETIME_S, clean_name
from sidecar.http.auth.passwords import MAX_PASSWORD_LENGTH
from sidecar.http.auth.session import OPERATORS, check_origin, find_operator, is_same_origin
from sidecar.http.cookies import secure_flag
from sidecar.http.problems import problem
from sidecar.jobs.service import JOBS
from sidecar.kit.errors import StoreError

log = structlog.get_logger()

#: Tells the browser to reconnect 1000 ms after its connection broke.
_RETRY = b"retry: 1000\n\n"
_END = b"event: end\ndata: {}\n\n"
_AGAIN = b"event: again\ndata: {}\n\n"


async def show_page(request: web.Request) -> web.Response:
    """Return the dashboard, or the log-in form."""
    operators = request.app[OPERATORS]
    if not operators.is_on:
        return pages.build_response("off.html", 403)
    if find_operator(request):
        return pages.build_response("index.html")
    name = operators.accounts.proxy.find_name(request.headers, request.remote)
    if not name:
        return _respond_form(request)
    log.warning("login_unknown", operator=clean_name(name), remote=request.remote)
    note = (
        f"Your proxy has signed you in as {clean_name(name)}, but no operator has this name. An "
        "admin adds it to operators in the settings."
    )
    return _respond_form(request, 403, note)


async def get_file(request: web.Request) -> web.Response:
    """Return a style sheet, script or other file of the page."""
    name = request.match_info["name"]
    is_known = name in pages.load_files() and not name.endswith(".html")
    return pages.build_response(name) if is_known else problem(404, "Not Found")


async def get_session(request: web.Request) -> web.Response:
    """Return the operator who is logged in, the CSRF token, and the configured features."""
    operator = find_operator(request)
    if operator is None:
        return problem(401, "Nobody is logged in")
    document = {
        "operator": operator.name,
        "role": operator.role,
        "by": operator.by,
        "csrf": request.app[OPERATORS].csrf_token(operator),
        "history": HISTORY in request.app,
        "jobs": JOBS in request.app,
        "in_memory": request.app[SETTINGS].is_in_memory,
    }
    return web.json_response(document, headers=pages.HEADERS)


async def stream_events(request: web.Request) -> web.StreamResponse:
    """Send events: `now` every second, `study` for each room that has changed, `end` when the
    session ends, and `again` when the proxy has to sign the operator in again."""
    operators, live = request.app[OPERATORS], request.app[LIVE]
    operator = find_operator(request)
    if operator is None or not is_same_origin(request.headers):
        return problem(401, "Nobody is logged in")
    stopping = request.app[STOPPING]
    if stopping:
        return problem(503, "Stopping", retry_after=2)
    response = web.StreamResponse(headers=pages.STREAM_HEADERS)
    await response.prepare(request)
    sent: dict[str, bytes] = {}
    # A write fails once the browser has disconnected.
    with live.count_viewer(request), contextlib.suppress(ConnectionResetError):
        await response.write(_RETRY)
        while not (stopping or live.is_closed):
            if operators.is_over(operator):
                await response.write(_AGAIN if operator.by == "proxy" else _END)
                break
            await response.write(live.take_unsent_events(sent))
            await live.wait_for_update()
    return response


async def redirect_to_form(_: web.Request) -> web.Response:
    """Redirect a browser that reloads the page of a refused log-in to the dashboard."""
    return _redirect_to_dashboard()


async def log_in(request: web.Request) -> web.Response:
    """Log in with the fields of login.html: an operator's name and password, or the admin token and
    a name for the log."""
    operators = request.app[OPERATORS]
    if not operators.is_on:
        return pages.build_response("off.html", 403)
    if not is_same_origin(request.headers):
        return _respond_form(request, 403, "The form came from another site. Log in here.")
    if refusal := _check_throttle(request):
        return refusal
    fields = await _read_form(request)
    name, secret = clean_name(fields.get("name", "")), fields.get("token", "").strip()
    respond_form = partial(_respond_form, request, name=name)
    by = await _check_secret(request, name, secret)
    # Meanwhile, other requests from this IP address may have sent wrong passwords.
    if refusal := _check_throttle(request):
        return refusal
    if by is None:
        operators.guesses.count_wrong(request.remote)
        log.warning("login_refused", remote=request.remote)
        note = "That is not the admin token (admin_token in the settings)."
        if operators.accounts.named:
            note = "The name or the password is wrong."
        return respond_form(401, note)
    if not name:
        note = "Say who you are: the log keeps the name with what you do."
        return respond_form(422, note)
    if by == "token" and operators.accounts.is_taken(name):
        note = f"{name} is the name of an operator, who logs in with a password. Give another name."
        return respond_form(422, note)
    log.info("login", operator=name, by=by)
    cookie = operators.log_in(name) if by == "token" else operators.log_in_by_password(name)
    return _redirect_to_dashboard(
        f"{COOKIE}={cookie}; Max-Age={LIFETIME_S}; "
        f"Path=/; HttpOnly; SameSite=Strict{secure_flag(request.headers)}"
    )


async def _check_secret(
    request: web.Request, name: str, secret: str
) -> Literal["password", "token"] | None:
    """Check a password or admin token. Return which of the two is right, or None."""
    operators = request.app[OPERATORS]
    if operators.is_token(secret):
        return "token"
    if not operators.accounts.named or len(secret) > MAX_PASSWORD_LENGTH:
        return None

    def is_throttled() -> bool:
        return operators.guesses.refused_s(request.remote) > 0

    is_right = await operators.accounts.is_password(name, secret, is_throttled)
    return "password" if is_right else None


def _check_throttle(request: web.Request) -> web.Response | None:
    """Return the form with status 429 if the IP address made too many wrong guesses, else None."""
    refused_s = request.app[OPERATORS].guesses.refused_s(request.remote)
    if not refused_s:
        return None
    secrets = "tokens and passwords" if request.app[OPERATORS].accounts.named else "tokens"
    note = f"Too many wrong {secrets} came from your address. Try again in {refused_s} s."
    response = _respond_form(request, 429, note)
    response.headers["Retry-After"] = str(refused_s)
    return response


async def log_out(request: web.Request) -> web.Response:
    """End the session or, with `everywhere` in the query, all sessions of the operator. Only the
    proxy can end a session that the proxy has started."""
    operator = find_operator(request)
    if operator is None or operator.by == "proxy":
        return _redirect_to_dashboard()
    refusal = check_origin(request, operator)
    if refusal is not None:
        return refusal
    operators = request.app[OPERATORS]
    if "everywhere" in request.query and operator.by == "password":
        operators.log_out_everywhere(operator.name)
    operators.log_out(operator)
    try:
        await operators.share()
    except StoreError as error:
        hint = "other replicas learn of it when the store answers again"
        log.warning("logout_not_shared", operator=operator.name, error=str(error), hint=hint)
    log.info("logout", operator=operator.name)
    return _redirect_to_dashboard(f"{COOKIE}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict")


def _respond_form(
    request: web.Request, status: int = 200, note: str = "", *, name: str = ""
) -> web.Response:
    """Return the log-in form with labels for passwords, the admin token or both, and with the name
    that was typed before."""
    operators = request.app[OPERATORS]
    secret, hint = "Admin token", "admin_token in the replica's settings."
    if operators.accounts.named:
        secret, hint = "Password", "Yours, of operators in the settings."
        if operators.has_token:
            secret = "Password, or admin token"  # noqa: S105 - a label
            hint = "Your own password; or the admin_token, with a name that is no operator's."
    texts = {"note": note, "name": name, "secret": secret, "hint": hint}
    return pages.build_response("login.html", status, **texts)


def _redirect_to_dashboard(cookie: str = "") -> web.Response:
    headers = {**pages.HEADERS, "Location": "/dashboard"}
    if cookie:
        headers["Set-Cookie"] = cookie
    return web.Response(status=303, headers=headers)


async def _read_form(request: web.Request) -> dict[str, str]:
    """Return a form's fields, or {} for another type of body."""
    if request.content_type != "application/x-www-form-urlencoded":
        return {}
    text = (await request.read()).decode(errors="replace")
    try:
        return {name: values[0] for name, values in parse_qs(text, max_num_fields=10).items()}
    except ValueError:
        return {}


ROUTES = (
    web.get("/dashboard{slash:/?}", show_page),
    web.get("/dashboard/session", get_session),
    web.get("/dashboard/events", stream_events, allow_head=False),
    web.get("/dashboard/login", redirect_to_form),
    web.post("/dashboard/login", log_in),
    web.post("/dashboard/logout", log_out),
    web.get("/dashboard/static/{name}", get_file),
    *wall.ROUTES,
    *preview.ROUTES,
)
