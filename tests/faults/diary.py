"""The diary of a simulated visitor: all requests and responses, with the cookie after each."""

from dataclasses import dataclass, field
from typing import NamedTuple

#: The kinds of tokens.
TICKET, PASS = "t", "p"


class Token(NamedTuple):
    """The fields of a cookie that can be read without its key (sidecar/visitors/tokens.py)."""

    kind: str
    visitor: str
    order: int
    #: When a pass was last renewed in Redis. 0 if a replica signed it without Redis.
    renewed_ms: int = -1


def read_token(text: str) -> Token | None:
    """Parse a cookie. Return None if the cookie is not a token."""
    kind, *fields = text.partition(".")[0].split("~")
    try:
        if kind == TICKET:
            return Token(kind, fields[0], int(fields[1]))
        if kind == PASS:
            return Token(kind, fields[0], int(fields[1]), int(fields[5]))
    except (IndexError, ValueError):
        pass
    return None


@dataclass(slots=True)
class Entry:
    """A request and its response. Times are seconds since 1970."""

    #: "page" (a page of the site), "status", "join" or "leave".
    what: str
    sent: float
    received: float
    #: 0 if there was no response. Then `error` has the reason.
    status: int = 0
    error: str = ""
    #: The state in the response (admitted, waiting, not_queued, full, closed), or "".
    state: str = ""
    position: int | None = None
    paused: bool = False
    #: Whether the response is from us, that is, the waiting page or a problem document.
    ours: bool = False
    #: The pause until the next poll that the response asks for.
    refresh_s: float | None = None
    #: The value of the header Retry-After, or 0.
    retry_after_s: float = 0
    #: The URL for joining the queue, if the response has one.
    join_url: str = ""
    token: Token | None = None

    @property
    def seconds(self) -> float:
        return self.received - self.sent


@dataclass(slots=True)
class Diary:
    """All entries of one visitor, in order."""

    name: str
    entries: list[Entry] = field(default_factory=list)
    #: Whether the visitor stays inside until the end of the run.
    stays: bool = False
    #: When the visitor left or stopped.
    gone: float | None = None

    @property
    def last(self) -> Entry | None:
        return self.entries[-1] if self.entries else None

    def held_at(self, moment: float) -> Token | None:
        """Return the token that the visitor had at a time. After the visitor left, return None."""
        if self.gone is not None and self.gone <= moment:
            return None
        held = None
        for entry in self.entries:
            if entry.received > moment:
                break
            held = entry.token
        return held
