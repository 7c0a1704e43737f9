"""A page of a room's queue, as operators see it."""

from sidecar.rooms.places import line_of, origin_of
from sidecar.rooms.schemas.visitors import Waiting
from sidecar.rooms.service import Room
from sidecar.visitors.visitor_number import visitor_number


async def waiting_in(room: Room, *, start: int, limit: int) -> list[Waiting]:
    """The visitors from that place on, counted from 0, in their order. Raises StoreError."""
    lists, settings = room.store.lists, room.settings
    rows = await lists.line(offset=start, limit=limit)
    befores = await lists.before_moves([visitor for visitor, _ in rows])
    found = []
    for position, ((visitor, order), before) in enumerate(
        zip(rows, befores, strict=True), start=start + 1
    ):
        origin = origin_of(order, before, settings)
        found.append(
            Waiting(
                visitor=visitor,
                number=visitor_number(visitor),
                position=position,
                order=order,
                line=line_of(order, settings.lines),
                class_=origin.class_name,
                joined_at_ms=origin.joined_ms,
            )
        )
    return found
