"""The documents of a replica's responses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Permit:
    """A limit's decision on one call."""

    #: The limit's name.
    rule: str
    key: str
    allowed: bool
    #: granted, paced, refused, unlimited; admitted_alone while Redis is unavailable.
    outcome: str
    #: Seconds until the call may go, from the response on.
    wait_seconds: float
    #: The same, by Redis' clock; None while Redis is unavailable.
    at: datetime | None
    #: None: there is none, or it is unknown.
    limit: int | None
    remaining: int | None
    #: Seconds until the whole limit is free, if nobody calls meanwhile.
    reset_seconds: float | None
    #: Only of a concurrency limit: seconds until the permit ends by itself.
    expires_in_seconds: float | None
    #: The permit to give back; empty: there is nothing to give back.
    permit: str

    @classmethod
    def read(cls, rule: str, document: dict[str, Any]) -> "Permit":
        found = {name: document[name] for name in DECISION}
        found["wait_seconds"] = found["wait_seconds"] or 0.0
        found["permit"] = found["permit"] or ""
        if found["at"] is not None:
            found["at"] = datetime.fromisoformat(found["at"])
        return cls(rule, **found)


#: The members that the documents of a permit and of a lease need.
DECISION = frozenset(Permit.__dataclass_fields__) - {"rule"}
LEASE = frozenset({"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"})


class JobResult(TypedDict):
    """The result of a job. A body of at most 64 KB is in it, as text or base64."""

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
    #: Only of a change of settings: the number to undo it by.
    revision: int | None
    #: By setting: {"from": …, "to": …}; None is the configured value.
    changes: dict[str, dict[str, Any]] | None
