"""A room's event stream in Redis. The recorder reads it by a consumer group with one consumer.

All replicas use the same consumer, so that events which a replica read but did not acknowledge
are read again by the next. Events are trimmed from the stream when they are in the database.
"""

from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from sidecar.history.model import Event
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import called_key, leader_key, room_key
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.leader_lease import LeaderLease

_GROUP = _CONSUMER = "recorder"
#: A script that acknowledges and trims events, but not those that webhooks have yet to read.
#: KEYS  events, id of the last event that was read for webhooks
#: ARGV  group, id of the last event to trim, ids of the events to acknowledge
_ACKNOWLEDGE = """
if ARGV[3] then redis.call('XACK', KEYS[1], ARGV[1], unpack(ARGV, 3)) end
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local ms, seq = parts(ARGV[2])
local read = redis.call('GET', KEYS[2])
if read then
  local read_ms, read_seq = parts(read)
  if read_ms < ms or (read_ms == ms and read_seq < seq) then ms, seq = read_ms, read_seq end
end
return redis.call('XTRIM', KEYS[1], 'MINID', string.format('%.0f-%.0f', ms, seq + 1))
"""


@dataclass(frozen=True, slots=True)
class EventBatch:
    events: list[Event]
    #: The number of events that were trimmed before they were written, because the stream was full.
    lost: int


class EventStream:
    """A room's events in Redis. Every method raises StoreError if Redis is unavailable."""

    def __init__(self, redis: Store, room: str, *, owner: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._key = room_key(room, "events")
        self._keys = [self._key, called_key(room)]
        #: The lease of the replica that records. If two replicas do so, SQL skips second copies.
        self.lease = LeaderLease(
            redis, leader_key(room, "recording"), owner=owner, timeout_s=timeout_s
        )
        self._timeout_s = timeout_s
        self._has_group = False

    async def read(self, limit: int) -> EventBatch:
        """Return unacknowledged events, oldest first, whether read before or new."""
        rows = await self._read("0", limit)
        if not rows:
            await self._read(">", limit)
            # Read again, because the previous recorder may just have read events too.
            rows = await self._read("0", limit)
        if not rows:
            await self._trim_acknowledged()
        events = [_event(event_id, fields) for event_id, fields in rows if fields]
        lost = [event_id for event_id, fields in rows if not fields]
        if lost:
            async with driver_errors("record", self._timeout_s):
                await self._redis.xack(self._key, _GROUP, *lost)
        return EventBatch(events, len(lost))

    async def _read(self, start: str, limit: int) -> list[tuple[Any, Any]]:
        if not self._has_group:
            await self._create_group()
        try:
            async with driver_errors("record", self._timeout_s):
                reply = await self._redis.xreadgroup(
                    _GROUP, _CONSUMER, {self._key: start}, count=limit
                )
        except StoreError as error:
            if isinstance(error.__cause__, ResponseError) and "NOGROUP" in str(error):
                self._has_group = False  # Redis was emptied
                return []
            raise
        if not reply:
            return []
        rows = reply[0][1] if isinstance(reply, list) else next(iter(reply.values()))[0]
        return list(rows)

    async def _create_group(self) -> None:
        async with driver_errors("record", self._timeout_s):
            try:
                await self._redis.xgroup_create(self._key, _GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        self._has_group = True

    async def acknowledge(self, events: list[Event]) -> None:
        """Acknowledge and trim events that are in the database. Idempotent."""
        ids = [f"{event.ms}-{event.seq}" for event in events]
        async with driver_errors("record", self._timeout_s):
            await self._redis.eval(_ACKNOWLEDGE, 2, *self._keys, _GROUP, ids[-1], *ids)

    async def _trim_acknowledged(self) -> None:
        """Trim acknowledged events that had to stay until webhooks had read them."""
        async with driver_errors("record", self._timeout_s):
            try:
                groups = await self._redis.xinfo_groups(self._key)
            except ResponseError:  # there is no stream: Redis was emptied
                return
            for group in groups:
                if text(group["name"]) == _GROUP and group["pending"] == 0:
                    last = text(group["last-delivered-id"])
                    await self._redis.eval(_ACKNOWLEDGE, 2, *self._keys, _GROUP, last)


def _event(event_id: bytes | str, fields: dict[Any, Any]) -> Event:
    ms, _, seq = text(event_id).partition("-")
    more = {text(name): text(value) for name, value in fields.items()}
    kind, visitor, why, at = map(more.pop, ("kind", "visitor", "why", "at"))
    return Event(int(ms), int(seq), kind, visitor, why, int(at), more)
