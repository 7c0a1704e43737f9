"""What a client raises, one tree with the rest of the package.

WaitroomError
├── ConfigError     the client was given an address or a value that cannot be
├── Refused         a limit refuses the call, or the line for a lease is full
├── Queued          somebody else holds the lease, and it was not to be waited for any longer
├── LeaseLost       the lease is over: stop what it was for
├── RejectedError   the replica does not take the request: the token, a name, a value
└── AwayError       no replica answers, or it is without its store
"""

from __future__ import annotations

from typing import Any

from sidecar.kit.errors import WaitroomError

#: For whoever is refused and not told for how long, such as by a limit of 0.
DEFAULT_RETRY_S = 60.0


class Refused(WaitroomError):  # noqa: N818 - it is an answer
    """`retry_after`: seconds until it might be worth asking again. `document` is the reply."""

    def __init__(self, text: str, retry_after: float, document: dict[str, Any]) -> None:
        super().__init__(f"{text}; ask again after {retry_after:g} s")
        self.retry_after = retry_after
        self.document = document


class Queued(WaitroomError):  # noqa: N818 - it is an answer
    """The place in line was given up. `position`: what it was, None where nobody knows; `document`
    is the reply."""

    def __init__(self, text: str, document: dict[str, Any]) -> None:
        self.position: int | None = document.get("position")
        place = "" if self.position is None else f", place {self.position} in line"
        super().__init__(f"{text}{place}")
        self.document = document


class LeaseLost(WaitroomError):  # noqa: N818 - it says what happened
    """Somebody else may hold the resource by now."""


class RejectedError(WaitroomError):
    """Asking again is no use. `status` is HTTP's, `problems` are the replica's lines."""

    def __init__(self, text: str, *, status: int = 422, problems: tuple[str, ...] = ()) -> None:
        super().__init__(" ".join([text, "; ".join(problems)]) if problems else text)
        self.status = status
        self.problems = problems


class AwayError(WaitroomError):
    """It was tried as often as the client was told to. `is_sent`: a replica may know of it."""

    def __init__(self, text: str, *, is_sent: bool = True) -> None:
        super().__init__(text)
        self.is_sent = is_sent
