"""Methods by which operators read and change rooms. They need the admin_token."""

from typing import Any

from waitroom.blocking import BlockingMethods, blocking
from waitroom.core import Core
from waitroom.model import LogEntry, Room, Visitor
from waitroom.wire import Request, build_path

#: Type aliases, because the method `list` hides the built-in type within the class.
_AllRooms = list[Room]
_Log = list[LogEntry]


class AsyncRooms:
    """The methods of Rooms, as coroutines."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self) -> _AllRooms:
        return (await self._send("GET"))["rooms"]

    async def get(self, room: str) -> Room:
        return await self._send("GET", room)

    async def update(self, room: str, /, **settings: Any) -> Room:
        """Change a running room's settings on all replicas. None restores the configured value."""
        return await self._send("PATCH", room, body=settings)

    async def pause(self, room: str, *, why: str = "") -> Room:
        """Admit nobody: new visitors are queued, and visitors inside stay. Idempotent. `why` is
        written to the log."""
        return await self._act(room, "pause", why)

    async def drain(self, room: str, *, why: str = "") -> Room:
        """Admit the visitors who are queued, but queue no new ones. Idempotent."""
        return await self._act(room, "drain", why)

    async def hold(self, room: str, seconds: int = 300, *, why: str = "") -> Room:
        """Call nobody for some seconds, then resume gradually."""
        return await self._send("POST", room, "hold", query={"seconds": str(seconds), "why": why})

    async def resume(self, room: str, *, why: str = "") -> Room:
        """End a pause or a drain. Idempotent."""
        return await self._act(room, "resume", why)

    async def reset(self, room: str) -> int:
        """Empty the queue, but keep the sessions. Return how many places were removed. The client
        does not repeat this call, because visitors who joined since would lose their places."""
        return (await self._send("POST", room, "reset", is_repeatable=False))["removed"]

    async def find(self, room: str, visitor: str) -> Visitor:
        return await self._send("GET", room, "visitors", visitor)

    async def release(self, room: str, visitor: str) -> None:
        """End a visitor's session, or remove the visitor from the queue. Raises RejectedError with
        status 404 if the visitor has neither a session nor a place. The client does not repeat this
        call, because the visitor may have joined again since."""
        await self._send("POST", room, "visitors", visitor, "release", is_repeatable=False)

    async def move(self, room: str, visitor: str, to: int | str, *, why: str = "") -> int:
        """Move a visitor to a position in the queue, to its "head", or "back" to the place before
        the first move. Return the new position."""
        return await self._move(room, visitor, {"position": to}, why)

    async def set_class(
        self, room: str, visitor: str, class_name: str | None, *, why: str = ""
    ) -> int:
        """Change or remove a visitor's class, which may move the visitor. Return the position."""
        return await self._move(room, visitor, {"class": class_name}, why)

    async def log(self, room: str) -> _Log:
        """Return the log of operators' actions, latest first."""
        return (await self._send("GET", room, "log"))["log"]

    async def _act(self, room: str, act: str, why: str) -> Room:
        return await self._send("POST", room, act, query={"why": why} if why else {})

    async def _move(self, room: str, visitor: str, body: dict[str, Any], why: str) -> int:
        if why:
            body["why"] = why
        # The request is not repeated: a second move "back" fails even if the first one succeeded.
        parts = room, "visitors", visitor, "move"
        return (await self._send("POST", *parts, body=body, is_repeatable=False))["position"]

    async def _send(self, method: str, *parts: str, **more: Any) -> Any:
        path = build_path(*parts, root="/admin/rooms")
        return await self._core.call(Request(method, path, **more))


class Rooms(BlockingMethods[AsyncRooms]):
    """Methods by which operators read and change rooms. They need the admin_token."""

    list = blocking(AsyncRooms.list)
    get = blocking(AsyncRooms.get)
    update = blocking(AsyncRooms.update)
    pause = blocking(AsyncRooms.pause)
    drain = blocking(AsyncRooms.drain)
    hold = blocking(AsyncRooms.hold)
    resume = blocking(AsyncRooms.resume)
    reset = blocking(AsyncRooms.reset)
    find = blocking(AsyncRooms.find)
    release = blocking(AsyncRooms.release)
    move = blocking(AsyncRooms.move)
    set_class = blocking(AsyncRooms.set_class)
    log = blocking(AsyncRooms.log)
