"""Jobs for programs: submit, look, wait, cancel, try again, say that a call is over."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from sidecar.jobs.app_keys import JOBS
from sidecar.jobs.endpoints.long_poll import JOB_POLLS
from sidecar.jobs.model import ENDED, State
from sidecar.jobs.request import read_request
from sidecar.jobs.service import Jobs, Order, Seen
from sidecar.jobs.store.jobs import JobQuery
from sidecar.kit.clock import iso
from sidecar.kit.errors import ConfigError, DatabaseError, StoreError
from sidecar.kit.http.auth.owner import owner_of
from sidecar.kit.http.auth.session import operator
from sidecar.kit.http.long_poll import is_gone, wait_of
from sidecar.kit.http.request_parameters import object_of, whole_of

if TYPE_CHECKING:
    from sidecar.jobs.model import Job
    from sidecar.jobs.targets import Target

#: Answers in a job's document, bytes; what is longer is at its /body.
MAX_INLINE = 65_536
LIST_LIMIT, DEFAULT_LIMIT = 1000, 100
MAX_IDEMPOTENCY_KEY = 128
_MEMBERS = frozenset({
    "target", "kind", "method", "path", "query", "headers", "body", "body_base64", "class",
    "grant", "idempotency_key", "callback_url",
})  # fmt: skip
_TEXTS = ("target", "kind", "method", "path", "class", "grant", "idempotency_key", "callback_url")
_NO_STORE = {"Cache-Control": "no-store"}

log = structlog.get_logger()


async def submit(request: web.Request) -> web.Response:
    """202: it waits, and is not lost. 200: the same as before, by its idempotency_key."""
    jobs = request.app[JOBS]
    order = _order(request, await object_of(request), jobs)
    job, is_new = await jobs.submit(owner_of(request).name, order)
    seen = await _standing(jobs, job)
    headers = {**_NO_STORE, "Location": f"/v1/jobs/{job.id}"}
    return _json(told(seen), status=202 if is_new else 200, headers=headers)


async def look(request: web.Request) -> web.StreamResponse:
    """`?wait=20`: the answer comes when the job has ended, or may be called by its caller; or
    after so many seconds."""
    jobs, owner = request.app[JOBS], _owner(request)
    wait_s = wait_of(request)
    seen = await jobs.look(request.match_info["id"], owner)
    if wait_s and seen.state not in ENDED | {State.CALLED}:
        seen = await request.app[JOB_POLLS].wait(request, seen, wait_s)
    body = await _inline(jobs, seen.job)
    response = _json(told(seen, body))
    if body is not None and not is_gone(request) and _is_callers(request, seen.job):
        await jobs.was_read(seen.job)
    return response


async def body(request: web.Request) -> web.StreamResponse:
    """The answer's body as it came, whatever its size."""
    jobs = request.app[JOBS]
    job = await jobs.find(request.match_info["id"], _owner(request))
    if not job.has_answer:
        raise web.HTTPNotFound(reason="There is no result")
    headers = {
        **_NO_STORE,
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
        async for part in jobs.body(job):
            await response.write(part)
            left -= len(part)
    except (DatabaseError, OSError) as error:
        log.warning("body_cut_off", job=job.id, error=str(error))
    if left:
        # What is missing cannot be said any more but by an end that is none.
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    if _is_callers(request, job):
        await jobs.was_read(job)
    return response


async def cancel(request: web.Request) -> web.Response:
    state = await request.app[JOBS].cancel(request.match_info["id"], _owner(request))
    _note(request, "job_cancelled")
    if state is State.CANCELLED:
        return _json({"id": request.match_info["id"], "state": state})
    document = {"id": request.match_info["id"], "state": state, "aborting": True}
    return _json(document, status=202)


async def retry(request: web.Request) -> web.Response:
    jobs = request.app[JOBS]
    job = await jobs.retry(request.match_info["id"], _owner(request))
    _note(request, "job_retried")
    return _json(told(await _standing(jobs, job)), status=202)


def _note(request: web.Request, what: str) -> None:
    """What operators do to others' jobs."""
    if owner_of(request).is_operator:
        log.info(what, job=request.match_info["id"], by=operator(request))


async def _standing(jobs: Jobs, job: Job) -> Seen:
    """It was taken, and its caller is told so also where the store cannot say its place."""
    try:
        [seen] = await jobs.see([job])
    except StoreError:
        return Seen(job, job.state)
    return seen


async def done(request: web.Request) -> web.Response:
    """The caller's own call is over. Twice equals once."""
    jobs = request.app[JOBS]
    job = await jobs.done(request.match_info["id"], _owner(request))
    return _json(told(Seen(job, job.state)))


async def list_jobs(request: web.Request) -> web.Response:
    """Newest first. `next`: what `after` says to get the following ones."""
    jobs = request.app[JOBS]
    query = _query(request)
    found = await jobs.page(query)
    last = found[-1].job if len(found) == query.limit else None
    return _json({
        "jobs": [told(seen) for seen in found],
        "next": f"{last.created_ms}.{last.id}" if last else None,
    })  # fmt: skip


def told(seen: Seen, body: bytes | None = None) -> dict[str, Any]:
    """A job's document. `body`: the answer's, where it is told with it."""
    job = seen.job
    return {
        "id": job.id,
        "target": job.target,
        "kind": job.kind,
        "state": seen.state,
        "owner": job.owner,
        "class": job.class_name or None,
        "method": job.method,
        "path": job.path,
        "query": job.query or None,
        "position": seen.position,
        "wait_seconds": None if seen.wait_s is None else round(seen.wait_s, 3),
        "attempts": job.attempts,
        "status": job.status,
        "error": job.error or None,
        "created_at": iso(job.created_ms),
        "called_at": _iso(job.called_ms),
        "started_at": _iso(job.started_ms),
        "ended_at": _iso(job.ended_ms),
        "expires_at": iso(job.expires_ms),
        "retry_at": _iso(seen.retry_ms),
        "permit": seen.permit,
        "permit_expires_at": _iso(seen.permit_expires_ms),
        "result": _result(job, body),
    }


def _result(job: Job, body: bytes | None) -> dict[str, Any] | None:
    if not job.has_answer or job.kind == "online":
        return None
    result: dict[str, Any] = {
        "status": job.status,
        "headers": job.result_headers,
        "size": job.result_size,
        "body_url": f"/v1/jobs/{job.id}/body",
    }
    if body is not None:
        try:
            result["body"] = body.decode()
        except UnicodeDecodeError:
            result["body_base64"] = base64.b64encode(body).decode()
    return result


async def _inline(jobs: Jobs, job: Job) -> bytes | None:
    if not job.has_answer or job.result_size > MAX_INLINE:
        return None
    return b"".join([part async for part in jobs.body(job)])


def _iso(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso(at_ms)


def _owner(request: web.Request) -> str | None:
    """Whose jobs may be seen; None: everybody's."""
    owner = owner_of(request)
    return None if owner.is_operator else owner.name


def _is_callers(request: web.Request, job: Job) -> bool:
    """Whoever looks after it reads it for nobody."""
    return owner_of(request).name == job.owner


def _order(request: web.Request, body: dict[str, Any], jobs: Jobs) -> Order:
    """Raises ConfigError naming all that is wrong with it, UnknownNameError."""
    problems = [f"{name[:40]}: {_unknown(name)}" for name in sorted(body.keys() - _MEMBERS)]
    given = {name: value for name, value in body.items() if value is not None}
    given.setdefault("idempotency_key", request.headers.get("Idempotency-Key"))
    texts = {name: given[name] for name in _TEXTS if given.get(name) is not None}
    problems += [f"{name}: a text" for name, value in texts.items() if not isinstance(value, str)]
    if not texts.get("target"):
        problems.append('target: is needed, such as "images"')
    if problems:
        raise ConfigError(problems)
    target = jobs.targets.get(texts["target"])
    kind = texts.get("kind", target.settings.kinds[0])
    if kind not in target.settings.kinds:
        problems.append(f"kind: {' or '.join(target.settings.kinds)} for {target.name}")
    problems += _names(texts, target)
    data, media = _body_of(given, problems)
    call = None
    try:
        if kind == "offline":
            headers = given.get("headers", {})
            if media and isinstance(headers, dict):
                headers = _with_type(headers, media)
            call = read_request(
                target.settings,
                method=texts.get("method", "POST" if data else "GET"),
                path=texts.get("path", ""),
                query=given.get("query", ""),
                headers=headers,
                body=data,
            )
        elif extra := given.keys() & {"method", "path", "query", "headers", "body", "body_base64"}:
            said = ", ".join(sorted(extra))
            problems.append(f"{said}: not of an online job, whose call its caller makes")
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    asked: dict[str, Any] = {}
    if call is not None:
        asked = {"method": call.method, "path": call.path, "query": call.query,
                 "headers": call.headers, "body": call.body}  # fmt: skip
    return Order(
        target,
        "online" if kind == "online" else "offline",
        class_name=texts.get("class", ""),
        grant=texts.get("grant", ""),
        idempotency_key=texts.get("idempotency_key"),
        callback_url=texts.get("callback_url"),
        **asked,
    )


def _unknown(name: str) -> str:
    if name == "priority":
        return "is what a class has; send a signed grant, which gives a class"
    return "there is no such member"


def _names(texts: dict[str, str], target: Target) -> list[str]:
    problems = []
    key, url = texts.get("idempotency_key"), texts.get("callback_url")
    if key is not None and not (
        0 < len(key) <= MAX_IDEMPOTENCY_KEY and all("!" <= c <= "~" for c in key)
    ):
        problems.append(f"idempotency_key: 1 to {MAX_IDEMPOTENCY_KEY} visible ASCII characters")
    if url is not None and not (len(url) <= 2048 and target.settings.may_call_back(url)):
        problems.append(f"callback_url: not one that {target.name} allows (callback_urls)")
    return problems


def _body_of(given: dict[str, Any], problems: list[str]) -> tuple[bytes, str]:
    """The request's body, and its type where that follows from how it was written."""
    if "body" in given and "body_base64" in given:
        problems.append("body: either this or body_base64")
    elif "body_base64" in given:
        try:
            return base64.b64decode(given["body_base64"], validate=True), ""
        except (TypeError, ValueError, binascii.Error):
            problems.append("body_base64: is not base64")
    elif isinstance(given.get("body"), str):
        try:
            return given["body"].encode(), ""
        except UnicodeEncodeError:
            problems.append("body: has characters that no text has")
    elif "body" in given:
        return json.dumps(given["body"]).encode(), "application/json"
    return b"", ""


def _with_type(headers: dict[str, Any], media: str) -> dict[str, Any]:
    if any(str(name).lower() == "content-type" for name in headers):
        return headers
    return {**headers, "Content-Type": media}


def _query(request: web.Request) -> JobQuery:
    asked = request.query
    odd = sorted(asked.keys() - {"target", "state", "after", "limit"})
    problems = [f"{name[:40]}: there is no such parameter" for name in odd]
    state = asked.get("state")
    if state is not None and state not in list(State):
        problems.append(f"state: one of {', '.join(State)}")
    limit = whole_of(int(asked["limit"]) if _is_number(asked.get("limit")) else None)
    if "limit" in asked and (limit is None or not 1 <= limit <= LIST_LIMIT):
        problems.append(f"limit: a whole number from 1 to {LIST_LIMIT}")
    after = None
    if "after" in asked:
        ms, _, id_ = asked["after"].partition(".")
        if _is_number(ms) and id_ and len(id_) <= 32 and id_.isascii():
            after = int(ms), id_
        else:
            problems.append("after: what `next` said")
    if problems:
        raise ConfigError(problems)
    return JobQuery(
        owner=_owner(request),
        target=asked.get("target"),
        state=state,
        after=after,
        limit=limit or DEFAULT_LIMIT,
    )


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdigit() and len(text) <= 15


def _json(
    document: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status,
        body=json.dumps(document).encode(),
        content_type="application/json",
        headers=headers or _NO_STORE,
    )
