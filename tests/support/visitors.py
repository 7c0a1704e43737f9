"""Lets visitors join, poll and enter a room by its store, and deletes the room's keys."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.visitors.model import Pass, QueueOutcome, Standing, Ticket
from sidecar.visitors.tokens import new_visitor

#: Number of requests that the store sends to Redis in one script.
BATCH = 64

Item = TypeVar("Item")
Reply = TypeVar("Reply")


def ticket_of(visitor: str, standing: Standing) -> Ticket:
    return Ticket(visitor, standing.order, standing.now_ms, standing.epoch)


def pass_of(visitor: str, standing: Standing) -> Pass:
    return Pass(
        visitor, standing.order, standing.now_ms, standing.epoch,
        started_ms=standing.started_ms,
        renewed_ms=standing.now_ms,
        expires_ms=standing.expires_ms,
    )  # fmt: skip


async def queue(store, number):
    """Let `number` new visitors join a full room. Return their tickets."""
    visitors = [new_visitor() for _ in range(number)]
    standings = await call_in_batches(store.enter, visitors)
    assert {standing.outcome for standing in standings} <= {QueueOutcome.WAITING}
    return list(map(ticket_of, visitors, standings))


async def beat_all(store, tickets):
    """Poll with all tickets in order. Return the replies."""
    return await call_in_batches(store.beat, tickets)


async def call_in_batches(
    function: Callable[[Item], Awaitable[Reply]], items: Sequence[Item]
) -> list[Reply]:
    """Call an async function with each item, and return the results in order. The calls run in
    batches that are small enough for the store's timeout."""
    replies: list[Reply] = []
    for start in range(0, len(items), BATCH):
        replies += await asyncio.gather(*map(function, items[start : start + BATCH]))
    return replies


async def go_in(store, visitor=None):
    """Admit a new visitor who sends the cookie back. Return the pass."""
    first = await admit_unconfirmed(store, visitor)
    return replace(first, renewed_ms=(await store.renew(first)).now_ms + 1)


async def admit_unconfirmed(store, visitor=None):
    """Admit a new visitor. Return the first pass, which the browser has not sent back yet."""
    visitor = visitor or new_visitor()
    standing = await store.enter(visitor)
    assert standing.outcome is QueueOutcome.ADMITTED
    return pass_of(visitor, standing)


async def lose(redis, store, *names):
    """Delete the room's keys with these names. Without names, delete all its keys."""
    room = store._name
    await redis.delete(*([room_key(room, name) for name in names] or room_keys(room)))
