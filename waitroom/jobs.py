"""Jobs: calls that wait for their turn at a target."""

from __future__ import annotations

import base64
import math
import time
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from waitroom.core import Core, Flow, Pause, log, make_id, retry_s
from waitroom.errors import Queued, Refused, WaitroomError
from waitroom.wire import Answer, Call, path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from waitroom.model import Cancelled, Job, JobPage

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
#: How long one request waits for a job, and one for the first of several, seconds.
POLL_S = 20
POLL_SEVERAL_S = 2
#: Between two requests, where a replica that stops answers at once, seconds.
MIN_POLL_S = 0.5
#: The longest page of a list.
PAGE = 1000


class JobRequest(TypedDict, total=False):
    """What is submitted beside the target's name; docs/jobs.md."""

    kind: str | None
    method: str | None
    #: Below the target's url.
    path: str | None
    query: str | dict[str, Any] | None
    headers: dict[str, str] | None
    #: Text, bytes, or what JSON can say.
    body: Any
    class_name: str | None
    grant: str | None
    #: The same key again is the same job. The client makes one up where it may have to repeat.
    idempotency_key: str | None
    callback_url: str | None


def submit(core: Core, /, target: str, **request: Unpack[JobRequest]) -> Flow[Job]:
    """Raises Refused where the target's queue is full."""
    body: dict[str, Any] = {"target": target}
    body |= {name: value for name, value in request.items() if value is not None}
    if "class_name" in body:
        body["class"] = body.pop("class_name")
    if isinstance(body.get("body"), bytes):
        body["body_base64"] = base64.b64encode(body.pop("body")).decode()
    if core.is_repeating:
        body.setdefault("idempotency_key", make_id())
    call = Call(
        "POST", path("jobs"), body=body, statuses=frozenset({429}),
        is_repeatable="idempotency_key" in body,
    )  # fmt: skip
    answer: Answer = yield from core.sent(call)
    if answer.status == 429:
        raise Refused(f"target {target}: the queue is full", retry_s(answer.document),
                      answer.document)  # fmt: skip
    job: Job = answer.document
    return job


def get(core: Core, /, id: str) -> Flow[Job]:  # noqa: A002 - the API's word
    return core.document(Call("GET", path("jobs", id)))


def wait(core: Core, /, id: str, *, timeout: float | None = None) -> Flow[Job]:  # noqa: A002
    """The job when it has ended, or an online one is called; after `timeout` seconds, as it is."""
    ends = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        sent_at = time.monotonic()
        poll_s = math.ceil(max(0, min(POLL_S, ends - sent_at)))
        call = Call("GET", path("jobs", id), {"wait": str(poll_s)}, wait_s=poll_s)
        job: Job = yield from core.document(call)
        now = time.monotonic()
        if job["state"] in ENDED or job["state"] == "called" or now >= ends:
            return job
        yield Pause(max(0, min(ends, sent_at + MIN_POLL_S) - now))


def wait_for_some(core: Core, ids: Iterable[str]) -> Flow[list[Job]]:
    """Those that have ended, or were called; at least one."""
    while True:
        over, first = [], ""
        for id_ in ids:
            job = yield from get(core, id_)
            if job["state"] in ENDED or job["state"] == "called":
                over.append(job)
            first = first or id_
        if over:
            return over
        yield from wait(core, first, timeout=POLL_SEVERAL_S)


def page(
    core: Core, target: str | None, state: str | None, after: str | None, limit: int
) -> Flow[JobPage]:
    given = {"target": target, "state": state, "after": after, "limit": str(min(limit, PAGE))}
    query = {name: value for name, value in given.items() if value}
    return core.document(Call("GET", path("jobs"), query))


def cancel(core: Core, /, id: str) -> Flow[Cancelled]:  # noqa: A002
    """Cancels a job that waits, or cuts off its call (`aborting`) where the target allows it.
    RejectedError with status 409 where it has ended otherwise, or its call was begun. Idempotent.
    """
    return core.document(Call("DELETE", path("jobs", id)))


def retry(core: Core, /, id: str) -> Flow[Job]:  # noqa: A002
    """One that has ended waits again, at the end of the queue. Not repeated by the client."""
    return core.document(Call("POST", path("jobs", id, "retry"), is_repeatable=False))


def done(core: Core, /, id: str) -> Flow[Job]:  # noqa: A002
    """An online job's call is over. Idempotent."""
    return core.document(Call("POST", path("jobs", id, "done")))


def body_path(id: str) -> str:  # noqa: A002
    return path("jobs", id, "body")


def take_permit(core: Core, target: str, timeout: float | None, request: JobRequest) -> Flow[Job]:
    """An online job that is called; it is cancelled when that does not happen in time."""
    online: JobRequest = {**request, "kind": "online"}
    submitted = yield from submit(core, target, **online)
    try:
        job = yield from wait(core, submitted["id"], timeout=timeout)
        if job["state"] != "called":
            raise Queued(f"target {target} has no permit: the job is {job['state']}", dict(job))  # noqa: TRY301
    except BaseException:
        yield from core.quietly(
            Call("DELETE", path("jobs", submitted["id"]), statuses=frozenset({409}))
        )
        raise
    return job


def give_permit_back(core: Core, job: Job) -> Flow[None]:
    """Where that fails, the permit ends by itself."""
    try:
        yield from done(core, job["id"])
    except WaitroomError as error:
        log.warning("the permit of job %s is not given back: %s", job["id"], error)
