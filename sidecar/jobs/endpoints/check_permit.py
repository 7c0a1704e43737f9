"""Checks for nginx whether a call has the permit of an online job: 204 passes, 403 is refused. As
at /check there is never another status and never a body. A permit that cannot be checked is
refused."""

from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from sidecar.http.auth_request import close_if_body, log_unknown
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import NO_BODY
from sidecar.http.problems import STORE_RETRY_S
from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.permits import Permit, PermitError
from sidecar.jobs.schemas import CheckPermit, PermitPassed, PermitRefused
from sidecar.jobs.service import Jobs
from sidecar.jobs.targets import Target
from sidecar.kit.errors import DatabaseError, StoreError
from sidecar.kit.tasks import Background

#: The reason of a refusal, by what Redis says about the permit.
_REASONS = {"used": "used", "gone": "over"}
#: How long writing to the database may go on when the replica stops, seconds.
_DRAIN_S = 2.0

log = structlog.get_logger()

_WRITES = web.AppKey("writes of used permits", Background)


async def writes(app: web.Application) -> AsyncIterator[None]:
    """Keep the writes of an application, as a context of its `cleanup_ctx`."""
    app[_WRITES] = Background()
    yield
    await app[_WRITES].finish(_DRAIN_S)


async def _write_used(jobs: Jobs, target: Target, permit: Permit) -> None:
    """Write in the background that a permit was used; Redis has it in any case."""
    try:
        await jobs.used(target, permit.job, permit.fence)
    except (DatabaseError, StoreError) as error:
        log.warning("use_not_written", target=target.name, job=permit.job, error=str(error))


ENDPOINTS = Endpoints("proxy")


@ENDPOINTS.get(
    "/check-permit",
    ANYBODY,
    headers=CheckPermit,
    replies={
        204: (NO_BODY, "It does.", PermitPassed),
        403: (
            NO_BODY,
            "It does not; or Redis is unavailable; or there is no target.",
            PermitRefused,
        ),
    },
    is_hand_made=True,
)
async def check_permit(request: web.Request) -> web.Response:
    """Does the permit of an online job let this request pass?

    For nginx's `auth_request`. A permit passes once. Nothing has a body.
    """
    headers = request.headers
    name = headers.get("X-Waitroom-Target", "")
    jobs = request.app.get(JOBS)
    target = jobs.targets.find(name) if jobs is not None else None
    if jobs is None or target is None:
        log_unknown(name, "target")
        return _answer(request, 403, "unknown-target")
    text = headers.get("X-Waitroom-Permit", "")
    if not text:
        return _refused(request, "none")
    try:
        permit = target.permits.verify(text)
        if headers.get("X-Waitroom-Given") == permit.job:
            # nginx asks again where it redirects a request within (index, error_page), and sends
            # the job that it was given. That may be long after the permit was used.
            return _answer(request, 204, "admitted", {"X-Waitroom-Job": permit.job})
        target.permits.check_time(permit)
    except PermitError as error:
        return _refused(request, "expired" if error.reason == "expired" else "forged")
    try:
        # nginx asks another replica where one did not answer in time.
        request_id = headers.get("X-Waitroom-Request", "")[:64]
        use = await target.store.use(permit.job, permit.fence, target.settings, request_id)
    except StoreError as error:
        log.debug("store_away", target=name, error=str(error))
        return _answer(request, 403, "permit-away", {"Retry-After": str(STORE_RETRY_S)})
    if use != "ok":
        return _refused(request, _REASONS[use])
    request.app[_WRITES].start(_write_used(jobs, target, permit))
    return _answer(request, 204, "admitted", {"X-Waitroom-Job": permit.job})


def _refused(request: web.Request, reason: str) -> web.Response:
    return _answer(request, 403, reason, {"X-Waitroom-Reason": reason})


def _answer(
    request: web.Request, status: int, state: str, more: dict[str, str] | None = None
) -> web.Response:
    request.app[METRICS].requests.count("", "check-permit", state)
    headers = {"X-Waitroom-State": state, "Cache-Control": "no-store", **(more or {})}
    return close_if_body(request, web.Response(status=status, headers=headers))
