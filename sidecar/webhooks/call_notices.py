"""What is sent of visitors who were called. Pure: calls in, notices out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sidecar.queue.model import Ticket
from sidecar.webhooks.store.calls import Call  # noqa: TC001 - pydantic reads it
from sidecar.webhooks.store.document import Document

if TYPE_CHECKING:
    from sidecar.queue.tokens import Tokens
    from sidecar.rooms.settings import RoomSettings

#: Calls in one notice.
BATCH = 100
#: Batches on their way that are kept in Redis; the oldest give way.
UNSENT = 100


@dataclass(frozen=True, slots=True)
class Invitation:
    """What is sent of one call: who, when, until when they have to come, and where."""

    visitor: str
    called_ms: int
    claim_before_ms: int
    claim_url: str


@dataclass(frozen=True, slots=True)
class CallNotice:
    """Some calls of one room. `at_ms`: when the last of them was."""

    id: str
    room: str
    at_ms: int
    calls: tuple[Invitation, ...]
    event: Literal["called"] = "called"


@dataclass(frozen=True, slots=True)
class Batch(Document):
    """Calls that are sent together, and the webhooks that do not have them."""

    calls: tuple[Call, ...]
    webhooks: tuple[str, ...]


def read_batches(texts: dict[str, str]) -> dict[str, Batch]:
    """By id, oldest first. What cannot be read is left out."""
    found = [(name, batch) for name, text in texts.items() if (batch := Batch.read(text))]
    return dict(sorted(found, key=lambda item: _place(item[1].calls[0].id)))


def _place(event_id: str) -> tuple[int, int]:
    ms, _, seq = event_id.partition("-")
    return int(ms), int(seq)


def batches_of(room: str, calls: list[Call], webhooks: tuple[str, ...]) -> dict[str, Batch]:
    """By id. Two replicas that read the same calls give them the same ids."""
    made = {}
    for start in range(0, len(calls), BATCH):
        part = calls[start : start + BATCH]
        made[f"{room}-{part[0].id}-{part[-1].id}-called"] = Batch(tuple(part), webhooks)
    return made


def ticket_of(call: Call, settings: RoomSettings, *, epoch: int) -> Ticket:
    """The ticket that the called visitor has, as far as the call tells. What it does not tell is
    made of the time of the call: that counts only where Redis is emptied before they come."""
    order = call.at_ms * 1000 if call.order is None else call.order
    joined_ms = call.joined_ms
    if joined_ms is None:
        is_time = settings.queueing_method == "fifo" and 0 < order <= call.at_ms * 1000
        joined_ms = order // 1000 if is_time else call.at_ms
    return Ticket(call.visitor, order, joined_ms, epoch)


def claim_url(room: str, settings: RoomSettings, tokens: Tokens, ticket: Ticket) -> str:
    """Where a ticket is taken to another browser; without the room's `public_url`, the path."""
    return f"{settings.public_url or ''}/_waitroom/{room}/claim?token={tokens.write_claim(ticket)}"
