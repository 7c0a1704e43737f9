"""Types of the JSON documents in a replica's responses."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict


@dataclass(frozen=True, slots=True)
class Permit:
    """A limit's decision about one call. An allowed call may still have to wait."""

    #: Name of the limit.
    rule: str
    key: str
    allowed: bool
    #: One of granted, paced, refused, unlimited and, while Redis is unavailable, admitted_alone.
    outcome: str
    #: How many seconds the call must wait after the response.
    wait_seconds: float
    #: The time when the call may start, by the clock of Redis. None while Redis is unavailable.
    at: datetime | None
    #: How many calls the limit allows, and how many remain. None if unlimited or unknown.
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


#: The members that a decision's document must have, and those that a lease's document must have.
DECISION_MEMBERS = frozenset(Permit.__dataclass_fields__) - {"rule"}
LEASE_MEMBERS = frozenset(
    {"state", "fence", "order", "refresh_after_seconds", "expires_in_seconds"}
)


class JobResult(TypedDict):
    """The response to a job's call, with its body (text or base64) if it has at most 64 KB."""

    status: int | None
    headers: dict[str, str]
    size: int
    body_url: str
    body: NotRequired[str]
    body_base64: NotRequired[str]


#: Times are ISO 8601 strings. The first job in the queue has `position` 1. `state` is one of
#: pending, called (an online job's client may now make the call), processing, completed, failed,
#: expired and cancelled.
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
    """A job that was refused, its index in the submitted list, and the reason."""

    index: int
    code: str
    reason: str


class SubmittedJobs(TypedDict):
    """The ids of submitted jobs, in order and with None for refused jobs, and the refused jobs."""

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
    #: Measurements of the site behind an adaptive room. None if nothing is measured.
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
    #: The settings that were changed at run time, with their values.
    changed: dict[str, Any]
    #: The same settings, with their values in the settings file.
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
    #: The operator's reason for a change of settings. Empty if the operator gave no reason.
    why: str
    #: The number with which a change of settings can be undone. None for other actions.
    revision: int | None
    #: For each changed setting, {"from": …, "to": …}, where None means the configured value.
    changes: dict[str, dict[str, Any]] | None
