"""What a replica answers, as a caller reads it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

from waitroom.errors import LeaseLost


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
    def read(cls, rule: str, document: dict[str, Any]) -> Permit:
        at = document["at"]
        return cls(
            rule,
            document["key"],
            document["allowed"],
            document["outcome"],
            document["wait_seconds"] or 0.0,
            None if at is None else datetime.fromisoformat(at),
            document["limit"],
            document["remaining"],
            document["reset_seconds"],
            document["expires_in_seconds"],
            document["permit"] or "",
        )


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


class Visitor(TypedDict):
    room: str
    visitor: str
    state: str
    position: int | None
    line: str | None
    line_position: int | None
    started_at_ms: int | None
    ends_at_ms: int | None
    revoked_at_ms: int | None


class LogEntry(TypedDict):
    #: ms since 1970.
    at: int
    by: str
    what: str
    visitor: str | None
    detail: str | None


class Held:
    """A lease, while it is held. `fence` goes with everything that is written under it: the store
    that is written to refuses a smaller number than the largest it has seen."""

    def __init__(self, template: str, resource: str, holder: str) -> None:
        self.template = template
        self.resource = resource
        self.holder = holder
        self.fence = 0
        #: By the store's clock.
        self.granted_at = self.expires_at = datetime.min  # noqa: DTZ901 - until it is granted
        self._ends = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self} fence={self.fence}>"

    def __str__(self) -> str:
        return f"{self.template}/{self.resource}"

    @property
    def left_seconds(self) -> float:
        """Until it ends, by this machine's monotonic clock; 0 when it is over. Late by no more than
        the two clocks drift apart in a term."""
        return max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Raises LeaseLost where the term is over, by this machine's clock; no replica is asked."""
        if self._ends <= time.monotonic():
            raise LeaseLost(f"lease {self} is over: its term ended, and others may have it by now")

    def granted(self, document: dict[str, Any], sent_at: float) -> None:
        """`sent_at` is time.monotonic() before it was sent."""
        self.fence = document["fence"]
        self.granted_at = datetime.fromisoformat(document["granted_at"])
        self.expires_at = datetime.fromisoformat(document["expires_at"])
        self._ends = sent_at + document["expires_in_seconds"]
