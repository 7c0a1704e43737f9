"""The models of jobs. A job is an HTTP call that waits until its target has capacity. A worker
makes the call of an offline job. The client itself makes the call of an online job, with a permit.
Times are in ms since 1970 by the clock of Redis, and None if the event has not happened.

    pending ──► called ──► processing ──► completed
       ▲           │            │    └──► failed
       └───────────┴────────────┘         (any of the first three ──► cancelled, expired)

Only online jobs become `called`: their permit was issued and has not been used yet.

A job passes through these types: NewJob (submitted) -> Job (a row in SQL) -> Claim (may be called,
store/target_queue.py) -> CallResult (call_result.py) -> AttemptEnd -> JobView (service.py)."""

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

from sidecar.kit.errors import SidecarError
from sidecar.kit.trace_context import HEADERS as TRACE_HEADERS
from sidecar.kit.trace_context import get_trace_id

JobKind: TypeAlias = Literal["offline", "online"]
#: How Redis counts a call. answered: the job succeeded. rejected: the response has a status that
#: fails the job. failed: the target is at fault, so the circuit breaker counts a failure.
#: busy: the response is a 429. gone: no call was made.
CallOutcome: TypeAlias = Literal["answered", "rejected", "failed", "busy", "gone"]


class State(StrEnum):  # has no docstring, because the OpenAPI document would show it
    PENDING = "pending"
    CALLED = "called"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


WAITING_STATES = frozenset({State.PENDING, State.CALLED})
ACTIVE_STATES = frozenset({State.CALLED, State.PROCESSING})
#: The final states. A job in one of these states is removed when it expires.
ENDED_STATES = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
#: The error text of an online job whose permit expired.
UNUSED_PERMIT = "nobody used the permit"
#: The length of a job's id, in characters.
ID_LENGTH = 22
ID_PATTERN = "[A-Za-z0-9_-]{22}"
#: The maximum size in bytes of a response body in one row of the database.
CHUNK_BYTES = 262_144


class JobError(SidecarError):
    """A job cannot be submitted or changed; the error text says why."""


class GrantNeededError(JobError):
    """The job has no valid grant for its class."""


class IdempotencyKeyUsedError(JobError):
    """The owner has used the idempotency key for a job with different content."""


class QueueFullError(JobError):
    """The target's queue already has `max_pending` jobs."""


class WrongStateError(JobError):
    """The job's state does not allow the change."""


def get_receiver(url: str) -> str:
    """Return scheme, host and port of a callback URL, which stand for its receiver."""
    return "/".join(url.split("/", 3)[:3]).lower()


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)


def make_job_id() -> str:
    """Return a random 128-bit id that does not begin with -, which would look like an option."""
    while (id_ := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return id_


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submitted job, checked against its target's settings (request.py)."""

    target: str
    kind: JobKind = "offline"
    method: str = "GET"
    #: The path below the target's url, and the query without ?, both percent-encoded.
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    class_name: str = ""
    grant: str = ""
    idempotency_key: str | None = None
    callback_url: str | None = None
    #: When the job may first be called: either a time, or a delay after the submission.
    run_at_ms: int | None = None
    delay_s: float | None = None

    @property
    def fingerprint(self) -> str:
        """Return a digest of the job's content. It omits the grant, because each signature differs,
        and the trace, because a client may repeat the submission within another trace."""
        headers = {name: text for name, text in self.headers.items() if name not in TRACE_HEADERS}
        request = [self.method, self.path, self.query, sorted(headers.items())]
        content: list[Any] = [self.target, self.kind, *request, self.class_name, self.callback_url]
        if self.run_at_ms is not None or self.delay_s is not None:
            content += [self.run_at_ms, self.delay_s]
        return hashlib.sha256(json.dumps(content).encode() + b"\0" + self.body).hexdigest()

    def find_due_ms(self, now_ms: int) -> int | None:
        """Return when the job may first be called if it is submitted now. None if at once."""
        due_ms = self.run_at_ms
        if self.delay_s is not None:
            due_ms = now_ms + to_ms(self.delay_s)
        return due_ms if due_ms is not None and due_ms > now_ms else None

    def has_equal_content(self, earlier: "Job", body: bytes) -> bool:
        """Return whether an earlier job, which was sent with this body, has the same content. The
        order of members in JSON and of names in the query does not matter."""
        normalized = replace(self, query=earlier.query, body=body)
        return (
            normalized.fingerprint == earlier.fingerprint
            and _sort_query(self.query) == _sort_query(earlier.query)
            and _sort_json(self.body) == _sort_json(body)
        )


def _sort_query(query: str) -> list[str]:
    """Return the parts of a query, sorted by name. Parts of the same name keep their order."""
    return sorted(query.split("&"), key=lambda part: part.partition("=")[0])


def _sort_json(body: bytes) -> bytes:
    """Return a JSON body with sorted members and uniform numbers, or any other body unchanged."""
    try:
        return json.dumps(json.loads(body, parse_float=_parse_number), sort_keys=True).encode()
    except (ValueError, RecursionError):
        return body


def _parse_number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


@dataclass(slots=True)
class Job:
    """A row of the database: the request, the state, and the result without its body."""

    id: str
    #: The name of the token that submitted the job. Other tokens cannot see the job.
    owner: str
    target: str
    kind: JobKind
    created_ms: int
    #: For a pending job, when it expires. For an ended job, when it is removed.
    expires_ms: int
    #: The job's rank in its target's queue. The smallest is next. Set by jobs/lua/reserve.lua.
    queue_order: int
    state: State = State.PENDING
    class_name: str = ""
    #: Identifies one job of an owner. The same key with another fingerprint is an error. Without a
    #: key the fingerprint is empty.
    idempotency_key: str | None = None
    fingerprint: str = ""
    method: str = "GET"
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    callback_url: str | None = None
    #: The earliest time of the next attempt.
    not_before_ms: int | None = None
    called_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    #: The number of failed attempts that count against `retries`.
    failures: int = 0
    #: The number of the latest attempt. Attempts with a smaller number cannot change the row.
    fence: int = 0
    #: Why the last attempt failed. Empty if it did not fail.
    error: str = ""
    #: The HTTP status of the last response. None if there was none.
    status: int | None = None
    result_headers: dict[str, str] = field(default_factory=dict)
    result_size: int = 0
    read_ms: int | None = None
    #: When to send the callback next. None if there is no callback to send.
    callback_ms: int | None = None
    callback_tries: int = 0

    @property
    def trace(self) -> dict[str, str]:
        """Return the job's headers of W3C Trace Context, by name. Empty if it has none."""
        return {name: self.headers[name] for name in TRACE_HEADERS if name in self.headers}

    @property
    def trace_id(self) -> str | None:
        return get_trace_id(self.headers)

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED_STATES

    @property
    def has_response(self) -> bool:
        """Return whether the target's response is stored, as the result or the failure's cause."""
        if self.state is State.FAILED:
            return bool(self.result_headers or self.result_size)
        return self.state is State.COMPLETED


class QueueEntry(NamedTuple):
    """A job to be added to its target's queue, at `not_before_ms` or at once if that is None."""

    id: str
    order: int
    is_online: bool = False
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt, to be written to SQL and to Redis. Both ignore the ending unless the
    job's fence is still `fence`."""

    id: str
    fence: int
    #: One of ENDED_STATES, or PENDING if the job is retried at `not_before_ms`.
    state: State
    at_ms: int
    #: When the ended job is removed. None leaves the job's `expires_ms` unchanged.
    expires_ms: int | None = None
    error: str = ""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: The response body. Empty if the worker has already stored it in parts.
    body: bytes = b""
    #: The size of the whole response body, in bytes.
    size: int = 0
    not_before_ms: int | None = None
    #: Whether the attempt counts against `retries`.
    is_counted: bool = False
    outcome: CallOutcome = "gone"
    took_us: int = 0
    #: The time until which the target gets no calls, because it sent Retry-After.
    hold_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A search for jobs, newest first."""

    owner: str | None = None
    target: str | None = None
    #: The states of the jobs. Empty for all states.
    states: frozenset[str] = frozenset()
    #: The lowest and the highest HTTP status of the last response.
    statuses: tuple[int, int] | None = None
    #: A job's id or its beginning. Empty for all ids.
    id: str = ""
    #: The period in which the jobs were submitted. It ends just before `to_ms`.
    from_ms: int | None = None
    to_ms: int | None = None
    #: The created_ms and id of the last job on the previous page.
    after: tuple[int, str] | None = None
    limit: int = 100

    @property
    def needs_scan(self) -> bool:
        """Return True if no index covers the search, so that the search must scan jobs."""
        return self.statuses is not None or 0 < len(self.id) < ID_LENGTH


@dataclass(frozen=True, slots=True)
class EndedJobs:
    """The numbers of jobs that ended in one time step, which begins at `at_ms`. The means cover the
    jobs whose calls began. They are None if there are no such jobs."""

    at_ms: int
    completed: int
    failed: int
    #: The jobs that were cancelled or expired.
    other: int
    #: The time from the submission until the last attempt began.
    mean_wait_ms: int | None
    #: The time from the beginning of the last attempt until the end.
    mean_ms: int | None
