"""What a replica answers, as a caller reads it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Permit:
    """What a limit says of one call."""

    #: The limit's name.
    rule: str
    key: str
    allowed: bool
    #: granted, paced, refused, unlimited; admitted_alone where the store did not answer.
    outcome: str
    #: Until the call may go; seconds, by the time that the answer came.
    wait_seconds: float
    #: The same, by the store's clock; None where it was not asked.
    at: datetime | None
    #: None: unlimited, or nobody knows.
    limit: int | None
    remaining: int | None
    #: When all of the limit is free again, if nobody calls meanwhile.
    reset_seconds: float | None
    #: Of a concurrency limit: until this permit ends by itself; None of others.
    expires_in_seconds: float | None
    #: Names it, to give it back; empty where there is nothing to give back.
    permit: str

    @classmethod
    def read(cls, rule: str, document: dict[str, Any]) -> "Permit":
        found = {name: document[name] for name in DECISION}
        found["wait_seconds"] = found["wait_seconds"] or 0.0
        found["permit"] = found["permit"] or ""
        if found["at"] is not None:
            found["at"] = datetime.fromisoformat(found["at"])
        return cls(rule, **found)


#: What the documents have of which a permit and a lease are read.
DECISION = frozenset(Permit.__dataclass_fields__) - {"rule"}
LEASE = frozenset({"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"})


class JobResult(TypedDict):
    """Its body is here where it is at most 64 KB: as text, or else as base64."""

    status: int
    headers: dict[str, str]
    size: int
    body_url: str
    body: NotRequired[str]
    body_base64: NotRequired[str]


#: Times are ISO 8601. `position`: 1 is next. `state`: pending, called (an online job, by its
#: caller), processing, completed, failed, expired or cancelled.
Job = TypedDict(
    "Job",
    {
        "id": str,
        "target": str,
        "kind": Literal["offline", "online"],
        "state": str,
        "owner": str,
        "class": str | None,
        "method": str,
        "path": str,
        "query": str | None,
        "position": int | None,
        "wait_seconds": float | None,
        "attempts": int,
        "status": int | None,
        "error": str | None,
        "created_at": str,
        "called_at": str | None,
        "started_at": str | None,
        "ended_at": str | None,
        "expires_at": str,
        "retry_at": str | None,
        "permit": str | None,
        "permit_expires_at": str | None,
        "result": JobResult | None,
    },
)


class JobPage(TypedDict):
    jobs: list[Job]
    next: str | None


class Cancelled(TypedDict):
    id: str
    state: str
    aborting: NotRequired[bool]


class Line(TypedDict):
    """One of a room's weighted queues."""

    line: str
    waiting: int
    wait_seconds: int | None


class Room(TypedDict):
    room: str
    mode: str
    phase: str
    event: str | None
    coming: str | None
    waiting: int
    active: int
    wait_seconds: int | None
    lines: list[Line]
    provisional: int
    recovers_until: str | None
    recovery_stage: str | None
    replicas: int
    revision: int
    counters: dict[str, int]
    settings: dict[str, Any]
    changed: list[str]


Visitor = TypedDict(
    "Visitor",
    {
        "room": str,
        "visitor": str,
        "number": str,
        "state": str,
        "position": int | None,
        "line": str | None,
        "class": str,
        "joined_at_ms": int | None,
        "line_position": int | None,
        "started_at_ms": int | None,
        "ends_at_ms": int | None,
        "revoked_at_ms": int | None,
    },
)


class LogEntry(TypedDict):
    #: ms since 1970.
    at: int
    by: str
    what: str
    visitor: str | None
    detail: str | None
    #: Of a change of settings: by it the change can be undone.
    revision: int | None
    #: By setting, what it was and is: {"from": …, "to": …}; None is as configured.
    changes: dict[str, dict[str, Any]] | None
