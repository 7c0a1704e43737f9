"""Applies a visitor's claimed class and lot, which decide the visitor's place in the queue."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from sidecar.rooms.bearer import Bearer
from sidecar.rooms.openings import RoomEvent
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.rooms.store.scripts import NO_CLAIM, ClassClaim, Lot, RoomStore
from sidecar.visitors.model import LOT_BITS, ORDER_BAND, Standing, Ticket

#: The lowest order of a drawn place (rooms/lua/parts/order.lua: the front band).
LOWEST_DRAWN_ORDER = -4 * ORDER_BAND
#: How far a replica's clock may be ahead of the clock of Redis.
_CLOCK_SKEW_MS = 2_000


class LotSource(Protocol):
    """The interface of a room's lottery draws (lottery/service.py)."""

    def has_agreed_secret(self, event: RoomEvent) -> bool:
        """Return True if all replicas use the same secret for the event's draw."""

    def compute_lot(self, event: RoomEvent, visitor: str) -> int:
        """Return the visitor's number in the draw, below 2**LOT_BITS. Lower numbers go first."""

    async def publish(self, events: Sequence[RoomEvent], snapshot: Snapshot) -> None:
        """Publish new commitments, and read those of other replicas. Raises StoreError."""


def read_claim(bearer: Bearer) -> ClassClaim:
    """Return the class that a client claims. A class from nginx takes precedence over a grant."""
    if bearer.class_name:
        return ClassClaim(bearer.class_name)
    grant = bearer.grant
    return ClassClaim(grant.class_name, grant.id, grant.expires_s * 1000) if grant else NO_CLAIM


async def apply_claim(
    ticket: Ticket, claim: ClassClaim, settings: RoomSettings, store: RoomStore
) -> Ticket:
    """Return the ticket with the claimed class. Return it unchanged if the room has no such class,
    or if Redis rejects the claim, for example because the grant was used. The next poll then claims
    the class again. Raises StoreError."""
    name = claim.class_name
    if name == ticket.class_name or name not in settings.classes:
        return ticket
    if await store.reclassify(ticket.visitor, claim) <= 0:
        return ticket
    return replace(ticket, class_name=name, signed_ms=0)


def make_hidden_order(joined_ms: int) -> int:
    """Return the placeholder that tickets have as their order until the pre-queue is over. Visitors
    can read their tickets, and must not learn the drawn order before the opening."""
    return joined_ms * 1000


def issue_ticket(visitor: str, standing: Standing, claim: ClassClaim) -> Ticket:
    """Return a newcomer's ticket, with the placeholder of make_hidden_order as its order."""
    name = claim.class_name if standing.is_classed else ""
    now_ms = standing.now_ms
    return Ticket(visitor, make_hidden_order(now_ms), now_ms, standing.epoch, class_name=name)


def find_lot(
    visitor: str, settings: RoomSettings, draws: LotSource | None, now_ms: int
) -> Lot | None:
    """Return a newcomer's lot in the draw. Return None if the current or next event has no
    pre-queue, or if the replicas do not agree yet on the secret of the draw."""
    event = _find_prequeue_event(settings, now_ms) if settings.events else None
    if event is None or draws is None or not draws.has_agreed_secret(event):
        return None
    return Lot(draws.compute_lot(event, visitor) / (1 << LOT_BITS), event.begins_ms)


def add_drawn_order(ticket: Ticket, settings: RoomSettings, draws: LotSource | None) -> Ticket:
    """Return the ticket, with its drawn order if the visitor joined in a pre-queue and the ticket
    still has the placeholder of make_hidden_order."""
    if not settings.events or draws is None or ticket.order != make_hidden_order(ticket.joined_ms):
        return ticket
    for event in settings.events:
        if event.prequeue_from is not None and (
            event.prequeue_from <= ticket.joined_ms < event.opens_at
        ):
            lot = draws.compute_lot(event, ticket.visitor)
            return replace(ticket, order=LOWEST_DRAWN_ORDER + lot)
    return ticket


def _find_prequeue_event(settings: RoomSettings, now_ms: int) -> RoomEvent | None:
    """Return the next event to open, or None if that event has no pre-queue."""
    for event in sorted(settings.events, key=lambda event: event.begins_ms):
        if now_ms < event.opens_at + _CLOCK_SKEW_MS:
            return event if event.prequeue_from is not None else None
    return None
