"""The endpoint that reports whether a replica is ready, and the response if jobs are off."""

from typing import Annotated, Literal

from aiohttp import web

from sidecar.http.app_keys import SETTINGS, STOPPING
from sidecar.http.endpoint import ANYBODY, Endpoints
from sidecar.http.metrics import METRICS
from sidecar.http.models import Reply, optional
from sidecar.http.problem_kinds import GENERAL
from sidecar.http.problems import problem
from sidecar.jobs.service import JOBS
from sidecar.kit.errors import StoreError
from sidecar.leases.service import LEASES
from sidecar.limits.service import LIMITS
from sidecar.rooms.service import ROOMS


class Ready(Reply):
    status: Literal["ready"]
    """Always `ready`: a replica that is not ready responds with a 503."""
    store: Literal["memory", "redis"]
    """Where the state is stored. `memory`: only in the memory of this replica."""
    eviction: Annotated[str | None, optional] = None
    """Redis' `maxmemory-policy`. With any other than `noeviction` visitors may lose their places.
    `unseen`: Redis does not allow `INFO`. Absent until the replica has read the policy."""


ENDPOINTS = Endpoints("operations")


@ENDPOINTS.get(
    "/readyz",
    ANYBODY,
    replies={200: (Ready, "The replica is ready.")},
    problems=(GENERAL[503],),
    bypasses_models=True,
    is_cacheable=True,
)
async def is_ready(request: web.Request) -> web.Response:
    """Check that the replica and its store answer, and that it is not stopping."""
    if request.app[STOPPING]:
        return problem(503, "Stopping", retry_after=5)
    try:
        for room in request.app[ROOMS]:
            await room.store.snapshot(revoked_since_ms=room.clock.now_ms())
        for template in request.app[LEASES]:
            await template.store.count()
        for limit in request.app[LIMITS]:
            await limit.store.read_values()
        if JOBS in request.app:
            for target in request.app[JOBS].targets:
                await target.store.is_ready()
    except StoreError as error:
        return problem(503, "The store does not answer", detail=str(error), retry_after=5)
    store = "memory" if request.app[SETTINGS].is_in_memory else "redis"
    ready = {"status": "ready", "store": store}
    if policy := request.app[METRICS].eviction:
        ready["eviction"] = policy
    return web.json_response(ready)


async def refuse_jobs(_request: web.Request) -> web.Response:
    """Refuse a request about jobs or targets, because there are no targets."""
    return problem(
        404, "Jobs are off", detail="There are no targets: write [targets.NAME] in the settings."
    )
