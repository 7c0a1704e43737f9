"""Jobs: calls that wait for their turn at a target."""

import base64
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

import httpx

from waitroom.blocking import Shell, blocking, entering, iterating
from waitroom.core import Core, log, make_id
from waitroom.errors import Queued, Refused, WaitroomError, retry_s
from waitroom.model import Cancelled, Job, JobPage
from waitroom.wire import OpenResponse, Request, Response, path

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
#: How long one request waits for a job, and for the first of several jobs, seconds.
POLL_S = 20
POLL_SEVERAL_S = 2
#: The least time between two requests: a replica that is stopping answers at once, seconds.
MIN_POLL_S = 0.5
#: The longest page of a list.
PAGE = 1000


class JobRequest(TypedDict, total=False):
    """The members of a submission beside the target's name; see docs/jobs.md."""

    kind: str | None
    method: str | None
    #: Below the target's url.
    path: str | None
    query: str | dict[str, Any] | None
    headers: dict[str, str] | None
    #: Text, bytes, or a JSON value.
    body: Any
    class_name: str | None
    grant: str | None
    #: A second submission with the same key is the same job. By default the client makes one if it
    #: may have to repeat the submission.
    idempotency_key: str | None
    callback_url: str | None


class AsyncJobs:
    """As Jobs."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def submit(self, target: str, **request: Unpack[JobRequest]) -> Job:
        """Submit a job. Raises Refused if the target's queue is full."""
        return await self._submit(_submission(target, request, self._core.repeat_id()), target)

    async def _submit(
        self,
        submission: Request,
        target: str,
        undo: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> Job:
        answer: Response = await self._core.sent(submission, undo)
        job: Job = answer.document
        if answer.status == 429:
            refusal = answer.document
            raise Refused(f"target {target}: the queue is full", retry_s(refusal), refusal)
        return job

    async def get(self, id: str) -> Job:  # noqa: A002 - the API's word
        return await self._core.document(Request("GET", path("jobs", id)))

    async def wait(self, id: str, *, timeout: float | None = None) -> Job:  # noqa: A002, ASYNC109
        """Wait until a job has ended, or an online one is called, for at most `timeout` seconds.
        Return the job in either case."""
        ends = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            sent_at = time.monotonic()
            poll_s = math.ceil(max(0, min(POLL_S, ends - sent_at)))
            call = Request("GET", path("jobs", id), {"wait": str(poll_s)}, wait_s=poll_s)
            job = await self._core.document(call)
            now = time.monotonic()
            if _is_over(job) or now >= ends:
                return job
            await self._core.pause(max(0, min(ends, sent_at + MIN_POLL_S) - now))

    async def cancel(self, id: str) -> Cancelled:  # noqa: A002
        """Cancel a waiting job, or cut off its call (`aborting`) if the target allows it. Raises
        RejectedError with status 409 if it has ended otherwise, or its call has begun.
        Idempotent."""
        return await self._core.document(Request("DELETE", path("jobs", id)))

    async def retry(self, id: str) -> Job:  # noqa: A002
        """Queue an ended job again, at the end. Not repeated by the client."""
        request = Request("POST", path("jobs", id, "retry"), is_repeatable=False)
        return await self._core.document(request)

    async def done(self, id: str) -> Job:  # noqa: A002
        """Report the end of an online job's call. Idempotent."""
        return await self._core.document(Request("POST", path("jobs", id, "done")))

    async def iterate(
        self, *, target: str | None = None, state: str | None = None, page_size: int = PAGE
    ) -> AsyncGenerator[Job, None]:
        """Yield the token's jobs, newest first; with the admin_token all jobs."""
        filters = {"target": target, "state": state, "limit": str(min(page_size, PAGE))}
        query = {name: value for name, value in filters.items() if value}
        while True:
            page: JobPage = await self._core.document(Request("GET", path("jobs"), query))
            for job in page["jobs"]:
                yield job
            if page["next"] is None:
                return
            query["after"] = page["next"]

    async def results(self, ids: Iterable[str]) -> AsyncGenerator[Job, None]:
        """Yield each job as soon as it has ended, or was called. Polls every two seconds."""
        left = dict.fromkeys(ids)
        while left:
            over = [job for id_ in left if _is_over(job := await self.get(id_))]
            for job in over:
                del left[job["id"]]
                yield job
            if not over:
                await self.wait(next(iter(left)), timeout=POLL_SEVERAL_S)

    async def body(self, id: str) -> AsyncGenerator[bytes, None]:  # noqa: A002
        """Yield the body of the result, of any size."""
        call = Request("GET", path("jobs", id, "body"), is_streamed=True)
        opened: OpenResponse = await self._core.ask_each(call)
        try:
            async with aclosing(self._core.parts(opened.response)) as parts:
                async for part in parts:
                    yield part
        except httpx.TransportError as error:
            raise opened.replica.unavailable(error) from error

    @asynccontextmanager
    async def permit(
        self, target: str, *, wait: float | None = None, **request: Unpack[JobRequest]
    ) -> AsyncGenerator[Job, None]:
        """Hold an online job's permit while the block runs: the block makes the call, with
        `job["permit"]` in the header X-Waitroom-Permit. Queue for it for `wait` seconds; None:
        without a limit. A task that is cancelled meanwhile leaves the queue.

        Raises Queued, and Refused if the queue is full.
        """
        # With a key, even a job whose submission had no response can be cancelled. A job with the
        # caller's own key stays: the caller may ask for it again.
        online: JobRequest = {**request, "kind": "online"}
        submission = _submission(target, online, make_id())
        undo = None if request.get("idempotency_key") else partial(self._take_back, submission)
        id_ = (await self._submit(submission, target, undo))["id"]
        try:
            job = await self.wait(id_, timeout=wait)
            if job["state"] != "called":
                text = f"target {target} has no permit: the job is {job['state']}"
                raise Queued(text, dict(job))  # noqa: TRY301
        except BaseException:
            await self._core.quietly(_cancellation(id_))
            raise
        try:
            yield job
        finally:
            try:
                await self.done(id_)
            except WaitroomError as error:  # the permit ends by itself
                log.warning("the permit of job %s is not given back: %s", id_, error)

    async def _take_back(self, submission: Request) -> None:
        """Cancel the job of a submission without a response: the same key returns the same job."""
        try:
            answer: Response = await self._core.ask_each(submission)
            if answer.status != 429:
                await self._core.quietly(_cancellation(answer.document["id"]))
        except WaitroomError as error:
            log.warning("not tidied up: %s", error)


class Jobs(Shell[AsyncJobs]):
    """Calls that wait for their turn at a target."""

    submit = blocking(AsyncJobs.submit)
    get = blocking(AsyncJobs.get)
    wait = blocking(AsyncJobs.wait)
    cancel = blocking(AsyncJobs.cancel)
    retry = blocking(AsyncJobs.retry)
    done = blocking(AsyncJobs.done)
    iterate = iterating(AsyncJobs.iterate)
    results = iterating(AsyncJobs.results)
    body = iterating(AsyncJobs.body)
    permit = contextmanager(entering(AsyncJobs.permit))


def _submission(target: str, request: JobRequest, key: str) -> Request:
    """Make a submission. `key` is its idempotency_key unless the request has one; "" is none."""
    body: dict[str, Any] = {"target": target}
    body |= {name: value for name, value in request.items() if value is not None}
    if "class_name" in body:
        body["class"] = body.pop("class_name")
    if isinstance(body.get("body"), bytes):
        body["body_base64"] = base64.b64encode(body.pop("body")).decode()
    if key:
        body.setdefault("idempotency_key", key)
    is_named = "idempotency_key" in body
    full = frozenset({429})
    return Request("POST", path("jobs"), body=body, statuses=full, is_repeatable=is_named)


def _cancellation(id_: str) -> Request:
    return Request("DELETE", path("jobs", id_), statuses=frozenset({409}))


def _is_over(job: Job) -> bool:
    """Return whether a job has ended, or is an online one that was called."""
    return job["state"] in ENDED or job["state"] == "called"
