"""What a client raises.

WaitroomError
├── ConfigError       the client was given an address that cannot be
├── Refused           a limit refuses the call, or a queue is full
├── Queued            somebody else holds the lease, and it was not to be waited for any longer
├── LeaseLost         the lease is over: stop what it was for
├── RejectedError     the replica does not accept the request: the token, a name, a value
└── UnavailableError  no replica answers, or Redis or the database does not answer them
"""

from dataclasses import dataclass
from typing import Any

#: Where a refusal does not say for how long, such as by a limit of 0.
DEFAULT_RETRY_S = 60.0


class WaitroomError(Exception):
    """Anything that a client raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem document (RFC 9457) of a response. Without a title it was no replica's."""

    #: HTTP's.
    status: int
    title: str = ""
    detail: str = ""
    #: The kind of problem; empty where the replica is older than these codes.
    code: str = ""
    #: One line for each thing that is wrong, beginning with its name.
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, status: int, document: Any) -> "Problem":
        found = document if isinstance(document, dict) else {}
        title, detail, code = (str(found.get(name) or "") for name in ("title", "detail", "code"))
        errors = found.get("errors")
        lines = tuple(map(str, errors)) if isinstance(errors, list) else ()
        return cls(status, title, detail, code, lines)


class ConfigError(WaitroomError):
    """`problems` has a line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Refused(WaitroomError):  # noqa: N818 - it is a response
    """`retry_after`: seconds until another try may succeed. `document` is the response."""

    def __init__(self, text: str, retry_after: float, document: dict[str, Any]) -> None:
        super().__init__(f"{text}; ask again after {retry_after:g} s")
        self.retry_after = retry_after
        self.document = document


class Queued(WaitroomError):  # noqa: N818 - it is a response
    """The place in the queue was given up. `position`: what it was, None if unknown; `document` is
    the response."""

    def __init__(self, text: str, document: dict[str, Any]) -> None:
        self.position: int | None = document.get("position")
        place = "" if self.position is None else f", place {self.position} in the queue"
        super().__init__(f"{text}{place}")
        self.document = document


class LeaseLost(WaitroomError):  # noqa: N818 - it says what happened
    """Somebody else may hold the resource by now."""


class RejectedError(WaitroomError):
    """The same request fails again. 422 also where the client itself sees what is wrong."""

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
    """Raised after the last try. `is_sent`: a replica may have done what was asked. `problem`: the
    last replica's response, None without one."""

    def __init__(self, text: str, *, is_sent: bool = True, problem: Problem | None = None) -> None:
        super().__init__(text)
        self.is_sent = is_sent
        self.problem = problem


def retry_s(document: dict[str, Any]) -> float:
    """When a refusal allows another try."""
    for name in ("wait_seconds", "retry_after_seconds"):
        if document.get(name):
            return float(document[name])
    return DEFAULT_RETRY_S
