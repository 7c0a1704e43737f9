"""Jobs: calls that wait until their target has capacity. Times are ms since 1970 by the clock of
Redis; None: it has not happened.

    pending ──► called ──► processing ──► completed
       ▲           │            │    └──► failed
       └───────────┴────────────┘         (cancelled, expired: from any of the first three)

Only online jobs are `called`: the permit is there and was not used yet.

A job passes through six types: NewJob (submitted) -> Job (a row in SQL) -> Claim (Redis lets it be
called, store/target_queue.py) -> CallResult (call_result.py) -> Ending -> JobView (service.py).
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from sidecar.kit.errors import WaitroomError

JobKind: TypeAlias = Literal["offline", "online"]
#: What the target's queue in Redis notes of a call. answered: the target did its work. rejected: it
#: responded, and that is the job's failure. failed: it is the target's fault, and counts for the
#: breaker. busy: 429. gone: no call was made.
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
#: A job in one of these states only waits to be removed.
ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
ID_LENGTH = 22
ID_PATTERN = "[A-Za-z0-9_-]{22}"
#: Bytes of a body in one row of the database.
CHUNK = 262_144


class JobError(WaitroomError):
    """A job cannot be submitted or changed; the text says why."""


class GrantNeededError(JobError):
    """The job names a class without a grant that gives it."""


class IdempotencyKeyUsedError(JobError):
    """Another job of this owner has the idempotency key."""


class QueueFullError(JobError):
    """The target's queue has `max_pending` jobs."""


class WrongStateError(JobError):
    """The job's state does not allow the change."""


def receiver_of(url: str) -> str:
    """Return scheme, host and port of a callback's address: callbacks are limited for each."""
    return "/".join(url.split("/", 3)[:3]).lower()


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def new_job_id() -> str:
    """Return 128 random bits in 22 characters, the first of which is not -: commands would take
    that for an option."""
    while (made := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return made


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job as it is submitted: checked against its target's settings (request.py)."""

    target: str
    kind: JobKind = "offline"
    method: str = "GET"
    #: Below the target's url, and after the ?, both encoded as they are sent.
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
        """A digest of the content, but for the grant, which is signed anew each time."""
        request = [self.method, self.path, self.query, sorted(self.headers.items())]
        content = [self.target, self.kind, *request, self.class_name, self.callback_url]
        return hashlib.sha256(json.dumps(content).encode() + b"\0" + self.body).hexdigest()


@dataclass(slots=True)
class Job:
    """One row: the request, the state, and the result but for its body."""

    id: str
    #: The name of the token that submitted the job; other tokens do not see it.
    owner: str
    target: str
    kind: JobKind
    created_ms: int
    #: pending: when it gives up; ended: when it is removed.
    expires_ms: int
    #: Its place among the target's jobs, decided by jobs/lua/reserve.lua: smaller is sooner.
    queue_order: int
    state: State = State.PENDING
    class_name: str = ""
    #: An owner's key names one job, whose request has this fingerprint.
    idempotency_key: str | None = None
    fingerprint: str = ""
    method: str = "GET"
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    callback_url: str | None = None
    #: No retry is made before this time.
    not_before_ms: int | None = None
    called_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    #: Attempts that failed and count against `retries`.
    failures: int = 0
    #: The number of the latest attempt; an attempt with a smaller one writes nothing.
    fence: int = 0
    #: Why the last attempt failed; empty: it did not fail.
    error: str = ""
    #: Of the last response; None: there was none.
    status: int | None = None
    result_headers: dict[str, str] = field(default_factory=dict)
    result_size: int = 0
    read_ms: int | None = None
    #: When the callback is tried next; None: none is due.
    callback_ms: int | None = None
    callback_tries: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_answer(self) -> bool:
        """Whether the target's response is kept, as the result or as the reason of the failure."""
        if self.state is State.FAILED:
            return bool(self.result_headers or self.result_size)
        return self.state is State.COMPLETED


class QueueEntry(NamedTuple):
    """A job for its target's queue; before `not_before_ms` it waits beside the queue."""

    id: str
    order: int
    is_online: bool = False
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, for SQL and for the target's queue in Redis. Both drop it unless the
    job's fence is `fence`."""

    id: str
    fence: int
    #: One of the ended states, or pending to try again at `not_before_ms`.
    state: State
    at_ms: int
    #: When an ended job is removed. None: it stays as it was.
    expires_ms: int | None = None
    error: str = ""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: The response's body, unless it was written before in parts; and its whole length.
    body: bytes = b""
    size: int = 0
    not_before_ms: int | None = None
    #: Whether the attempt counts against `retries`.
    is_counted: bool = False
    note: CallNote = "gone"
    took_us: int = 0
    #: The target gets no calls before this time.
    hold_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A search for jobs, newest first."""

    owner: str | None = None
    target: str | None = None
    #: Any of these; empty: all states.
    states: frozenset[str] = frozenset()
    #: The last response's status, from and to.
    statuses: tuple[int, int] | None = None
    #: A job's id or its beginning.
    id: str = ""
    #: When the jobs were submitted, from and before.
    from_ms: int | None = None
    to_ms: int | None = None
    #: created_ms and id of the previous page's last job.
    after: tuple[int, str] | None = None
    limit: int = 100

    @property
    def is_narrow(self) -> bool:
        """Whether no index covers the search, so that it might read all jobs."""
        return self.statuses is not None or 0 < len(self.id) < ID_LENGTH


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of a search. A page of a narrow search may have fewer jobs than its limit, or none,
    though others follow."""

    jobs: list[Job]
    #: The `after` of the next page; None: this is the last one.
    next: tuple[int, str] | None
