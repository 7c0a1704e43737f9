"""Many jobs at once: retried or cancelled, by their ids or by what they have in common."""

import time
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import web

from sidecar.http.auth.session import operator
from sidecar.http.endpoint import Endpoints, programs
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE
from sidecar.http.problems import ProblemError
from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.endpoints.jobs import seen_by
from sidecar.jobs.model import ENDED, State
from sidecar.jobs.search_schemas import (
    NOT_ENDED,
    WENT_WRONG,
    ChangedJobs,
    SelectedJobs,
    SkippedJob,
    write_after,
)
from sidecar.kit.errors import UnknownNameError

#: After so long the rest is left to the next request, seconds.
ENOUGH_S = 4.0

ENDPOINTS = Endpoints("jobs", problems=(DATABASE_UNAVAILABLE,))
_CHANGES = programs("jobs", role="operator")

log = structlog.get_logger()


@ENDPOINTS.post("/v1/jobs/bulk/retry", _CHANGES, replies={200: "How many, and which not."})
async def retry_jobs(request: web.Request, body: SelectedJobs) -> ChangedJobs:
    """Retry many jobs that have ended.

    Without `ids` and `state`: those that failed or expired. 100 at most, newest first: send `next`
    as `after` for the rest. Jobs that did not end, or were changed by somebody else meanwhile, are
    skipped: it can be repeated. With `dry_run` it only says how many.
    """
    return await _change(request, body, request.app[JOBS].retry, ENDED)


@ENDPOINTS.post("/v1/jobs/bulk/cancel", _CHANGES, replies={200: "How many, and which not."})
async def cancel_jobs(request: web.Request, body: SelectedJobs) -> ChangedJobs:
    """Cancel many jobs that have not ended.

    100 at most, newest first: send `next` as `after` for the rest. Jobs that have ended, or whose
    call has begun and cannot be cut off, are skipped: it can be repeated. With `dry_run` it only
    says how many.
    """
    return await _change(request, body, request.app[JOBS].cancel, NOT_ENDED)


async def _change(
    request: web.Request,
    body: SelectedJobs,
    change: Callable[[str, str | None], Awaitable[object]],
    states: frozenset[State],
) -> ChangedJobs:
    """Each by itself, as if it were asked for alone: what ended or began meanwhile is skipped."""
    owner, search = seen_by(request), request.app[JOBS].store.search
    if body.ids is None:
        query = body.query_of(owner, states, WENT_WRONG if states is ENDED else states)
        if body.dry_run:
            count, after = await search.count(query)
            return ChangedJobs(changed=count, skipped=[], next=write_after(after))
        page = await search.page(query)
        wanted = [(job.created_ms, job.id) for job in page.jobs]
        following = page.next
    else:
        if body.dry_run:
            return ChangedJobs(changed=len(set(body.ids)), skipped=[], next=None)
        wanted, following = [(0, id_) for id_ in dict.fromkeys(body.ids)], None
    changed, skipped, until_s = 0, list[SkippedJob](), time.monotonic() + ENOUGH_S
    last = None
    for at in wanted:
        if last is not None and time.monotonic() > until_s:
            if body.ids is None:
                following = last
                break
            skipped.append(SkippedJob(id=at[1], reason="There was no time left: send it again."))
            continue
        last = at
        try:
            await change(at[1], owner)
        except ProblemError as problem:
            skipped.append(
                SkippedJob(id=at[1], reason=problem.members.get("detail", problem.kind.title))
            )
        except UnknownNameError:
            skipped.append(SkippedJob(id=at[1], reason="The job is unknown."))
        else:
            changed += 1
    done = "jobs_retried" if states is ENDED else "jobs_cancelled"
    log.info(done, changed=changed, skipped=len(skipped), by=owner or operator(request))
    return ChangedJobs(changed=changed, skipped=skipped, next=write_after(following))
