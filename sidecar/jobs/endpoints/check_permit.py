"""The endpoint with which nginx checks the permit of an online job. As at /check, a response is
only a status: 204 lets the request pass, and 403 refuses it, even if the check is not possible."""

from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from sidecar.http.auth_request import close_if_body, log_unknown
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problems import STORE_RETRY_S
from sidecar.jobs.permits import Permit, PermitError
from sidecar.jobs.schemas import CheckPermit, PermitPassed, PermitRefused
from sidecar.jobs.service import JOBS, Jobs
from sidecar.jobs.targets import Target
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.tasks import Background

#: How long a stopping replica waits for writes to the database, in seconds.
_DRAIN_S = 2.0

log = structlog.get_logger()

_WRITES = web.AppKey("writes of used permits", Background)


async def finish_writes(app: web.Application) -> AsyncIterator[None]:
    """Let background writes finish when the application stops. For `cleanup_ctx`."""
    app[_WRITES] = Background()
    yield
    await app[_WRITES].finish(_DRAIN_S)


async def _record_use(jobs: Jobs, target: Target, permit: Permit) -> None:
    """Write to SQL that a permit was used. Only logs errors, because Redis has recorded the use."""
    try:
        await jobs.record_permit_use(target, permit.job, permit.fence)
    except (DatabaseError, StoreError) as error:
        log.warning("use_not_written", target=target.name, job=permit.job, error=str(error))


ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/check-permit",
    ANYBODY,
    headers=CheckPermit,
    replies={
        204: (NO_BODY, "The request may pass.", PermitPassed),
        403: (
            NO_BODY,
            "The request may not pass, Redis is unavailable, or the target is unknown.",
            PermitRefused,
        ),
    },
    bypasses_models=True,
)
async def check_permit(request: web.Request) -> web.Response:
    """Check whether the permit of an online job lets a request pass.

    This is for nginx's `auth_request`. A permit is valid for one request. Responses have no body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Target", "")
    jobs = request.app.get(JOBS)
    target = jobs.targets.find(name) if jobs is not None else None
    if jobs is None or target is None:
        log_unknown(name, "target")
        return _respond(request, 403, "unknown-target")
    text = headers.get("X-Waitroom-Permit", "")
    if not text:
        return _refuse(request, "none")
    try:
        permit = target.permits.verify(text)
        if headers.get("X-Waitroom-Given") == permit.job:
            # nginx checks a request again after an internal redirect (index, error_page), with the
            # job id of the first response. That may be long after the permit was used.
            return _respond(request, 204, "admitted", {"X-Waitroom-Job": permit.job})
        target.permits.raise_if_expired(permit)
    except PermitError as error:
        return _refuse(request, "expired" if error.reason == "expired" else "forged")
    try:
        # If a replica times out, nginx asks another. Redis recognises the retry by this id.
        request_id = headers.get("X-Waitroom-Request", "")[:64]
        use = await target.store.use_permit(permit.job, permit.fence, target.settings, request_id)
    except StoreError as error:
        log.debug("store_away", target=name, error=str(error))
        return _respond(request, 403, "permit-away", {"Retry-After": str(STORE_RETRY_S)})
    if use != "ok":
        return _refuse(request, use)
    request.app[_WRITES].start(_record_use(jobs, target, permit))
    return _respond(request, 204, "admitted", {"X-Waitroom-Job": permit.job})


def _refuse(request: web.Request, reason: str) -> web.Response:
    return _respond(request, 403, reason, {"X-Waitroom-Reason": reason})


def _respond(
    request: web.Request, status: int, state: str, headers: dict[str, str] | None = None
) -> web.Response:
    request.app[METRICS].requests.count("", "check-permit", state)
    headers = {"X-Waitroom-State": state, "Cache-Control": "no-store", **(headers or {})}
    return close_if_body(request, web.Response(status=status, headers=headers))
