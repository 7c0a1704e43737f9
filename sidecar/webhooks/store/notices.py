"""Who tells a room's webhooks, and what they were told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.kit.redis.driver_errors import text, translated
from sidecar.kit.redis.leader_lease import Turn
from sidecar.rooms import redis_keys as keys

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store


class Notices:
    """Of one room. Every method raises StoreError when the store does not answer."""

    def __init__(
        self, redis: Store, room: str, *, replica: str, timeout_s: float, turn_ms: int
    ) -> None:
        self._redis = redis
        key = keys.notifier_leader_key(room)
        self._turn = Turn(redis, key, owner=replica, timeout_s=timeout_s)
        self._notices_key = keys.notices_key(room)
        self._timeout_s = timeout_s
        self._turn_ms = turn_ms

    async def take_turn(self) -> bool:
        """Whether this replica tells the webhooks. It keeps the turn while it asks again within
        `turn_ms`. (A replica that was held up may take a turn back just as another has it: both
        tell then, once, and from the same memory, so with the same ids.)"""
        return await self._turn.hold(milliseconds=self._turn_ms)

    async def read(self) -> str | None:
        async with translated("notices", self._timeout_s):
            found = await self._redis.get(self._notices_key)
        return None if found is None else text(found)

    async def write(self, memory: str) -> None:
        async with translated("notices", self._timeout_s):
            await self._redis.set(self._notices_key, memory)
