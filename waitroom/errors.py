"""The errors that a client raises.

WaitroomError
├── ConfigError       the client's address is not valid
├── Refused           a limit refuses the call, or a queue is full
├── Queued            somebody else holds the lease, and the time to wait for it is over
├── LeaseLost         the lease is over: stop the work that depends on it
├── RejectedError     the replica does not accept the request: the token, a name, a value
└── UnavailableError  no replica answers, or Redis or the database is unavailable
"""

from dataclasses import dataclass
from typing import Any

#: When to ask again after a refusal that does not say, such as of a limit of 0.
DEFAULT_RETRY_S = 60.0


class WaitroomError(Exception):
    """The base of all errors of a client."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem document (RFC 9457) of a response. Without a title it is not from a replica."""

    #: The HTTP status.
    status: int
    title: str = ""
    detail: str = ""
    #: The kind of problem; docs/problems.md lists them.
    code: str = ""
    #: One line for each fault, beginning with its name.
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, status: int, document: Any) -> "Problem":
        found = document if isinstance(document, dict) else {}
        title, detail, code = (str(found.get(name) or "") for name in ("title", "detail", "code"))
        errors = found.get("errors")
        lines = tuple(map(str, errors)) if isinstance(errors, list) else ()
        return cls(status, title, detail, code, lines)


class ConfigError(WaitroomError):
    """The client's configuration is wrong. `problems` has a line for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Refused(WaitroomError):  # noqa: N818 - it is a response
    """A limit refuses the call, or a queue is full. `retry_after`: seconds until another try may
    succeed. `document` is the response."""

    def __init__(self, text: str, retry_after: float, document: dict[str, Any]) -> None:
        super().__init__(f"{text}; ask again after {retry_after:g} s")
        self.retry_after = retry_after
        self.document = document


class Queued(WaitroomError):  # noqa: N818 - it is a response
    """The place in the queue was given up after the time to wait. `position`: the last one, None if
    unknown. `document` is the response."""

    def __init__(self, text: str, document: dict[str, Any]) -> None:
        self.position: int | None = document.get("position")
        place = "" if self.position is None else f", place {self.position} in the queue"
        super().__init__(f"{text}{place}")
        self.document = document


class LeaseLost(WaitroomError):  # noqa: N818 - it says what happened
    """The lease is over: somebody else may hold the resource by now."""


class RejectedError(WaitroomError):
    """The replica does not accept the request, nor a repeated one. Its status is 422 also if the
    client itself found the fault."""

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
    """No replica answered, after the last try. `is_sent`: a replica may have acted on the request.
    `problem`: the last response, or None."""

    def __init__(self, text: str, *, is_sent: bool = True, problem: Problem | None = None) -> None:
        super().__init__(text)
        self.is_sent = is_sent
        self.problem = problem


def retry_s(document: dict[str, Any]) -> float:
    """Return after how many seconds a refusal allows another try."""
    retry = document.get("wait_seconds") or document.get("retry_after_seconds")
    return float(retry or DEFAULT_RETRY_S)
