"""Authorisation: operators at /admin/, programs at /v1/. By bearer token, or for operators by the
dashboard's session. And which token owns the jobs that a request submits or reads."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

import structlog
from aiohttp import web

from sidecar.api.endpoints import JOBS, OPS
from sidecar.dashboard.live import LIVE
from sidecar.kit.http import problem_kinds as kinds
from sidecar.kit.http.app_keys import OPERATORS, SETTINGS, SiteSettings
from sidecar.kit.http.auth.owner import OPERATOR, Owner
from sidecar.kit.http.auth.scopes import OWNERS, SCOPES
from sidecar.kit.http.auth.session import operator_of, refusal
from sidecar.kit.http.problems import problem

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from sidecar.kit.http.auth.scopes import Scope
    from sidecar.kit.http.auth.throttle import Throttle

#: Paths of /v1/ that the dashboard calls too, by its session.
_OF_THE_DASHBOARD = ("/v1/jobs/", "/v1/leases/", "/v1/limits/", "/v1/targets/")
#: What a program's token may do: one of these scopes is needed, by method and path. What is not
#: here is the operator's: changes of settings, of limits' values, of anybody's leases.
RIGHTS: dict[tuple[str, str], frozenset[Scope]] = {
    (each.method, each.canonical): each.access.scopes
    for each in (*OPS, *JOBS)
    if each.access.scopes
}
#: Where there are no targets: says so, to any token.
NO_JOBS = "/v1/{_}"

log = structlog.get_logger()


@web.middleware
async def authorised(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets nobody at /admin/ without the admin token, or a session that was begun with it; nobody
    at /v1/ without one of the tokens for programs or the admin token, but where the dashboard
    asks also with that session."""
    if request.path.startswith("/admin/"):
        return await _operator(request, handler)
    if request.path.startswith("/v1/"):
        return await _program(request, handler)
    return await handler(request)


async def _operator(request: web.Request, handler: Handler) -> web.StreamResponse:
    token = request.app[SETTINGS].admin_token
    if not token:
        detail = "Set admin_token (WAITROOM_ADMIN_TOKEN) first."
        return problem(kinds.ADMINISTRATION_OFF, detail=detail)
    if "Authorization" in request.headers:
        refused = _by_admin_token(request, token)
    else:
        refused = _by_session(request)
    if refused is not None:
        return refused
    response = await handler(request)
    if request.method not in {"GET", "HEAD"}:
        request.app[LIVE].refresh()
    return response


async def _program(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not _tokens(request.app[SETTINGS]):
        detail = "Set service_token (WAITROOM_SERVICE_TOKEN) first."
        return problem(kinds.SERVICE_OFF, detail=detail)
    guesses = request.app[OPERATORS].guesses_of_programs
    owner = find_owner(request, is_refused=guesses.refused_s(request.remote) > 0)
    if owner is None:
        return _wrong(request, guesses)
    refused = None if "Authorization" in request.headers else _by_session(request)
    refused = refused or _beyond(owner, request)
    return await handler(request) if refused is None else refused


def _beyond(owner: Owner, request: web.Request) -> web.Response | None:
    """Why this token is not for what it asks; None: it is."""
    scopes = needed(request)
    if owner.is_operator or owner.scopes & scopes:
        return None
    if not scopes:
        detail = "Programs may not change this: send the admin_token."
        return problem(kinds.OPERATORS_ONLY, detail=detail)
    one_of, has = (" or ".join(sorted(each)) for each in (scopes, owner.scopes))
    detail = f"This needs the scope {one_of}; the token {owner.name} has {has} (scopes)."
    return problem(kinds.SCOPE_MISSING, detail=detail)


def needed(request: web.Request) -> frozenset[Scope]:
    """The scopes of which one opens this endpoint; none: it is the operator's. An address at which
    nothing is, is anybody's to find out."""
    resource = request.match_info.route.resource
    if resource is None or resource.canonical == NO_JOBS:
        return SCOPES
    method = "GET" if request.method == "HEAD" else request.method
    return RIGHTS.get((method, resource.canonical), frozenset())


def find_owner(request: web.Request, *, is_refused: bool = False) -> Owner | None:
    """By its token, or by the session where that counts; None: nobody we know. `is_refused`: the
    admin token is not looked at, because somebody at this address guesses. Programs' tokens are,
    so that one with an old token stops none of the others."""
    if "Authorization" in request.headers:
        return _by_token(request, _tokens(request.app[SETTINGS], is_refused=is_refused))
    is_dashboards = f"{request.path}/".startswith(_OF_THE_DASHBOARD)
    return OPERATOR if is_dashboards and operator_of(request) is not None else None


def _tokens(settings: SiteSettings, *, is_refused: bool = False) -> list[tuple[str, Owner]]:
    """Each with whose it is. Where two are the same, the first says who it is."""
    named = {OWNERS[0]: settings.service_token, **settings.tokens}
    programs = [
        (token, Owner(name, settings.scopes.get(name, SCOPES))) for name, token in named.items()
    ]
    operators = [] if is_refused else [(settings.admin_token, OPERATOR)]
    return [(token, owner) for token, owner in operators + programs if token]


def _by_token(request: web.Request, tokens: list[tuple[str, Owner]]) -> Owner | None:
    scheme, _, given = request.headers["Authorization"].partition(" ")
    said = given.strip().encode(errors="surrogateescape")
    # All are compared, so that the time tells nothing of which was nearly right.
    are_right = [
        hmac.compare_digest(said, token.encode(errors="surrogateescape"))
        for token, _owner in tokens
    ]
    if scheme.lower() != "bearer" or not any(are_right):
        return None
    return tokens[are_right.index(True)][1]


def _by_admin_token(request: web.Request, token: str) -> web.Response | None:
    """Why a bearer is not let in at /admin/; while too many were wrong, none is looked at."""
    guesses = request.app[OPERATORS].guesses
    refused_s = guesses.refused_s(request.remote)
    if refused_s:
        detail = (
            f"They came from your address, {request.remote or 'a unix socket'}; perhaps a program "
            f"has an old token. Try again in {refused_s} s. Sessions of the dashboard go on."
        )
        return problem(kinds.TOO_MANY_WRONG_TOKENS, detail=detail, retry_after=refused_s)
    return None if _by_token(request, [(token, OPERATOR)]) else _wrong(request, guesses)


def _wrong(request: web.Request, guesses: Throttle) -> web.Response:
    refused_s = 0
    if request.headers.get("Authorization"):
        refused_s = guesses.refused_s(request.remote)
        if not refused_s:  # beyond it would flood the log
            log.warning("token_refused", remote=request.remote, path=request.path)
        guesses.note_wrong(request.remote)
    return _unknown(request, refused_s)


def _by_session(request: web.Request) -> web.Response | None:
    who = operator_of(request)
    return _unknown(request) if who is None else refusal(request, who)


def _unknown(request: web.Request, refused_s: int = 0) -> web.Response:
    """`refused_s`: for how long the admin token is not looked at."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    kind, detail = kinds.TOKEN_NEEDED, "Send Authorization: Bearer <token>."
    if scheme.lower() == "bearer" and given.strip():
        kind, detail = kinds.TOKEN_WRONG, "It is not this replica's admin_token."
        if request.path.startswith("/v1/"):
            detail = "It is none of this replica's admin_token, service_token and tokens."
        if refused_s:
            detail = (
                "It is no program's token. Too many wrong ones came from your address: the "
                f"admin_token is not looked at for {refused_s} s."
            )
    response = problem(kind, detail=detail)
    response.headers["WWW-Authenticate"] = 'Bearer realm="waitroom"'
    return response
