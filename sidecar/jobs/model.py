"""Jobs: calls that wait their turn. Times are ms since 1970 by the store's clock; None: it has not
happened.

    pending ──► called ──► processing ──► completed
       ▲           │            │    └──► failed
       └───────────┴────────────┘         (cancelled, expired: from any of the first three)

`called` is of online jobs alone: the permit is there and was not used yet.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["offline", "online"]


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
#: Nothing more happens to a job in one of these, but that it is removed.
ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED})
#: How long a result that was read is kept for a repeated read, where it is deleted then, ms.
READ_GRACE_MS = 20_000
ID_PATTERN = "[A-Za-z0-9_-]{22}"
#: Bytes of a body in one row of the database.
CHUNK = 262_144


def receiver_of(url: str) -> str:
    """Scheme, host and port of a callback's address: what they are bounded by."""
    return "/".join(url.split("/", 3)[:3]).lower()


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def new_job_id() -> str:
    """128 random bits in 22 characters; it never begins with -, which a command would take for an
    option."""
    while (made := secrets.token_urlsafe(16)).startswith("-"):
        pass
    return made


@dataclass(slots=True)
class Job:
    """One row: what was asked, how it stands, and what came of it, but for its body."""

    id: str
    #: The name of the token that submitted it, who alone may see it; and whether it calls itself.
    owner: str
    target: str
    kind: Kind
    created_ms: int
    #: pending: when it gives up; ended: when it is removed.
    expires_ms: int
    #: Who is next: smaller is sooner (jobs/lua).
    queue_order: int
    state: State = State.PENDING
    class_name: str = ""
    #: The caller's name for it: the same again is the same job. And a digest of what was asked.
    idempotency_key: str | None = None
    fingerprint: str = ""
    method: str = "GET"
    #: Below the target's url, and after the ?, as it is sent.
    path: str = ""
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    callback_url: str | None = None
    #: It is not tried again before.
    not_before_ms: int | None = None
    called_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    #: How often it was begun; and how many of these were failures that count against `retries`.
    attempts: int = 0
    failures: int = 0
    #: Of the runner that has it, or had it last: who has an older one is late.
    fence: int = 0
    #: Why it failed, or what the last attempt met; empty: nothing. And the status of the last
    #: answer; None: none came.
    error: str = ""
    status: int | None = None
    result_headers: dict[str, str] = field(default_factory=dict)
    result_size: int = 0
    read_ms: int | None = None
    #: When the callback is tried next; None: there is nothing to tell. And how often it was.
    callback_ms: int | None = None
    callback_tries: int = 0

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_answer(self) -> bool:
        """Whether the target's answer is kept: as the result, or as what the job failed on."""
        if self.state is State.FAILED:
            return bool(self.result_headers or self.result_size)
        return self.state is State.COMPLETED


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, newest first. `after`: created_ms and id of the last one of the page before."""

    owner: str | None = None
    target: str | None = None
    state: str | None = None
    after: tuple[int, str] | None = None
    limit: int = 100


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
    #: Of the answer, where it was not written before in parts; and its whole length.
    body: bytes = b""
    size: int = 0
    not_before_ms: int | None = None
    #: Whether the attempt counts against `retries`.
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call went.

    answered: an answer that is not tried again. busy: 429, where it is tried again. failed: no
    whole answer (without a status), or another one after which it is tried again. refused: it must
    not be made, or its answer is too large; it never is tried again.
    """

    kind: Literal["answered", "busy", "failed", "refused"]
    #: For people; it holds no address, and no value of a header.
    error: str = ""
    status: int | None = None
    #: Of the answer: names in lower case; several of a name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: Where it fits one CHUNK; else the sink has it. And its whole length.
    body: bytes = b""
    size: int = 0
    #: What a Retry-After asks for; None: nothing that can be read.
    retry_after_s: float | None = None
    took_us: int = 0
