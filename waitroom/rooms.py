"""Rooms, for operators: with the admin_token."""

from typing import Any

from waitroom.blocking import Shell, blocking
from waitroom.core import Core
from waitroom.model import LogEntry, Room, Visitor
from waitroom.wire import Call, path

#: Names for types, in a class that has a method `list`.
_AllRooms = list[Room]
_Log = list[LogEntry]


class AsyncRooms:
    """As Rooms."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self) -> _AllRooms:
        return (await self._core.document(Call("GET", _path())))["rooms"]

    async def get(self, room: str) -> Room:
        return await self._core.document(Call("GET", _path(room)))

    async def update(self, room: str, /, **settings: Any) -> Room:
        """Changes settings of a running room, on all replicas; None resets to the configured
        value."""
        return await self._core.document(Call("PATCH", _path(room), body=settings))

    async def pause(self, room: str) -> Room:
        """Nobody is let in: newcomers queue, those inside stay. Idempotent."""
        return await self._core.document(Call("POST", _path(room, "pause")))

    async def drain(self, room: str) -> Room:
        """Those in the queue are let in; nobody new joins it. Idempotent."""
        return await self._core.document(Call("POST", _path(room, "drain")))

    async def resume(self, room: str) -> Room:
        """Takes back a pause or a drain. Idempotent."""
        return await self._core.document(Call("POST", _path(room, "resume")))

    async def reset(self, room: str) -> int:
        """Empties the queue; sessions stay. How many places were removed. Not repeated by the
        client: newcomers would lose theirs."""
        call = Call("POST", _path(room, "reset"), is_repeatable=False)
        return (await self._core.document(call))["removed"]

    async def find(self, room: str, visitor: str) -> Visitor:
        return await self._core.document(Call("GET", _path(room, "visitors", visitor)))

    async def release(self, room: str, visitor: str) -> None:
        """Ends a visitor's session or place. RejectedError with status 404 where there is neither.
        Not repeated by the client: the visitor may have come back between two tries."""
        address = _path(room, "visitors", visitor, "release")
        await self._core.document(Call("POST", address, is_repeatable=False))

    async def move(self, room: str, visitor: str, to: int | str, *, why: str = "") -> int:
        """To a position in their queue, "head", or "back" to where they were before they were
        moved. The new position."""
        return await self._move(room, visitor, {"position": to}, why)

    async def set_class(
        self, room: str, visitor: str, class_name: str | None, *, why: str = ""
    ) -> int:
        """Another class, or none, and the place that it gives. The new position."""
        return await self._move(room, visitor, {"class": class_name}, why)

    async def log(self, room: str) -> _Log:
        """What operators did, latest first."""
        return (await self._core.document(Call("GET", _path(room, "log"))))["log"]

    async def _move(self, room: str, visitor: str, body: dict[str, Any], why: str) -> int:
        if why:
            body["why"] = why
        # A visitor who was moved back by a call whose response was lost cannot be moved back again.
        address = _path(room, "visitors", visitor, "move")
        call = Call("POST", address, body=body, is_repeatable=False)
        return (await self._core.document(call))["position"]


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


def _path(*parts: str) -> str:
    return path(*parts, root="/admin/rooms")
