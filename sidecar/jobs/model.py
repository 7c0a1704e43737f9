"""Jobs: calls that wait until their target has capacity. Times are ms since 1970 by the clock of
Redis, and None if the event has not happened.

    pending ──► called ──► processing ──► completed
       ▲           │            │    └──► failed
       └───────────┴────────────┘         (cancelled, expired: from any of the first three)

Only online jobs are `called`: their permit was issued and has not been used yet.

A job's types, in order: NewJob (submitted) -> Job (a row in SQL) -> Claim (Redis lets it be called,
store/target_queue.py) -> CallResult (call_result.py) -> Ending -> JobView (service.py).
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from sidecar.kit.errors import SidecarError

JobKind: TypeAlias = Literal["offline", "online"]
#: The outcome of a call, as the target's queue in Redis counts it. answered: the job succeeded.
#: rejected: the target responded with a status that fails the job. failed: the target is at fault;
#: counts for the breaker. busy: 429. gone: no call was made.
CallNote: TypeAlias = Literal["answered", "rejected", "failed", "busy", "gone"]


class State(StrEnum):
    PENDING = "pending"
    CALLED = "called"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


WAITS = frozenset({State.PENDING, State.CALLED})
RUNS = frozenset({State.CALLED, State.PROCESSING})
#: The final states: a job in one of them is kept until it expires, and then removed.
ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
#: Characters of a job's id.
ID_LENGTH = 22
ID_PATTERN = "[A-Za-z0-9_-]{22}"
#: Most bytes of a body in one row of the database.
CHUNK = 262_144


class JobError(SidecarError):
    """A job cannot be submitted or changed; the error text says why."""


class GrantNeededError(JobError):
    """The job has no valid grant for its class."""


class IdempotencyKeyUsedError(JobError):
    """Another job of this owner, with other content, has the idempotency key."""


class QueueFullError(JobError):
    """The target's queue has `max_pending` jobs."""


class WrongStateError(JobError):
    """The job's state does not allow the change."""


def callback_origin(url: str) -> str:
    """Return scheme, host and port of a callback URL. Parallel callbacks are limited per origin."""
    return "/".join(url.split("/", 3)[:3]).lower()


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def new_job_id() -> str:
    """Return 128 random bits as 22 characters. The first is not -, because commands would take the
    id for an option."""
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

    @property
    def fingerprint(self) -> str:
        """A digest of the content without the grant, which differs each time it is signed."""
        request = [self.method, self.path, self.query, sorted(self.headers.items())]
        content = [self.target, self.kind, *request, self.class_name, self.callback_url]
        return hashlib.sha256(json.dumps(content).encode() + b"\0" + self.body).hexdigest()


@dataclass(slots=True)
class Job:
    """A row of the database: the request, the state, and the result without its body."""

    id: str
    #: The name of the token that submitted the job; other tokens do not see it.
    owner: str
    target: str
    kind: JobKind
    created_ms: int
    #: For a pending job, when it expires. For an ended job, when it is removed.
    expires_ms: int
    #: The order among the target's jobs, set by jobs/lua/reserve.lua: the smallest is next.
    queue_order: int
    state: State = State.PENDING
    class_name: str = ""
    #: A key names one job of an owner. The same key with another fingerprint is an error.
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
    #: Attempts that failed and count against `retries`.
    failures: int = 0
    #: The number of the latest attempt. Attempts with a smaller number cannot write.
    fence: int = 0
    #: Why the last attempt failed. Empty if it did not fail.
    error: str = ""
    #: The HTTP status of the last response. None if there was none.
    status: int | None = None
    result_headers: dict[str, str] = field(default_factory=dict)
    result_size: int = 0
    read_ms: int | None = None
    #: When the callback is sent next. None if no callback is due.
    callback_ms: int | None = None
    callback_tries: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_answer(self) -> bool:
        """Whether the target's response is stored, as the result or as the cause of the failure."""
        if self.state is State.FAILED:
            return bool(self.result_headers or self.result_size)
        return self.state is State.COMPLETED


class QueueEntry(NamedTuple):
    """A job for its target's queue. It enters the queue at `not_before_ms`, if that is given."""

    id: str
    order: int
    is_online: bool = False
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, to be written to SQL and to the target's queue in Redis. Both ignore it
    unless the job's fence is still `fence`."""

    id: str
    fence: int
    #: One of ENDED, or PENDING if the job is retried at `not_before_ms`.
    state: State
    at_ms: int
    #: When the ended job is removed. None leaves the job's value unchanged.
    expires_ms: int | None = None
    error: str = ""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: The response body, empty if it is already stored in parts; and the size of the whole body.
    body: bytes = b""
    size: int = 0
    not_before_ms: int | None = None
    #: Whether the attempt counts against `retries`.
    is_counted: bool = False
    note: CallNote = "gone"
    took_us: int = 0
    #: No call to the target starts before this time.
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
    #: A job's id or the beginning of it.
    id: str = ""
    #: The period in which the jobs were submitted; `to_ms` itself is not part of it.
    from_ms: int | None = None
    to_ms: int | None = None
    #: The created_ms and id of the last job on the previous page.
    after: tuple[int, str] | None = None
    limit: int = 100

    @property
    def is_narrow(self) -> bool:
        """Whether no index covers the search, so that it might read all jobs."""
        return self.statuses is not None or 0 < len(self.id) < ID_LENGTH


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of a search. A page of a narrow search may have fewer jobs than its limit, or none,
    even if it is not the last page."""

    jobs: list[Job]
    #: The `after` of the next page. None on the last page.
    next: tuple[int, str] | None
