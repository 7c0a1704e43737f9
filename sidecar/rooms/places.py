"""The class that a newcomer claims, and the order of a place that is drawn."""

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
FIRST_DRAWN = -4 * ORDER_BAND
#: A replica's clock may be ahead of the clock of Redis by this.
_CLOCKS_APART_MS = 2_000


class LotSource(Protocol):
    """The interface of a room's lottery draws (lottery/service.py)."""

    def is_agreed(self, event: RoomEvent) -> bool:
        """Return True if all replicas draw with the same secret."""

    def lot(self, event: RoomEvent, visitor: str) -> int:
        """Return a number below 2**LOT_BITS. A smaller one is called sooner."""

    async def refresh(self, events: Sequence[RoomEvent], snapshot: Snapshot) -> None:
        """Publish new commitments, and read those of other replicas. Raises StoreError."""


def claim_of(bearer: Bearer) -> ClassClaim:
    """Return the class that a client claims. nginx's class goes before a grant's."""
    if bearer.class_name:
        return ClassClaim(bearer.class_name)
    grant = bearer.grant
    return ClassClaim(grant.class_name, grant.id, grant.expires_s * 1000) if grant else NO_CLAIM


async def reclassified(
    ticket: Ticket, claim: ClassClaim, settings: RoomSettings, store: RoomStore
) -> Ticket:
    """Return the ticket, with a class that was claimed since it was given. Redis is asked once,
    unless the grant was used up: then another one may come. Raises StoreError."""
    name = claim.class_name
    if name == ticket.class_name or name not in settings.classes:
        return ticket
    if await store.reclassify(ticket.visitor, claim) <= 0:
        return ticket
    return replace(ticket, class_name=name, signed_ms=0)


def hidden_order(joined_ms: int) -> int:
    """Return the order that a ticket shows until the pre-queue is over, since its bearer can read
    it."""
    return joined_ms * 1000


def ticket_of(visitor: str, standing: Standing, claim: ClassClaim) -> Ticket:
    """Return a newcomer's ticket, with a hidden order."""
    name = claim.class_name if standing.is_classed else ""
    now_ms = standing.now_ms
    return Ticket(visitor, hidden_order(now_ms), now_ms, standing.epoch, class_name=name)


def lot_of_newcomer(
    visitor: str, settings: RoomSettings, draws: LotSource | None, now_ms: int
) -> Lot | None:
    """Return a newcomer's lot; None if no pre-queue is on or coming, or replicas do not agree on
    its draw yet."""
    event = _next(settings, now_ms) if settings.events else None
    if event is None or draws is None or not draws.is_agreed(event):
        return None
    return Lot(draws.lot(event, visitor) / (1 << LOT_BITS), event.begins_ms)


def with_lot(ticket: Ticket, settings: RoomSettings, draws: LotSource | None) -> Ticket:
    """Return the ticket with its drawn order, if its place was drawn and the ticket does not show
    that yet."""
    if not settings.events or draws is None or ticket.order != hidden_order(ticket.joined_ms):
        return ticket
    for event in settings.events:
        if event.prequeue_from is not None and (
            event.prequeue_from <= ticket.joined_ms < event.opens_at
        ):
            return replace(ticket, order=FIRST_DRAWN + draws.lot(event, ticket.visitor))
    return ticket


def _next(settings: RoomSettings, now_ms: int) -> RoomEvent | None:
    """Return the event whose pre-queue a newcomer may join now."""
    for event in sorted(settings.events, key=lambda event: event.begins_ms):
        if now_ms < event.opens_at + _CLOCKS_APART_MS:
            return event if event.prequeue_from is not None else None
    return None
