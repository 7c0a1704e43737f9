"""Jobs for programs: submit, look up, wait, cancel, retry, report that a call is over."""

import base64
import json
import re

import structlog
from aiohttp import web

from sidecar.http.auth.owner import owner_of
from sidecar.http.auth.session import operator
from sidecar.http.endpoint import Endpoints, programs
from sidecar.http.long_poll import is_gone
from sidecar.http.problem_kinds import DATABASE_UNAVAILABLE, QUEUE_FULL
from sidecar.jobs import model, schemas
from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.endpoints.long_poll import JOB_POLLS, OVER
from sidecar.jobs.model import State
from sidecar.jobs.request import Call, check_request, write_query
from sidecar.jobs.schemas import (
    GRANT_NEEDED,
    IDEMPOTENCY_KEY_USED,
    KEY,
    KEY_WANTED,
    MAX_INLINE,
    UNKNOWN_JOB,
    UNKNOWN_TARGET,
    WRONG_STATE,
    CancelledJob,
    FindJob,
    Job,
    JobAddress,
    JobResult,
    SubmitHeaders,
    SubmitJob,
)
from sidecar.jobs.search_schemas import JobsPage, read_after, write_after
from sidecar.jobs.service import Jobs, Order, Seen
from sidecar.kit.errors import ConfigError, DatabaseError, StoreError

log = structlog.get_logger()

ENDPOINTS = Endpoints("jobs", problems=(DATABASE_UNAVAILABLE,))
_READS = programs("jobs", "read", role="viewer")
_CHANGES = programs("jobs", role="operator")
_JOB = "/v1/jobs/{id}"
#: Members of a job whose call a worker makes.
_OF_CALLS = {"method", "path", "query", "headers", "body", "body_base64"}


@ENDPOINTS.post(
    "/v1/jobs",
    _CHANGES,
    headers=SubmitHeaders,
    replies={
        202: (Job, "It waits, and is not lost."),
        200: (Job, "The job that was submitted before under this key, with the same content."),
    },
    problems=(UNKNOWN_TARGET, GRANT_NEEDED, IDEMPOTENCY_KEY_USED, QUEUE_FULL),
)
async def submit_job(request: web.Request, body: SubmitJob) -> web.Response:
    """Submit a job.

    The response header `Location` names the job.
    """
    jobs = request.app[JOBS]
    order = _order(body, request.headers.get("Idempotency-Key"), jobs)
    job, is_new = await jobs.submit(owner_of(request).name, order)
    headers = {"Location": f"/v1/jobs/{job.id}"}
    return (await _accepted(jobs, job)).response(202 if is_new else 200, headers)


@ENDPOINTS.get(
    "/v1/jobs", _READS, replies={200: "A page of this token's jobs; of all jobs for operators."}
)
async def list_jobs(request: web.Request, page: JobsPage) -> schemas.Jobs:
    """List jobs, newest first.

    A page may have fewer jobs than `limit`, or none, while `next` says that others follow: `status`
    and the beginning of an id are looked for among 5,000 jobs at a time.
    """
    query = page.query(seen_by(request), after=read_after(page.after), limit=page.limit)
    jobs = request.app[JOBS]
    found = await jobs.store.search.page(query)
    return schemas.Jobs(
        jobs=[_document(seen) for seen in await jobs.see(found.jobs)],
        next=write_after(found.next),
    )


@ENDPOINTS.get(_JOB, _READS, replies={200: (Job, "As it stands.")}, problems=(UNKNOWN_JOB,))
async def look_at_job(request: web.Request, at: FindJob) -> web.Response:
    """Get a job and its result."""
    jobs = request.app[JOBS]
    [seen] = await jobs.see([await jobs.find(at.id, seen_by(request))])
    if at.wait and seen.state not in OVER:
        seen = await request.app[JOB_POLLS].wait(request, seen, at.wait)
    body = None
    if seen.job.has_answer and seen.job.result_size <= MAX_INLINE:
        body = b"".join([part async for part in jobs.store.jobs.chunks(at.id)])
    response = _document(seen, body).response()
    if body is not None and not is_gone(request):
        await _mark_read(request, seen.job)
    return response


@ENDPOINTS.get(
    _JOB + "/body",
    _READS,
    replies={200: (None, "All of it, whatever its size and type.")},
    problems=(UNKNOWN_JOB,),
)
async def get_job_body(request: web.Request, at: JobAddress) -> web.StreamResponse:
    """Get the result's body, as the target sent it.

    404 also if no answer is stored.
    """
    jobs = request.app[JOBS]
    job = await jobs.find(at.id, seen_by(request))
    if not job.has_answer:
        raise web.HTTPNotFound(reason="There is no result")
    headers = {
        "Cache-Control": "no-store",
        "Content-Length": str(job.result_size),
        # Whatever it is, it is no page of ours.
        "Content-Type": "application/octet-stream",
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    left = job.result_size
    try:
        async for part in jobs.store.jobs.chunks(job.id):
            await response.write(part)
            left -= len(part)
    except (DatabaseError, OSError) as error:
        log.warning("body_cut_off", job=job.id, error=str(error))
    if left:
        # The status is sent: only a broken connection says that some of it is missing.
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
        200: (CancelledJob, "It is cancelled."),
        202: (CancelledJob, "Its call was begun, and is being cut off (`abort`)."),
    },
    problems=(UNKNOWN_JOB, WRONG_STATE),
)
async def cancel_job(request: web.Request, at: JobAddress) -> web.Response:
    """Cancel a job.

    Idempotent. 409 if it has ended otherwise, or if its call has begun and the target has no
    `abort`.
    """
    state = await request.app[JOBS].cancel(at.id, seen_by(request))
    _note(request, "job_cancelled", at.id)
    if state is State.CANCELLED:
        return CancelledJob(id=at.id, state="cancelled").response()
    return CancelledJob(id=at.id, state="processing", aborting=True).response(202)


@ENDPOINTS.post(
    _JOB + "/retry",
    _CHANGES,
    replies={202: (Job, "It waits, at the end of the queue.")},
    problems=(UNKNOWN_JOB, UNKNOWN_TARGET, WRONG_STATE, QUEUE_FULL),
)
async def retry_job(request: web.Request, at: JobAddress) -> web.Response:
    """Retry a job that has ended."""
    jobs = request.app[JOBS]
    job = await jobs.retry(at.id, seen_by(request))
    _note(request, "job_retried", at.id)
    return (await _accepted(jobs, job)).response(202)


@ENDPOINTS.post(
    _JOB + "/done",
    _CHANGES,
    replies={200: "It is, and the next one is called."},
    problems=(UNKNOWN_JOB, UNKNOWN_TARGET, WRONG_STATE),
)
async def end_job(request: web.Request, at: JobAddress) -> Job:
    """Report that an online job's call is over.

    Idempotent.
    """
    job = await request.app[JOBS].done(at.id, seen_by(request))
    return _document(Seen(job, job.state))


def _note(request: web.Request, event: str, id_: str) -> None:
    """Logs what operators do to others' jobs."""
    if owner_of(request).is_operator:
        log.info(event, job=id_, by=operator(request))


async def _mark_read(request: web.Request, job: model.Job) -> None:
    """An operator's reading of a result does not count."""
    if owner_of(request).name == job.owner:
        await request.app[JOBS].was_read(job)


def seen_by(request: web.Request) -> str | None:
    """Whose jobs may be seen; None: all."""
    owner = owner_of(request)
    return None if owner.is_operator else owner.name


async def _accepted(jobs: Jobs, job: model.Job) -> Job:
    """Also where Redis cannot say its place."""
    try:
        [seen] = await jobs.see([job])
    except StoreError:
        seen = Seen(job, job.state)
    return _document(seen)


def _document(seen: Seen, body: bytes | None = None) -> Job:
    """`body`: the answer's, where it is sent with it."""
    document = Job.model_validate(seen)
    document.result = _result(seen.job, body)
    return document


def _result(job: model.Job, body: bytes | None) -> JobResult | None:
    if not job.has_answer or job.kind == "online":
        return None
    result = JobResult(
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
    return result


def _order(body: SubmitJob, key: str | None, jobs: Jobs) -> Order:
    """Raises ConfigError naming all that is wrong with it, UnknownNameError."""
    problems: list[str] = []
    if body.idempotency_key is None and key is not None and not re.fullmatch(KEY, key):
        problems.append(f"idempotency_key: {KEY_WANTED}")
    target = jobs.targets.get(body.target)
    kind = body.kind or target.settings.kinds[0]
    if kind not in target.settings.kinds:
        problems.append(f"kind: {' or '.join(target.settings.kinds)} for {target.name}")
    url = body.callback_url
    if url is not None and not (len(url) <= 2048 and target.settings.may_call_back(url)):
        problems.append(f"callback_url: not one that {target.name} allows (callback_urls)")
    call = Call()
    try:
        if kind == "offline":
            call, _ = check_request(target.settings, _call(body, problems))
        elif given := body.model_dump(include=_OF_CALLS, exclude_none=True):
            names = ", ".join(sorted(given))
            problems.append(f"{names}: not of an online job, whose call its caller makes")
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Order(
        target,
        kind,
        call,
        class_name=body.class_name or "",
        grant=body.grant or "",
        idempotency_key=key if body.idempotency_key is None else body.idempotency_key,
        callback_url=url,
    )


def _call(body: SubmitJob, problems: list[str]) -> Call:
    """The request as it was submitted, and what is wrong with it."""
    data, headers = b"", dict(body.headers or {})
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
    query = ""
    try:
        query = write_query(body.query)
    except ConfigError as error:
        problems += error.problems
    return Call(method, body.path or "", query, headers, data)
