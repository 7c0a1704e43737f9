"""What one visitor wrote down: every answer, and the cookie held after it."""

from dataclasses import dataclass, field
from typing import NamedTuple

TICKET, PASS = "t", "p"


class Token(NamedTuple):
    """What can be read in a cookie without its key (sidecar/visitors/tokens.py)."""

    kind: str
    visitor: str
    order: int
    #: Only of a pass: when it was last renewed in the store; 0 for one that a replica gave alone.
    renewed_ms: int = -1


def read_token(text: str) -> Token | None:
    """None for what is no token."""
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
    """One request and what became of it. Times are seconds since 1970, as the store's are."""

    #: page (of the site), status, join, leave
    what: str
    sent: float
    received: float
    #: 0 where no answer came; then `error` says why.
    status: int = 0
    error: str = ""
    #: What the visitor was told: admitted, waiting, not_queued, full, closed; "" if nothing.
    state: str = ""
    position: int | None = None
    paused: bool = False
    #: The waiting page or a problem document: an answer that Waitroom meant to give.
    ours: bool = False
    #: When to ask again, as told.
    refresh_s: float | None = None
    #: The header Retry-After, seconds; 0: none.
    retry_after_s: float = 0
    #: Where to join, where that is said.
    join_url: str = ""
    token: Token | None = None

    @property
    def seconds(self) -> float:
        return self.received - self.sent


@dataclass(slots=True)
class Diary:
    name: str
    entries: list[Entry] = field(default_factory=list)
    #: Browses from its admission to the end of the run and never leaves.
    stays: bool = False
    #: When it left, or came for the last time by its own wish.
    gone: float | None = None

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)

    @property
    def last(self) -> Entry | None:
        return self.entries[-1] if self.entries else None

    def held_at(self, moment: float) -> Token | None:
        """The token that the visitor held then; None also for who had left."""
        if self.gone is not None and self.gone <= moment:
            return None
        held = None
        for entry in self.entries:
            if entry.received > moment:
                break
            held = entry.token
        return held
