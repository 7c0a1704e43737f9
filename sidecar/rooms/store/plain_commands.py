"""Sends commands about one room to Redis: base classes of the room's stores."""

from collections.abc import Awaitable, Callable
from typing import Any

from sidecar.rooms.redis_keys import room_key
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors


class PlainCommands:
    """Sends commands that need no script."""

    def __init__(self, redis: Store, room: str, *, timeout_s: float) -> None:
        self._redis: Any = redis
        self._name = room
        self._timeout_s = timeout_s

    def _key(self, name: str) -> str:
        return room_key(self._name, name)

    async def _send(self, operation: str, reply: Awaitable[Any]) -> Any:
        """Await a command's reply, and return it. Raises StoreError, which names the operation."""
        async with driver_errors(operation, self._timeout_s):
            return await reply


class ScriptedCommands(PlainCommands):
    """Sends commands, and runs Lua scripts with `run`, which is a method of RoomStore."""

    def __init__(
        self,
        redis: Store,
        room: str,
        run: Callable[[str, list[Any]], Awaitable[Any]],
        *,
        timeout_s: float,
    ) -> None:
        super().__init__(redis, room, timeout_s=timeout_s)
        self._run = run
