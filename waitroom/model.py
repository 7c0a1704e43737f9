"""Types of the documents in a replica's responses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Permit:
    """Decision of a limit on one call."""

    #: Name of the limit.
    rule: str
    key: str
    allowed: bool
    #: granted, paced, refused or unlimited; admitted_alone while Redis is unavailable.
    outcome: str
    #: Seconds from the response until the call may start.
    wait_seconds: float
    #: When the call may start, by the clock of Redis. None while Redis is unavailable.
    at: datetime | None
    #: None if there is no limit, or it is unknown.
    limit: int | None
    remaining: int | None
    #: Seconds until the whole limit is available again, if there are no further calls.
    reset_seconds: float | None
    #: Seconds until the permit of a concurrency limit expires. None for other limits.
    expires_in_seconds: float | None
    #: Id to release the permit by. Empty if there is nothing to release.
    permit: str

    @classmethod
    def read(cls, rule: str, document: dict[str, Any]) -> "Permit":
        values = {name: document[name] for name in DECISION}
        values["wait_seconds"] = values["wait_seconds"] or 0.0
        values["permit"] = values["permit"] or ""
        if values["at"] is not None:
            values["at"] = datetime.fromisoformat(values["at"])
        return cls(rule, **values)


#: Members that the documents of a permit and of a lease must have.
DECISION = frozenset(Permit.__dataclass_fields__) - {"rule"}
LEASE = frozenset({"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"})


class JobResult(TypedDict):
    """Result of a job, including a body of at most 64 KB, as a string or in base64."""

    status: int
    headers: dict[str, str]
    size: int
    body_url: str
    body: NotRequired[str]
    body_base64: NotRequired[str]


#: Times are in ISO 8601. `position` 1 is next. `state`: pending, called (an online job whose client
#: may make the call), processing, completed, failed, expired or cancelled.
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
    """One of the weighted queues of a room."""

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
    #: Time of the action, in ms since 1970.
    at: int
    by: str
    what: str
    visitor: str | None
    detail: str | None
    #: Number to undo a change of settings by. None for other actions.
    revision: int | None
    #: Changes by setting: {"from": …, "to": …}, where None stands for the configured value.
    changes: dict[str, dict[str, Any]] | None
