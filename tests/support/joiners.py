"""Lets visitors with a class or a draw number join a room, and reads the room's queue."""

from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.store.scripts import NO_CLAIM, ClassClaim
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.support.visitors import ticket_of

DAY_MS = 86_400_000


def claim(name, grant="", *, expires_ms=1_800_000_000_000 + DAY_MS):
    return ClassClaim(name, grant, expires_ms) if name else NO_CLAIM


async def join(store, name="", grant="", *, visitor=None, lot=None):
    """Let a visitor join a full room. Return the visitor's ticket."""
    visitor = visitor or new_visitor()
    standing = await store.enter(visitor, claim=claim(name, grant), lot=lot)
    assert standing.outcome is QueueOutcome.WAITING
    return ticket_of(visitor, standing)


async def list_waiting(redis, store):
    """Return the waiting visitors in queue order, which is the order of their calls unless
    sub-queues have weights."""
    return [v.decode() for v in await redis.zrange(room_key(store._name, "waiting"), 0, -1)]


async def list_called(redis, store):
    """Return all visitors who were called, in the order of their calls."""
    events = await redis.xrange(room_key(store._name, "events"))
    return [e[b"visitor"].decode() for _, e in events if e[b"kind"] == b"called"]


async def find_last_called(redis, store):
    """Return the visitor who was called last. Fail if the last ten events contain no call."""
    events = await redis.xrevrange(room_key(store._name, "events"), count=10)
    return next(e[b"visitor"].decode() for _, e in events if e[b"kind"] == b"called")
