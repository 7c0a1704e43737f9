"""What was sent of a room, and what is on its way: a string, JSON (room_notices.Memory)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.redis.driver_errors import driver_errors, text
from sidecar.rooms.redis_keys import room_key

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store
    from sidecar.webhooks.room_notices import Memory


class Notices:
    """Of one room. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, room: str, timeout_s: float) -> None:
        self._redis = redis
        self._key = room_key(room, "notices")
        self._timeout_s = timeout_s
        #: As last read or written here; what is left of it when Redis was emptied.
        self.last: Memory | None = None

    async def read(self) -> str | None:
        async with driver_errors("notices", self._timeout_s):
            found = await self._redis.get(self._key)
        return None if found is None else text(found)

    async def write(self, memory: str) -> None:
        async with driver_errors("notices", self._timeout_s):
            await self._redis.set(self._key, memory)
