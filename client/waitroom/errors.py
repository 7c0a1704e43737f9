"""The errors that the clients raise.

WaitroomError
├── ConfigError       an address that the client was given is not valid
├── Refused           a limit refuses the call, or a queue is full
├── TimeoutError      nothing was granted, or a job has not ended, within the time to wait
│   └── Queued        a lease or a job's permit was not granted in time
├── LeaseLost         the lease or permit has ended, so the work that depends on it must stop
├── RejectedError     the replica rejects the request, for example its token, a name or a value
└── UnavailableError  no replica answers, or Redis or the database is unavailable
"""

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Seconds until a retry if a refusal names no time, for example because the limit is 0.
DEFAULT_RETRY_S = 60.0


class WaitroomError(Exception):
    """Base class of all errors of the clients."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A response's problem document (RFC 9457). An empty `title` means that no replica sent it."""

    #: The HTTP status.
    status: int
    title: str = ""
    detail: str = ""
    #: The kind of problem, one of those in docs/problems.md.
    code: str = ""
    #: One line for each fault, beginning with the name of the faulty value.
    errors: tuple[str, ...] = ()
    #: The URI of the kind: `urn:waitroom:problem:` and the code. Empty if no replica sent it.
    type: str = ""

    @classmethod
    def from_document(cls, status: int, document: Any) -> "Problem":
        members = document if isinstance(document, dict) else {}
        names = ("title", "detail", "code", "type")
        title, detail, code, type_ = (str(members.get(name) or "") for name in names)
        errors = members.get("errors")
        lines = tuple(map(str, errors)) if isinstance(errors, list) else ()
        return cls(status, title, detail, code, lines, type_)


class ConfigError(WaitroomError):
    """An address that the client was given is not valid. `problems` has a line for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Refused(WaitroomError):  # noqa: N818 - a normal response, not a fault
    """A limit refuses the call, or a queue is full. `retry_after` is the number of seconds until a
    retry may succeed, and `document` is the body of the response."""

    def __init__(self, text: str, retry_after: float, document: dict[str, Any]) -> None:
        super().__init__(f"{text}; ask again after {retry_after:g} s")
        self.retry_after = retry_after
        self.document = document


class TimeoutError(WaitroomError, builtins.TimeoutError):  # noqa: A001 - also a built-in TimeoutError
    """Nothing was granted, or a job has not ended, within the time to wait. `document` is the body
    of the last response."""

    def __init__(self, text: str, document: Mapping[str, Any]) -> None:
        super().__init__(text)
        self.document = dict(document)


class Queued(TimeoutError):  # noqa: N818 - a normal response, not a fault
    """No lease or permit was granted in time, so the client left the queue. `position` is its
    last position, or None if unknown."""

    def __init__(self, text: str, document: Mapping[str, Any]) -> None:
        self.position: int | None = document.get("position")
        place = "" if self.position is None else f", place {self.position} in the queue"
        super().__init__(f"{text}{place}", document)


class LeaseLost(WaitroomError):  # noqa: N818 - the name states what happened
    """The lease or permit has ended. Another client may already have it."""


class RejectedError(WaitroomError):
    """The replica rejects the request, and would reject it again. `status` is the HTTP status, or
    422 if the client itself found the fault."""

    def __init__(self, text: str, problem: Problem | None = None) -> None:
        self.problem = problem or Problem(422, detail=text)
        super().__init__(" ".join([text, "; ".join(self.problem.errors)]).strip())

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def problems(self) -> tuple[str, ...]:
        return self.problem.errors


class UnavailableError(WaitroomError):
    """No replica answered, after all retries. `is_sent` is True if a replica may have acted on the
    request. `problem` is the problem document of the last response, or None if there was none."""

    def __init__(self, text: str, *, is_sent: bool = True, problem: Problem | None = None) -> None:
        super().__init__(text)
        self.is_sent = is_sent
        self.problem = problem


def get_retry_s(document: dict[str, Any]) -> float:
    """Return how many seconds to wait before a retry, from the body of a refusal."""
    retry = document.get("wait_seconds") or document.get("retry_after_seconds")
    return float(retry or DEFAULT_RETRY_S)
