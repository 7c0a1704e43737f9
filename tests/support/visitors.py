"""Visitors of a room's store, with their tickets and passes, and deletion of keys."""

import asyncio
from dataclasses import replace

from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.visitors.model import Pass, QueueOutcome, Ticket
from sidecar.visitors.tokens import new_visitor

#: Number of calls that the store sends in one script.
BATCH = 64


def ticket_of(visitor, standing):
    return Ticket(visitor, standing.order, standing.now_ms, standing.epoch)


def pass_of(visitor, standing):
    return Pass(
        visitor, standing.order, standing.now_ms, standing.epoch,
        started_ms=standing.started_ms,
        renewed_ms=standing.now_ms,
        expires_ms=standing.expires_ms,
    )  # fmt: skip


async def queue(store, number):
    """Let `number` newcomers join a full room. Return their tickets."""
    visitors = [new_visitor() for _ in range(number)]
    standings = await in_batches(store.enter, visitors)
    assert {standing.outcome for standing in standings} <= {QueueOutcome.WAITING}
    return list(map(ticket_of, visitors, standings))


async def beat_all(store, tickets):
    """Poll with all tickets, in batches and in order. Return the replies."""
    return await in_batches(store.beat, tickets)


async def in_batches(call, items):
    """Call in batches, which are small, so that no reply is late. Return the replies."""
    replies = []
    for start in range(0, len(items), BATCH):
        replies += await asyncio.gather(*map(call, items[start : start + BATCH]))
    return replies


async def go_in(store, visitor=None):
    """Admit a newcomer who sends the cookie back. Return the pass."""
    first = await come_in(store, visitor)
    return replace(first, renewed_ms=(await store.renew(first)).now_ms + 1)


async def come_in(store, visitor=None):
    """Admit a newcomer. Return the first pass, which the visitor has not sent back."""
    visitor = visitor or new_visitor()
    standing = await store.enter(visitor)
    assert standing.outcome is QueueOutcome.ADMITTED
    return pass_of(visitor, standing)


async def lose(redis, store, *names):
    """Delete the keys with these names in the room, or all keys of the room."""
    room = store._name
    await redis.delete(*([room_key(room, name) for name in names] or room_keys(room)))
