"""Jobs: calls that wait until their target has capacity. Times are ms since 1970 by the clock of
Redis; None: it has not happened.

    pending ──► called ──► processing ──► completed
       ▲           │            │    └──► failed
       └───────────┴────────────┘         (cancelled, expired: from any of the first three)

Only online jobs are `called`: the permit is there and was not used yet.
"""

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["offline", "online"]
OutcomeKind: TypeAlias = Literal["answered", "busy", "failed", "refused"]


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
#: With delete_after_read: how long a result is kept after the first read, for a repeated one, ms.
READ_GRACE_MS = 20_000
ID_LENGTH = 22
ID_PATTERN = "[A-Za-z0-9_-]{22}"
#: Bytes of a body in one row of the database.
CHUNK = 262_144


def receiver_of(url: str) -> str:
    """Scheme, host and port of a callback's address: callbacks are limited for each."""
    return "/".join(url.split("/", 3)[:3]).lower()


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def new_job_id() -> str:
    """128 random bits in 22 characters; never begins with -, as an option of a command does."""
    while (made := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return made


@dataclass(slots=True)
class Job:
    """One row: the request, the state, and the result but for its body."""

    id: str
    #: The name of the token that submitted it, and alone may see it; who makes the call.
    owner: str
    target: str
    kind: Kind
    created_ms: int
    #: pending: when it gives up; ended: when it is removed.
    expires_ms: int
    #: Smaller is sooner (jobs/lua).
    queue_order: int
    state: State = State.PENDING
    class_name: str = ""
    #: The same key of an owner is the same job; and a digest of the request.
    idempotency_key: str | None = None
    fingerprint: str = ""
    method: str = "GET"
    #: Below the target's url, and after the ?, as it is sent.
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    callback_url: str | None = None
    #: It is not retried before.
    not_before_ms: int | None = None
    called_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    #: How often it was begun; and how many of these were failures that count against `retries`.
    attempts: int = 0
    failures: int = 0
    #: Of the attempt that has it, or had it last: one with an older fence is late.
    fence: int = 0
    #: Why it failed, or the last attempt did; empty: it did not. And the status of the last
    #: response; None: none came.
    error: str = ""
    status: int | None = None
    result_headers: dict[str, str] = field(default_factory=dict)
    result_size: int = 0
    read_ms: int | None = None
    #: When the callback is tried next; None: none is due. And how often it was.
    callback_ms: int | None = None
    callback_tries: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_answer(self) -> bool:
        """Whether the target's response is kept: as the result, or as the reason of the failure."""
        if self.state is State.FAILED:
            return bool(self.result_headers or self.result_size)
        return self.state is State.COMPLETED


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, newest first. `after`: created_ms and id of the last one of the page before."""

    owner: str | None = None
    target: str | None = None
    #: Any of these; none: in all.
    states: frozenset[str] = frozenset()
    #: Of the last answer, from and to; None: whatever it was.
    statuses: tuple[int, int] | None = None
    #: The id, or how it begins.
    id: str = ""
    #: When they were submitted, from and before.
    from_ms: int | None = None
    to_ms: int | None = None
    after: tuple[int, str] | None = None
    limit: int = 100

    @property
    def is_narrow(self) -> bool:
        """Whether it asks for what no index has: all jobs may have to be looked at."""
        return self.statuses is not None or 0 < len(self.id) < ID_LENGTH


@dataclass(frozen=True, slots=True)
class JobPage:
    """`next`: the `after` of the page that follows; None: this is the last. Of a narrow query a
    page may have fewer jobs than wanted, or none, though others follow."""

    jobs: list[Job]
    next: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended, to be written to its job: one of the ended states, or pending to try
    again at `not_before_ms`. It is written only while the job is `fence`'s."""

    id: str
    fence: int
    state: State
    at_ms: int
    #: ended: when it is removed. None: as it was (pending: when it gives up).
    expires_ms: int | None = None
    error: str = ""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Of the response, unless it was written before in parts; and its whole length.
    body: bytes = b""
    size: int = 0
    not_before_ms: int | None = None
    #: Whether the attempt counts against `retries`.
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call went.

    answered: a response that is not retried. busy: 429, if it is retried. failed: no whole response
    (without a status), or another one that is retried. refused: it must not be made, or its
    response is too large; never retried.
    """

    kind: OutcomeKind
    #: For people; it holds no address, and no value of a header.
    error: str = ""
    status: int | None = None
    #: Of the response: names in lower case; several of a name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: Where it fits one CHUNK; else the sink has it. And its whole length.
    body: bytes = b""
    size: int = 0
    #: Of Retry-After; None: there is none, or it cannot be read.
    retry_after_s: float | None = None
    took_us: int = 0
