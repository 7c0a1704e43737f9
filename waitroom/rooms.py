"""Rooms, for operators: with the admin_token."""

from typing import Any

from waitroom.blocking import Shell, blocking
from waitroom.core import Core
from waitroom.model import LogEntry, Room, Visitor
from waitroom.wire import Request, path

#: Names for types, in a class that has a method `list`.
_AllRooms = list[Room]
_Log = list[LogEntry]


class AsyncRooms:
    """As Rooms."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self) -> _AllRooms:
        return (await self._send("GET"))["rooms"]

    async def get(self, room: str) -> Room:
        return await self._send("GET", room)

    async def update(self, room: str, /, **settings: Any) -> Room:
        """Change settings of a running room, on all replicas. None resets one to the configured
        value."""
        return await self._send("PATCH", room, body=settings)

    async def pause(self, room: str) -> Room:
        """Let nobody in: newcomers queue, visitors inside stay. Idempotent."""
        return await self._send("POST", room, "pause")

    async def drain(self, room: str) -> Room:
        """Let in the visitors in the queue, and nobody new into the queue. Idempotent."""
        return await self._send("POST", room, "drain")

    async def resume(self, room: str) -> Room:
        """End a pause or a drain. Idempotent."""
        return await self._send("POST", room, "resume")

    async def reset(self, room: str) -> int:
        """Empty the queue; sessions stay. Return how many places were removed. Not repeated by the
        client: newcomers would lose their places."""
        return (await self._send("POST", room, "reset", is_repeatable=False))["removed"]

    async def find(self, room: str, visitor: str) -> Visitor:
        return await self._send("GET", room, "visitors", visitor)

    async def release(self, room: str, visitor: str) -> None:
        """End a visitor's session or place. Raises RejectedError with status 404 if there is
        neither. Not repeated by the client: the visitor may have come back between two tries."""
        await self._send("POST", room, "visitors", visitor, "release", is_repeatable=False)

    async def move(self, room: str, visitor: str, to: int | str, *, why: str = "") -> int:
        """Move a visitor to a position in the queue, to the "head", or "back" to the place before a
        move. Return the new position."""
        return await self._move(room, visitor, {"position": to}, why)

    async def set_class(
        self, room: str, visitor: str, class_name: str | None, *, why: str = ""
    ) -> int:
        """Give a visitor another class, or none, and its place. Return the new position."""
        return await self._move(room, visitor, {"class": class_name}, why)

    async def log(self, room: str) -> _Log:
        """Return what operators did, latest first."""
        return (await self._send("GET", room, "log"))["log"]

    async def _move(self, room: str, visitor: str, body: dict[str, Any], why: str) -> int:
        if why:
            body["why"] = why
        # Not repeated: a visitor cannot be moved back twice, if only the response was lost.
        parts = room, "visitors", visitor, "move"
        return (await self._send("POST", *parts, body=body, is_repeatable=False))["position"]

    async def _send(self, method: str, *parts: str, **more: Any) -> Any:
        return await self._core.document(Request(method, path(*parts, root="/admin/rooms"), **more))


class Rooms(Shell[AsyncRooms]):
    """Rooms, for operators: with the admin_token."""

    list = blocking(AsyncRooms.list)
    get = blocking(AsyncRooms.get)
    update = blocking(AsyncRooms.update)
    pause = blocking(AsyncRooms.pause)
    drain = blocking(AsyncRooms.drain)
    resume = blocking(AsyncRooms.resume)
    reset = blocking(AsyncRooms.reset)
    find = blocking(AsyncRooms.find)
    release = blocking(AsyncRooms.release)
    move = blocking(AsyncRooms.move)
    set_class = blocking(AsyncRooms.set_class)
    log = blocking(AsyncRooms.log)
