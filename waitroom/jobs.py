"""Jobs: calls that are queued until their target has capacity."""

import base64
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

import httpx

from waitroom.blocking import BlockingMethods, blocking, blocking_context, blocking_iterator
from waitroom.core import Core, log, make_id
from waitroom.errors import Queued, Refused, WaitroomError, get_retry_s
from waitroom.model import Cancelled, Job, JobPage
from waitroom.wire import OpenResponse, Request, Response, path

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
#: Duration of a long poll for one job, and for the first of several jobs, seconds.
POLL_S = 20
POLL_SEVERAL_S = 2
#: Least time between two polls, because a replica that shuts down answers at once, seconds.
MIN_POLL_S = 0.5
#: Most jobs on one page of a list.
PAGE = 1000


class JobRequest(TypedDict, total=False):
    """Members of a submission, except for the target's name; see docs/jobs.md."""

    kind: str | None
    method: str | None
    #: Path below the target's URL.
    path: str | None
    query: str | dict[str, Any] | None
    headers: dict[str, str] | None
    #: String, bytes or a JSON value.
    body: Any
    class_name: str | None
    grant: str | None
    #: Submissions with the same key create one job. Made up by default, so that retries are safe.
    idempotency_key: str | None
    callback_url: str | None


class AsyncJobs:
    """Asyncio form of Jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def submit(self, target: str, **request: Unpack[JobRequest]) -> Job:
        """Submit a job. Raises Refused if the target's queue is full."""
        submission = _submission_request(target, request, self._core.make_repeat_id())
        return await self._submit(submission, target)

    async def _submit(
        self,
        submission: Request,
        target: str,
        undo: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Job:
        response: Response = await self._core.send_with_retries(submission, undo)
        document = response.document
        if response.status == 429:
            raise Refused(f"target {target}: the queue is full", get_retry_s(document), document)
        return document

    async def get(self, id: str) -> Job:  # noqa: A002 - the API's name
        return await self._core.call(Request("GET", path("jobs", id)))

    async def wait(self, id: str, *, timeout: float | None = None) -> Job:  # noqa: A002, ASYNC109
        """Wait until a job has ended or, if it is an online job, was called, for at most `timeout`
        seconds. Return the job in either case."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            sent_at = time.monotonic()
            poll_s = math.ceil(max(0, min(POLL_S, deadline - sent_at)))
            request = Request("GET", path("jobs", id), {"wait": str(poll_s)}, wait_s=poll_s)
            job = await self._core.call(request)
            now = time.monotonic()
            if _is_ended_or_called(job) or now >= deadline:
                return job
            await self._core.pause(max(0, min(deadline, sent_at + MIN_POLL_S) - now))

    async def cancel(self, id: str) -> Cancelled:  # noqa: A002
        """Cancel a queued job, or abort its call (`aborting`) if the target allows that. Raises
        RejectedError with status 409 if the job has ended in another way, or its call cannot be
        aborted. Idempotent."""
        return await self._core.call(Request("DELETE", path("jobs", id)))

    async def retry(self, id: str) -> Job:  # noqa: A002
        """Queue an ended job again, at the back. The client does not repeat this request."""
        request = Request("POST", path("jobs", id, "retry"), is_repeatable=False)
        return await self._core.call(request)

    async def done(self, id: str) -> Job:  # noqa: A002
        """Report that the call of an online job has ended. Idempotent."""
        return await self._core.call(Request("POST", path("jobs", id, "done")))

    async def iterate(
        self, *, target: str | None = None, state: str | None = None, page_size: int = PAGE
    ) -> AsyncGenerator[Job, None]:
        """Yield the jobs of the client's token, newest first. The admin_token sees all jobs."""
        filters = {"target": target, "state": state, "limit": str(min(page_size, PAGE))}
        query = {name: value for name, value in filters.items() if value}
        while True:
            page: JobPage = await self._core.call(Request("GET", path("jobs"), query))
            for job in page["jobs"]:
                yield job
            if page["next"] is None:
                return
            query["after"] = page["next"]

    async def results(self, ids: Iterable[str]) -> AsyncGenerator[Job, None]:
        """Yield each job once it has ended or was called. Polls at least every two seconds."""
        pending = dict.fromkeys(ids)
        while pending:
            finished = [job for id_ in pending if _is_ended_or_called(job := await self.get(id_))]
            for job in finished:
                del pending[job["id"]]
                yield job
            if not finished:
                await self.wait(next(iter(pending)), timeout=POLL_SEVERAL_S)

    async def body(self, id: str) -> AsyncGenerator[bytes, None]:  # noqa: A002
        """Yield the body of the job's result in chunks, whatever its size."""
        request = Request("GET", path("jobs", id, "body"), is_streamed=True)
        response: OpenResponse = await self._core.try_replicas(request)
        try:
            async with aclosing(self._core.iterate_body(response.response)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except httpx.TransportError as error:
            raise response.replica.to_unavailable_error(error) from error

    @asynccontextmanager
    async def permit(
        self, target: str, *, wait: float | None = None, **request: Unpack[JobRequest]
    ) -> AsyncGenerator[Job, None]:
        """Hold an online job's permit while the block runs. The block makes the call itself, with
        `job["permit"]` in the header X-Waitroom-Permit. Queue for at most `wait` seconds; None for
        no limit. A task that is cancelled while it waits leaves the queue.

        Raises Queued if there was no permit in time, and Refused if the queue is full.
        """
        # With a key, a job can be cancelled even if its submission had no response. A job whose key
        # the caller chose is not cancelled, because the caller may submit it again.
        online: JobRequest = {**request, "kind": "online"}
        submission = _submission_request(target, online, make_id())
        undo = None if request.get("idempotency_key") else partial(self._cancel_lost, submission)
        id_ = (await self._submit(submission, target, undo))["id"]
        try:
            job = await self.wait(id_, timeout=wait)
            if job["state"] != "called":
                text = f"target {target} has no permit: the job is {job['state']}"
                raise Queued(text, dict(job))  # noqa: TRY301
        except BaseException:
            await self._core.send_or_log(_cancel_request(id_))
            raise
        try:
            yield job
        finally:
            try:
                await self.done(id_)
            except WaitroomError as error:  # the permit expires by itself
                log.warning("the permit of job %s is not given back: %s", id_, error)

    async def _cancel_lost(self, submission: Request) -> None:
        """Cancel the job of a submission whose response was lost. Submit again to learn its id."""
        try:
            response: Response = await self._core.try_replicas(submission)
            if response.status != 429:
                await self._core.send_or_log(_cancel_request(response.document["id"]))
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)


class Jobs(BlockingMethods[AsyncJobs]):
    """Methods for jobs: calls that are queued until their target has capacity."""

    submit = blocking(AsyncJobs.submit)
    get = blocking(AsyncJobs.get)
    wait = blocking(AsyncJobs.wait)
    cancel = blocking(AsyncJobs.cancel)
    retry = blocking(AsyncJobs.retry)
    done = blocking(AsyncJobs.done)
    iterate = blocking_iterator(AsyncJobs.iterate)
    results = blocking_iterator(AsyncJobs.results)
    body = blocking_iterator(AsyncJobs.body)
    permit = contextmanager(blocking_context(AsyncJobs.permit))


def _submission_request(target: str, request: JobRequest, key: str) -> Request:
    """Return the request that submits a job. `key`: default for its idempotency_key; may be ""."""
    body: dict[str, Any] = {"target": target}
    body |= {name: value for name, value in request.items() if value is not None}
    if "class_name" in body:
        body["class"] = body.pop("class_name")
    if isinstance(body.get("body"), bytes):
        body["body_base64"] = base64.b64encode(body.pop("body")).decode()
    if key:
        body.setdefault("idempotency_key", key)
    has_key = "idempotency_key" in body
    queue_full = frozenset({429})
    return Request("POST", path("jobs"), body=body, statuses=queue_full, is_repeatable=has_key)


def _cancel_request(id_: str) -> Request:
    return Request("DELETE", path("jobs", id_), statuses=frozenset({409}))


def _is_ended_or_called(job: Job) -> bool:
    """Return whether a job has ended or, if it is an online job, was called."""
    return job["state"] in ENDED or job["state"] == "called"
