"""Types of the JSON documents in a replica's responses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Permit:
    """A limit's decision about one call. If the call is allowed, it may have to wait."""

    #: Name of the limit.
    rule: str
    key: str
    allowed: bool
    #: One of granted, paced, refused, unlimited and, while Redis is unavailable, admitted_alone.
    outcome: str
    #: How many seconds after the response the call may start.
    wait_seconds: float
    #: The time when the call may start, by the clock of Redis. None while Redis is unavailable.
    at: datetime | None
    #: How many calls the limit allows, and how many are left. None if unlimited or unknown.
    limit: int | None
    remaining: int | None
    #: Seconds until the whole limit is available again, if there are no further calls.
    reset_seconds: float | None
    #: Seconds until the permit of a concurrency limit expires. None for other limits.
    expires_in_seconds: float | None
    #: The id with which the permit is released. Empty if there is nothing to release.
    permit: str

    @classmethod
    def from_document(cls, rule: str, document: dict[str, Any]) -> "Permit":
        values = {name: document[name] for name in DECISION_MEMBERS}
        values["wait_seconds"] = values["wait_seconds"] or 0.0
        values["permit"] = values["permit"] or ""
        if values["at"] is not None:
            values["at"] = datetime.fromisoformat(values["at"])
        return cls(rule, **values)


#: The members that the document of a decision must have, and those of a lease.
DECISION_MEMBERS = frozenset(Permit.__dataclass_fields__) - {"rule"}
LEASE_MEMBERS = frozenset(
    {"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"}
)


class JobResult(TypedDict):
    """The response to a job's call, with its body (string or base64) if that is at most 64 KB."""

    status: int | None
    headers: dict[str, str]
    size: int
    body_url: str
    body: NotRequired[str]
    body_base64: NotRequired[str]


#: Times are ISO 8601 strings. The next job has `position` 1. `state` is one of pending, called (an
#: online job's client may now make the call), processing, completed, failed, expired and cancelled.
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
        "run_at": str | None,
        "retry_at": str | None,
        "permit": str | None,
        "permit_expires_at": str | None,
        "trace_id": str | None,
        "result": JobResult | None,
    },
)


class JobPage(TypedDict):
    jobs: list[Job]
    next: str | None


class RefusedJob(TypedDict):
    """A job that was not submitted: its index in the list, and why."""

    index: int
    code: str
    reason: str


class SubmittedJobs(TypedDict):
    """The ids of many jobs in their order, None for each that was refused, and those."""

    ids: list[str | None]
    refused: list[RefusedJob]


class CancelledJob(TypedDict):
    id: str
    state: str
    aborting: NotRequired[bool]


class Line(TypedDict):
    """One of a room's sub-queues."""

    line: str
    waiting: int
    wait_seconds: int | None


class Room(TypedDict):
    room: str
    state: str
    mode: str
    phase: str
    #: How the site behind an adaptive room does.
    site: dict[str, Any] | None
    event: str | None
    coming: str | None
    waiting: int
    active: int
    wait_seconds: int | None
    lines: list[Line]
    provisional: int
    recovers_until: str | None
    recovery_stage: int
    replicas: int
    revision: int
    counters: dict[str, int]
    settings: dict[str, Any]
    #: The settings that were changed at run time, and their values; then the configured values.
    changed: dict[str, Any]
    configured: dict[str, Any]


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
    visitor: str
    detail: str
    #: What the operator did, in words.
    text: str
    #: The operator's reason for a change of settings. Empty if none was given.
    why: str
    #: The number with which a change of settings can be undone. None for other actions.
    revision: int | None
    #: For each changed setting, {"from": …, "to": …}. None means the configured value.
    changes: dict[str, dict[str, Any]] | None
