"""The base classes of the classes that send Redis commands on one room's keys."""

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

    async def _send(self, verb: str, reply: Awaitable[Any]) -> Any:
        """Return the reply of a command. Raises StoreError if Redis does not reply in time."""
        async with driver_errors(verb, self._timeout_s):
            return await reply


class ScriptedCommands(PlainCommands):
    """Sends commands, and calls scripts by `run`, a method of RoomStore."""

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
