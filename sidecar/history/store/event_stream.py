"""Reads a room's event stream in Redis, and trims events that are in the database.

All replicas read as the same consumer of a consumer group. So a replica reads again the events that
the previous recorder read but did not acknowledge. Events that webhooks have not read yet are kept
for a while (webhooks/retention.py).
"""

from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from sidecar.history.model import StreamEvent
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import cursor_key, leader_key, room_key
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.storage.redis.lua_source import source

_GROUP = _CONSUMER = "recorder"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that were read from the stream by one command."""

    events: list[StreamEvent]
    #: How many events Redis trimmed before they were read, because the stream was full.
    lost_count: int


class EventStream:
    """The event stream of a room. Every method raises StoreError if Redis is unavailable."""

    def __init__(self, redis: Store, room: str, *, owner: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._key = room_key(room, "events")
        self._keys = [self._key, cursor_key(room)]
        #: The lease of the replica that records. If two replicas record at the same time, the
        #: second write skips the events of the first.
        self.lease = LeaderLease(
            redis, leader_key(room, "recording"), owner=owner, timeout_s=timeout_s
        )
        self._timeout_s = timeout_s

    async def read(self, limit: int) -> EventBatch:
        """Return events that are not acknowledged, oldest first, including those read before."""
        rows = await self._read_rows("0", limit)
        if not rows:
            await self._read_rows(">", limit)
            # Read again, because the previous recorder may just have read events too.
            rows = await self._read_rows("0", limit)
        if not rows:
            await self._trim_acknowledged()
        events = [_read_event(event_id, fields) for event_id, fields in rows if fields]
        lost_ids = [event_id for event_id, fields in rows if not fields]
        if lost_ids:
            async with driver_errors("record", self._timeout_s):
                await self._redis.xack(self._key, _GROUP, *lost_ids)
        return EventBatch(events, len(lost_ids))

    async def _read_rows(self, start: str, limit: int) -> list[tuple[Any, Any]]:
        """Read rows of the stream: those that are not acknowledged if `start` is "0", or new rows
        if it is ">". If the consumer group does not exist, create it and return []."""
        try:
            async with driver_errors("record", self._timeout_s):
                reply = await self._redis.xreadgroup(
                    _GROUP, _CONSUMER, {self._key: start}, count=limit
                )
        except StoreError as error:
            if "NOGROUP" not in str(error):
                raise
            async with driver_errors("record", self._timeout_s):
                try:
                    await self._redis.xgroup_create(self._key, _GROUP, id="0", mkstream=True)
                except ResponseError as failure:
                    if "BUSYGROUP" not in str(failure):  # unless another replica has created it
                        raise
            return []
        if not reply:
            return []
        return list(reply[0][1] if isinstance(reply, list) else next(iter(reply.values()))[0])

    async def acknowledge(self, events: list[StreamEvent]) -> None:
        """Acknowledge events that are in the database, and trim them. Idempotent."""
        ids = [event.id for event in events]
        await self._acknowledge_and_trim(ids[-1], *ids)

    async def _acknowledge_and_trim(self, trim_until: str, *ids: str) -> None:
        lua = source("history/acknowledge")
        async with driver_errors("record", self._timeout_s):
            await self._redis.eval(lua, 2, *self._keys, _GROUP, trim_until, *ids)

    async def _trim_acknowledged(self) -> None:
        """Trim acknowledged events that could not be trimmed before, because of webhooks."""
        async with driver_errors("record", self._timeout_s):
            try:
                groups = await self._redis.xinfo_groups(self._key)
            except ResponseError:  # Redis was emptied, so there is no stream
                return
        for group in groups:
            if text(group["name"]) == _GROUP and group["pending"] == 0:
                await self._acknowledge_and_trim(text(group["last-delivered-id"]))


def _read_event(event_id: bytes | str, fields: dict[Any, Any]) -> StreamEvent:
    ms, _, seq = text(event_id).partition("-")
    more = {text(name): text(value) for name, value in fields.items()}
    kind, visitor, why, at = map(more.pop, ("kind", "visitor", "why", "at"))
    return StreamEvent(int(ms), int(seq), kind, visitor, why, int(at), more)
