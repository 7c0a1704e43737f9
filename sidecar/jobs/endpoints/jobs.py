"""Endpoints by which clients submit, get, list, cancel and retry jobs, and report that a call has
ended. Many jobs can be retried or cancelled at once, by ids or by a filter."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import structlog
from aiohttp import web
from multidict import CIMultiDict, MultiMapping

from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import Endpoints, programs
from sidecar.http.idempotency_key import HEADER, read_idempotency_key
from sidecar.http.long_poll import is_gone
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE, INVALID_REQUEST, QUEUE_FULL, Kind
from sidecar.http.problems import ProblemError
from sidecar.http.quick_response import QuickResponse
from sidecar.jobs import model, schemas
from sidecar.jobs.endpoints.long_poll import AWAITED_STATES, JOB_POLLS
from sidecar.jobs.model import ENDED_STATES, Job, JobError, NewJob, State
from sidecar.jobs.request import check_request, encode_query
from sidecar.jobs.service import JOBS, JobView
from sidecar.jobs.targets import Target
from sidecar.kit.did_you_mean import did_you_mean
from sidecar.kit.errors import DatabaseError, InputError, UnknownNameError
from sidecar.kit.trace_context import HEADERS as TRACE_HEADERS
from sidecar.kit.trace_context import TRACEPARENT, read_trace_context

log = structlog.get_logger()

ENDPOINTS = Endpoints("jobs", problems=(DATABASE_UNAVAILABLE,), unknown=schemas.UNKNOWN_JOB)
_READS = programs("jobs", "read", role="viewer")
_CHANGES = programs("jobs", role="operator")
_JOB = "/v1/jobs/{id}"
_JSON = {"Content-Type": "application/json", "Cache-Control": "no-store"}
#: The fields of the HTTP call, which only offline jobs have, because a worker makes their calls.
_CALL_FIELDS = {"method", "path", "query", "headers", "body", "body_base64"}
#: How long one bulk request may take, in seconds. The client continues with another request.
BULK_TIME_LIMIT_S = 4.0
#: The maximum number of jobs in one response with results.
MAX_RESULTS = 50
#: The Retry-After header if the queue is full, in seconds.
FULL_RETRY_S = 60
_PROBLEMS: dict[type[Exception], Kind] = {
    model.GrantNeededError: schemas.GRANT_NEEDED,
    model.IdempotencyKeyUsedError: schemas.IDEMPOTENCY_KEY_USED,
    model.WrongStateError: schemas.WRONG_STATE,
    model.QueueFullError: QUEUE_FULL,
}


@contextmanager
def _convert_job_errors() -> Iterator[None]:
    try:
        yield
    except model.QueueFullError as error:
        raise ProblemError(QUEUE_FULL, detail=str(error), retry_after=FULL_RETRY_S) from None
    except JobError as error:
        raise ProblemError(_PROBLEMS[type(error)], detail=str(error)) from None


# Endpoints for many jobs are registered first, because /v1/jobs/{id}… would match their paths.


@ENDPOINTS.get("/v1/jobs/bulk/reasons", _READS, replies={200: "The reasons."})
async def list_failure_reasons(
    request: web.Request, params: schemas.FailedJobs
) -> schemas.FailureReasons:
    """Group failed jobs by reason.

    The newest 1,000 that match the filter are counted, by the last response's status and the error.
    """
    query = params.to_query(_get_visible_owner(request))
    groups = await request.app[JOBS].store.search.group_failed_jobs(query)
    reasons = [schemas.FailureReason.model_validate(group) for group in groups]
    return schemas.FailureReasons(reasons=reasons, jobs=sum(reason.jobs for reason in reasons))


@ENDPOINTS.post(
    "/v1/jobs/bulk/submit",
    _CHANGES,
    replies={202: (schemas.SubmittedJobs, "The ids of the accepted jobs, and the refused jobs.")},
)
async def submit_jobs(request: web.Request, body: schemas.SubmitJobs) -> web.Response:
    """Submit many jobs.

    If one of the jobs is invalid, none is submitted. Otherwise, each job is submitted as if it were
    sent alone: if the queue is full or its grant was used, only this job is refused. Give each job
    an `idempotency_key`, so that you can repeat the request if there is no response."""
    jobs, owner = request.app[JOBS], owner_of(request)
    checked, problems = list[NewJob](), list[str]()
    if HEADER in request.headers:
        problems.append(f"{HEADER}: is of one job; give each an idempotency_key")
    for index, item in enumerate(body.jobs):
        try:
            target = jobs.targets.get(item.target)
            checked.append(_check_job(item, request.headers, target))
        except UnknownNameError as error:
            hint = did_you_mean(error.name, error.known)
            problems.append(f"jobs.{index}.target: {error}{hint}")
        except InputError as error:
            problems += (f"jobs.{index}.{problem}" for problem in error.problems)
    if problems:
        raise InputError(problems)
    submit = partial(jobs.submit, owner.name, needs_grant=not owner.may_choose_class)
    replies = await asyncio.gather(*map(submit, checked), return_exceptions=True)
    ids, refused = list[str | None](), list[schemas.RefusedJob]()
    for index, reply in enumerate(replies):
        if isinstance(reply, JobError | InputError):
            kind = _PROBLEMS.get(type(reply), INVALID_REQUEST)
            refused.append(schemas.RefusedJob(index=index, code=kind.code, reason=str(reply)))
            ids.append(None)
        elif isinstance(reply, BaseException):
            raise reply
        else:
            ids.append(reply[0].job.id)
    return schemas.SubmittedJobs(ids=ids, refused=refused).response(202)


@ENDPOINTS.post("/v1/jobs/bulk/retry", _CHANGES, replies={200: "What was changed or skipped."})
async def retry_jobs(request: web.Request, body: schemas.SelectedJobs) -> schemas.ChangedJobs:
    """Retry many jobs that have ended.

    Without `ids` and `state`, jobs that failed or expired are retried. One request retries at most
    100 jobs, newest first: send `next` as `after` for more. Jobs that have not ended, or that
    somebody else has changed meanwhile, are skipped. `dry_run` only counts the jobs."""
    return await _change_jobs(request, body, request.app[JOBS].retry, ENDED_STATES)


@ENDPOINTS.post("/v1/jobs/bulk/cancel", _CHANGES, replies={200: "What was changed or skipped."})
async def cancel_jobs(request: web.Request, body: schemas.SelectedJobs) -> schemas.ChangedJobs:
    """Cancel many jobs that have not ended.

    One request cancels at most 100 jobs, newest first: send `next` as `after` for more. Jobs that
    have ended, or whose call has begun and cannot be aborted, are skipped. `dry_run` only counts
    the jobs."""
    return await _change_jobs(request, body, request.app[JOBS].cancel, schemas.NOT_ENDED_STATES)


async def _change_jobs(
    request: web.Request,
    body: schemas.SelectedJobs,
    change: Callable[[str, str | None], Awaitable[object]],
    states: frozenset[State],
) -> schemas.ChangedJobs:
    """Change the selected jobs one by one. Skip jobs whose state does not allow the change."""
    owner, search = _get_visible_owner(request), request.app[JOBS].store.search
    if body.ids is None:
        default_states = schemas.DEFAULT_RETRY_STATES if states is ENDED_STATES else states
        query = body.to_bulk_query(owner, states, default_states)
        if body.dry_run:
            count, after = await search.count(query)
            return schemas.ChangedJobs(changed=count, skipped=[], next=schemas.format_after(after))
        page, next_position = await search.find_page(query)
        positions = [(job.created_ms, job.id) for job in page]
    else:
        if body.dry_run:
            return schemas.ChangedJobs(changed=len(set(body.ids)), skipped=[], next=None)
        positions, next_position = [(0, id_) for id_ in dict.fromkeys(body.ids)], None
    changed, reasons, until_s = 0, dict[str, str](), time.monotonic() + BULK_TIME_LIMIT_S
    for index, (_, id_) in enumerate(positions):
        if index and time.monotonic() > until_s:
            if body.ids is None:
                next_position = positions[index - 1]
                break
            reasons[id_] = "There was no time left: send it again."
            continue
        try:
            await change(id_, owner)
        except JobError as error:
            reasons[id_] = str(error)
        except UnknownNameError:
            reasons[id_] = "The job is unknown."
        else:
            changed += 1
    event = "jobs_retried" if states is ENDED_STATES else "jobs_cancelled"
    log.info(event, changed=changed, skipped=len(reasons), by=owner or find_logged_name(request))
    skipped = [schemas.SkippedJob(id=id_, reason=reason) for id_, reason in reasons.items()]
    return schemas.ChangedJobs(
        changed=changed, skipped=skipped, next=schemas.format_after(next_position)
    )


@ENDPOINTS.post(
    "/v1/jobs/bulk/results",
    _READS,
    replies={200: "The jobs that have ended or are called, with their results."},
    problems=(schemas.UNKNOWN_JOB,),
)
async def wait_for_jobs(
    request: web.Request, params: schemas.ResultsParameters, body: schemas.AwaitedJobs
) -> schemas.JobResults:
    """Get the listed jobs that have ended or are called, and their results.

    With `wait`, the response comes as soon as there is such a job. Send the other ids again."""
    jobs, owner, ids = request.app[JOBS], _get_visible_owner(request), list(dict.fromkeys(body.ids))
    rows = await jobs.store.jobs.find_many(ids)
    for id_ in ids:
        if id_ not in rows or owner not in {None, rows[id_].owner}:
            raise UnknownNameError("job", id_)
    polls = request.app[JOB_POLLS]
    views = await polls.find_awaited_jobs([rows[id_] for id_ in ids])
    if params.wait and not views:
        views = await polls.wait_for_any(request, ids, params.wait)
    return schemas.JobResults(jobs=await _make_documents(request, views[:MAX_RESULTS]))


def _check_members(request: web.Request, body: schemas.SubmitJob, invalid: set[str]) -> list[str]:
    """Return problems with the valid members of a submission that has invalid ones."""
    if "kind" in invalid:  # the kind decides which members the job may have
        return []
    try:
        target = request.app[JOBS].targets.get(body.target)
        _check_job(body, request.headers, target)
    except UnknownNameError as error:
        return [f"target: {error}"]
    except InputError as error:
        # The default of the method depends on whether there is a body.
        unclear = {"method"} if "body_base64" in invalid and body.method is None else set()
        return [text for text in error.problems if text.partition(":")[0] not in unclear]
    return []


@ENDPOINTS.post(
    "/v1/jobs",
    _CHANGES,
    check_members=_check_members,
    headers=schemas.SubmitHeaders,
    replies={
        202: (schemas.JobDocument, "The job waits. It is stored, so no crash loses it."),
        200: (
            schemas.JobDocument,
            "The job that was submitted earlier with the same key and content.",
        ),
    },
    problems=(
        schemas.UNKNOWN_TARGET,
        schemas.GRANT_NEEDED,
        schemas.IDEMPOTENCY_KEY_USED,
        QUEUE_FULL,
    ),
)
async def submit_job(request: web.Request, body: schemas.SubmitJob) -> web.Response:
    """Submit a job.

    The response header `Location` contains the job's path."""
    jobs = request.app[JOBS]
    new = _check_job(body, request.headers, jobs.targets.get(body.target))
    owner = owner_of(request)
    with _convert_job_errors():
        view, is_new = await jobs.submit(owner.name, new, needs_grant=not owner.may_choose_class)
    headers = {**_JSON, "Location": f"/v1/jobs/{view.job.id}"}
    document = _make_document(view).to_json()
    return QuickResponse(status=202 if is_new else 200, headers=headers, body=document)


@ENDPOINTS.get(
    "/v1/jobs", _READS, replies={200: "A page of this token's jobs, or of all jobs for operators."}
)
async def list_jobs(request: web.Request, page: schemas.JobsPage) -> schemas.JobList:
    """List jobs, newest first.

    A page may have fewer jobs than `limit`, or none, even if `next` is given: `status` and the
    beginning of an id are matched against 5,000 jobs at a time."""
    query = page.to_query(
        _get_visible_owner(request), after=schemas.parse_after(page.after), limit=page.limit
    )
    jobs = request.app[JOBS]
    found, next_after = await jobs.store.search.find_page(query)
    documents = [_make_document(view) for view in await jobs.view(found)]
    return schemas.JobList(jobs=documents, next=schemas.format_after(next_after))


@ENDPOINTS.get(_JOB, _READS, replies={200: "The job."})
async def look_at_job(request: web.Request, params: schemas.FindJob) -> schemas.JobDocument:
    """Get a job and its result."""
    jobs = request.app[JOBS]
    [view] = await jobs.view([await jobs.find(params.id, _get_visible_owner(request))])
    if params.wait and view.state not in AWAITED_STATES:
        view = await request.app[JOB_POLLS].wait(request, view, params.wait)
    [document] = await _make_documents(request, [view])
    return document


@ENDPOINTS.get(
    _JOB + "/body",
    _READS,
    replies={200: (None, "The whole body, of any size and type.")},
)
async def get_job_body(request: web.Request, path: schemas.JobPath) -> web.StreamResponse:
    """Get the result's body, as the target sent it.

    The response is also 404 if the job has no stored response."""
    jobs = request.app[JOBS]
    job = await jobs.find(path.id, _get_visible_owner(request))
    if not job.has_response:
        raise web.HTTPNotFound(reason="There is no result")
    headers = {
        "Cache-Control": "no-store",
        "Content-Length": str(job.result_size),
        # These headers keep browsers from showing the target's response as a page of this site.
        "Content-Type": "application/octet-stream",
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    bytes_left = job.result_size
    try:
        async for part in jobs.store.jobs.read_body(job.id):
            await response.write(part)
            bytes_left -= len(part)
    except (DatabaseError, OSError) as error:
        log.warning("body_cut_off", job=job.id, error=str(error))
    if bytes_left:
        # The status is already sent. Only a broken connection can show that the body is incomplete.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    await _mark_read(request, job)
    return response


@ENDPOINTS.delete(
    _JOB,
    _CHANGES,
    replies={
        200: (schemas.CancelledJob, "The job is cancelled."),
        202: (schemas.CancelledJob, "The call had begun, and is being aborted (`abort`)."),
    },
    problems=(schemas.WRONG_STATE,),
)
async def cancel_job(request: web.Request, path: schemas.JobPath) -> web.Response:
    """Cancel a job.

    Idempotent. The response is 409 if the job has ended in another state, or if its call has begun
    and the target does not allow `abort`."""
    with _convert_job_errors():
        state = await request.app[JOBS].cancel(path.id, _get_visible_owner(request))
    _log_operator(request, "job_cancelled", path.id)
    if state is State.CANCELLED:
        return schemas.CancelledJob(id=path.id, state="cancelled").response()
    return schemas.CancelledJob(id=path.id, state="processing", aborting=True).response(202)


@ENDPOINTS.post(
    _JOB + "/retry",
    _CHANGES,
    replies={202: (schemas.JobDocument, "The job waits at the end of the queue.")},
    problems=(schemas.UNKNOWN_TARGET, schemas.WRONG_STATE, QUEUE_FULL),
)
async def retry_job(request: web.Request, path: schemas.JobPath) -> web.Response:
    """Retry a job that has ended."""
    jobs = request.app[JOBS]
    with _convert_job_errors():
        job = await jobs.retry(path.id, _get_visible_owner(request))
    _log_operator(request, "job_retried", path.id)
    return _make_document(await jobs.view_one(job)).response(202)


@ENDPOINTS.post(
    _JOB + "/done",
    _CHANGES,
    replies={200: "The call is over, and the next job can be called."},
    problems=(schemas.UNKNOWN_TARGET, schemas.WRONG_STATE),
)
async def end_job(request: web.Request, path: schemas.JobPath) -> schemas.JobDocument:
    """Report that an online job's call is over.

    Idempotent."""
    with _convert_job_errors():
        job = await request.app[JOBS].report_end(path.id, _get_visible_owner(request))
    return _make_document(JobView(job, job.state))


def _log_operator(request: web.Request, event: str, id_: str) -> None:
    """Log a change of a job if an operator made it."""
    if owner_of(request).is_operator:
        log.info(event, job=id_, by=find_logged_name(request))


async def _mark_read(request: web.Request, job: Job) -> None:
    """Record that a job's owner has read the result. Reads by operators do not count."""
    if owner_of(request).name == job.owner:
        await request.app[JOBS].mark_read(job)


def _get_visible_owner(request: web.Request) -> str | None:
    """Return the owner whose jobs the request may see, or None if it may see all jobs."""
    owner = owner_of(request)
    return None if owner.is_operator else owner.name


async def _make_documents(
    request: web.Request, views: Sequence[JobView]
) -> list[schemas.JobDocument]:
    """Return the jobs' documents, with result bodies that are not too large for JSON. Record that
    these results were read, unless the client is gone."""
    jobs, documents, read = request.app[JOBS], list[schemas.JobDocument](), list[Job]()
    for view in views:
        body = None
        if view.job.has_response and view.job.result_size <= schemas.MAX_INLINE_BYTES:
            body = b"".join([part async for part in jobs.store.jobs.read_body(view.job.id)])
            read.append(view.job)
        documents.append(_make_document(view, body))
    if not is_gone(request):
        for job in read:
            await _mark_read(request, job)
    return documents


def _make_document(view: JobView, body: bytes | None = None) -> schemas.JobDocument:
    """Return a job's document. `body` is the body of the target's response, None to omit it."""
    document, job = schemas.JobDocument.model_validate(view), view.job
    if not job.has_response or job.kind == "online":
        return document
    document.result = result = schemas.JobResult(
        status=job.status,
        headers=job.result_headers,
        size=job.result_size,
        body_url=f"/v1/jobs/{job.id}/body",
    )
    if body is not None:
        try:
            result.body = body.decode()
        except UnicodeDecodeError:
            result.body_base64 = base64.b64encode(body).decode()
    return document


def _check_job(body: schemas.SubmitJob, headers: MultiMapping[str], target: Target) -> NewJob:
    """Return the job in a request's body, if the target allows it. Raises InputError otherwise."""
    problems: list[str] = []
    key = body.idempotency_key
    try:
        key = read_idempotency_key(
            headers,
            key,
            member="idempotency_key",
            pattern=schemas.KEY_PATTERN,
            hint=schemas.KEY_HINT,
        )
    except InputError as error:
        problems += error.problems
    kind = body.kind or target.settings.kinds[0]
    if kind not in target.settings.kinds:
        problems.append(f"kind: {' or '.join(target.settings.kinds)} for {target.name}")
    url = body.callback_url
    if url is not None and not (len(url) <= 2048 and target.settings.may_call_back(url)):
        problems.append(f"callback_url: not one that {target.name} allows (callback_urls)")
    problems += _find_time_problems(body, target.clock.now_ms())
    call: dict[str, Any] = {"headers": {}}
    if kind == "offline":
        call = _make_call(body, problems)
    elif fields := body.model_dump(include=_CALL_FIELDS, exclude_none=True):
        names = ", ".join(sorted(fields))
        problems.append(f"{names}: not of an online job, whose call its caller makes")
    call["headers"] = _add_trace(call["headers"], headers)
    new = NewJob(
        target.name,
        kind,
        class_name=body.class_name or "",
        grant=body.grant or "",
        idempotency_key=key,
        callback_url=url,
        run_at_ms=body.run_at,
        delay_s=body.delay,
        **call,
    )
    if kind == "offline":
        try:
            check_request(target.settings, new)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return new


def _add_trace(headers: dict[str, str], defaults: MultiMapping[str]) -> dict[str, str]:
    """Return a job's headers with the trace that they name, or else with that in `defaults`."""
    if TRACEPARENT not in defaults and not any(name.lower() in TRACE_HEADERS for name in headers):
        return headers
    others = {name: text for name, text in headers.items() if name.lower() not in TRACE_HEADERS}
    named = CIMultiDict((name, text) for name, text in headers.items() if name not in others)
    return others | read_trace_context(named if TRACEPARENT in named else defaults)


def _find_time_problems(body: schemas.SubmitJob, now_ms: int) -> list[str]:
    problems = []
    if body.run_at is not None and body.run_at > now_ms + model.to_ms(schemas.MAX_DELAY_S):
        problems.append("run_at: at most 366 days ahead")
    if body.run_at is not None and body.delay is not None:
        problems.append("delay: either this or run_at")
    return problems


def _make_call(body: schemas.SubmitJob, problems: list[str]) -> dict[str, Any]:
    """Return the fields of a NewJob's HTTP request. Append its problems to `problems`."""
    data, headers, query = b"", dict(body.headers or {}), ""
    if body.body is not None and body.body_base64 is not None:
        problems.append("body: either this or body_base64")
    elif body.body_base64 is not None:
        try:
            data = base64.b64decode(body.body_base64, validate=True)
        except ValueError:
            problems.append("body_base64: is not base64")
    elif isinstance(body.body, str):
        try:
            data = body.body.encode()
        except UnicodeEncodeError:
            problems.append("body: has characters that no text has")
    elif body.body is not None:
        data = json.dumps(body.body).encode()
        if not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
    method = body.method if body.method is not None else "POST" if data else "GET"
    try:
        query = encode_query(body.query)
    except InputError as error:
        problems += error.problems
    return {
        "method": method.upper(),
        "path": body.path or "",
        "query": query,
        "headers": headers,
        "body": data,
    }
