"""Authorises requests of operators (/admin/) and programs (/v1/) by a token or a dashboard session.

Also finds the owner of a request: the token to which its jobs and leases belong.
"""

import hmac

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.app.endpoints import JOBS, OPS
from sidecar.dashboard.live import LIVE
from sidecar.http import problem_kinds as kinds
from sidecar.http.app_keys import SETTINGS, SiteSettings
from sidecar.http.auth.owner import OPERATOR, OWNER, Owner
from sidecar.http.auth.rights import DEFAULT_SCOPES, OWNERS, covers
from sidecar.http.auth.session import OPERATORS, check_origin, find_operator
from sidecar.http.auth.throttle import Throttle
from sidecar.http.endpoint import ADMINS, Access
from sidecar.http.problems import problem

#: Maps the method and path of an endpoint to who has access. All others are for admins only.
RIGHTS: dict[tuple[str, str], Access] = {
    (rule.method, rule.canonical): rule.access for rule in (*OPS, *JOBS) if not rule.access.is_open
}
#: The tokens that the settings have, each with its owner.
TOKENS = web.AppKey("tokens", list[tuple[bytes, Owner]])
#: The path of the endpoint that reports that jobs are off. Every token has access to it.
NO_JOBS = "/v1/{_}"

log = structlog.get_logger()


@web.middleware
async def authorise(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request without the needed rights. /admin/ needs the admin token or an operator's
    session; /v1/ needs one of these or a program's token."""
    if request.path.startswith("/admin/"):
        return await _authorise_operator(request, handler)
    if request.path.startswith("/v1/"):
        return await _authorise_program(request, handler)
    return await handler(request)


async def _authorise_operator(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not request.app[OPERATORS].is_on:
        detail = "Set admin_token (WAITROOM_ADMIN_TOKEN), or operators, first."
        return problem(kinds.ADMINISTRATION_OFF, detail=detail)
    if "Authorization" in request.headers:
        refusal = _check_admin_token(request, request.app[SETTINGS].admin_token)
    else:
        refusal = _check_session(request)
    if refusal is not None:
        return refusal
    response = await handler(request)
    if request.method not in {"GET", "HEAD"}:
        request.app[LIVE].refresh()
    return response


async def _authorise_program(request: web.Request, handler: Handler) -> web.StreamResponse:
    if not (request.app[TOKENS] or request.app[OPERATORS].is_on):
        detail = "Set service_token (WAITROOM_SERVICE_TOKEN) first."
        return problem(kinds.SERVICE_OFF, detail=detail)
    guesses = request.app[OPERATORS].guesses_of_programs
    if "Authorization" not in request.headers:
        request[OWNER], refusal = OPERATOR, _check_session(request)
    elif (owner := _find_program(request, guesses)) is None:
        return _refuse_token(request, guesses)
    else:
        request[OWNER], refusal = owner, _check_scope(owner, request)
    return await handler(request) if refusal is None else refusal


def _check_scope(owner: Owner, request: web.Request) -> web.Response | None:
    """Return a problem if a token does not have a scope that the endpoint needs, else None."""
    access = find_access(request)
    if owner.is_operator or access is None or owner.scopes & access.scopes:
        return None
    if not access.scopes:
        detail = "Programs may not change this: send the admin_token."
        return problem(kinds.OPERATORS_ONLY, detail=detail)
    needed, owned = (" or ".join(sorted(scopes)) for scopes in (access.scopes, owner.scopes))
    detail = f"This needs the scope {needed}; the token {owner.name} has {owned} (scopes)."
    return problem(kinds.SCOPE_MISSING, detail=detail)


def find_access(request: web.Request) -> Access | None:
    """Return the access rule of a request's endpoint, or None for an unknown path."""
    resource = request.match_info.route.resource
    if resource is None or resource.canonical == NO_JOBS:
        return None
    method = "GET" if request.method == "HEAD" else request.method
    return RIGHTS.get((method, resource.canonical), ADMINS)


def _find_program(request: web.Request, guesses: Throttle) -> Owner | None:
    """Return the owner of a request's token, or None if the token is not valid. If the client's IP
    address has sent too many wrong tokens, do not accept the admin token. Programs' tokens are
    still accepted, because one program with an old token must not block others at its address."""
    tokens = request.app[TOKENS]
    if guesses.refused_s(request.remote):
        tokens = [item for item in tokens if item[1] is not OPERATOR]
    return _find_token_owner(request, tokens)


def list_tokens(settings: SiteSettings) -> list[tuple[bytes, Owner]]:
    """List all tokens with their owners. Of two equal tokens, the first one decides."""
    tokens = [(settings.admin_token, OPERATOR)]
    for name, token in {OWNERS[0]: settings.service_token, **settings.tokens}.items():
        tokens.append((token, Owner(name, settings.scopes.get(name, DEFAULT_SCOPES))))
    return [(_encode(token), owner) for token, owner in tokens if token]


def _encode(token: str) -> bytes:
    return token.encode(errors="surrogateescape")


def _find_token_owner(request: web.Request, tokens: list[tuple[bytes, Owner]]) -> Owner | None:
    scheme, _, bearer = request.headers["Authorization"].partition(" ")
    sent_token = _encode(bearer.strip())
    # Compare all tokens in constant time, so that the duration reveals nothing about them.
    matches = [hmac.compare_digest(sent_token, token) for token, _owner in tokens]
    if scheme.lower() != "bearer" or not any(matches):
        return None
    return tokens[matches.index(True)][1]


def _check_admin_token(request: web.Request, token: str) -> web.Response | None:
    """Return a problem if the token is wrong or the address sent too many wrong ones, else None."""
    guesses = request.app[OPERATORS].guesses
    refused_s = guesses.refused_s(request.remote)
    if refused_s:
        detail = (
            f"They came from your address, {request.remote or 'a unix socket'}; perhaps a program "
            f"has an old token. Try again in {refused_s} s. Sessions of the dashboard go on."
        )
        return problem(kinds.TOO_MANY_WRONG_TOKENS, detail=detail, retry_after=refused_s)
    is_right = _find_token_owner(request, [(_encode(token), OPERATOR)]) is not None
    return None if is_right else _refuse_token(request, guesses)


def _refuse_token(request: web.Request, guesses: Throttle) -> web.Response:
    refused_s = 0
    if request.headers.get("Authorization"):
        refused_s = guesses.refused_s(request.remote)
        if not refused_s:  # Later refusals are not logged, because they would flood the log.
            log.warning("token_refused", remote=request.remote, path=request.path)
        guesses.count_wrong(request.remote)
    return _create_token_problem(request, refused_s)


def _check_session(request: web.Request) -> web.Response | None:
    """Return a problem if there is no session, its role is too low or the request is cross-site."""
    user = find_operator(request)
    if user is None:
        return _create_token_problem(request)
    access = find_access(request)
    if access is not None and not covers(user.role, access.role):
        detail = f"{user.name} has the role {user.role}. This needs the role {access.role}."
        return problem(kinds.ROLE_TOO_LOW, detail=detail)
    return check_origin(request, user)


def _create_token_problem(request: web.Request, refused_s: int = 0) -> web.Response:
    """Create the problem of a missing or wrong token. For `refused_s` seconds, the admin token is
    not accepted from the client's address."""
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    kind, detail = kinds.TOKEN_NEEDED, "Send Authorization: Bearer <token>."
    if scheme.lower() == "bearer" and bearer.strip():
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
