"""Who may: operators at /admin/, programs at /v1/. By bearer token, or for operators by the
dashboard's session."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from aiohttp import web

from sidecar.web.keys import LIVE, SETTINGS
from sidecar.web.login import operator_of, refusal
from sidecar.web.problems import problem

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


@web.middleware
async def authorised(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Lets nobody at /admin/ without the admin token, or a session that was begun with it; nobody
    at /v1/ without the service token or the admin token."""
    if request.path.startswith("/admin/"):
        return await _operator(request, handler)
    if request.path.startswith("/v1/"):
        return await _program(request, handler)
    return await handler(request)


async def _operator(request: web.Request, handler: Handler) -> web.StreamResponse:
    token = request.app[SETTINGS].admin_token
    if not token:
        return problem(
            403, "Administration is off", detail="Set admin_token (WAITROOM_ADMIN_TOKEN) first."
        )
    is_by_token = "Authorization" in request.headers
    refused = _by_token(request, token) if is_by_token else _by_session(request)
    if refused is not None:
        return refused
    response = await handler(request)
    if request.method not in {"GET", "HEAD"}:
        request.app[LIVE].stir()
    return response


async def _program(request: web.Request, handler: Handler) -> web.StreamResponse:
    settings = request.app[SETTINGS]
    tokens = [token for token in (settings.service_token, settings.admin_token) if token]
    if not tokens:
        return problem(
            403,
            "The service API is off",
            detail="Set service_token (WAITROOM_SERVICE_TOKEN) first.",
        )
    refused = _by_token(request, *tokens) if "Authorization" in request.headers else _unknown()
    return await handler(request) if refused is None else refused


def _by_token(request: web.Request, *tokens: str) -> web.Response | None:
    scheme, _, given = request.headers["Authorization"].partition(" ")
    said = given.strip().encode(errors="surrogateescape")
    # All are compared, so that the time tells nothing of which was nearly right.
    are_right = [hmac.compare_digest(said, token.encode()) for token in tokens]
    return None if scheme.lower() == "bearer" and any(are_right) else _unknown()


def _by_session(request: web.Request) -> web.Response | None:
    who = operator_of(request)
    return _unknown() if who is None else refusal(request, who)


def _unknown() -> web.Response:
    response = problem(401, "A token is needed", detail="Send Authorization: Bearer <token>.")
    response.headers["WWW-Authenticate"] = 'Bearer realm="waitroom"'
    return response
