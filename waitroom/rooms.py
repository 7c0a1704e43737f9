"""Rooms, for operators: with the admin_token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from waitroom.wire import Call

if TYPE_CHECKING:
    from waitroom.core import Core, Flow
    from waitroom.model import LogEntry, Room, Visitor


def list_all(core: Core, /) -> Flow[list[Room]]:
    rooms: list[Room] = (yield from core.document(Call("GET", "/admin/rooms")))["rooms"]
    return rooms


def get(core: Core, /, room: str) -> Flow[Room]:
    return core.document(Call("GET", _path(room)))


def update(core: Core, room: str, /, **settings: Any) -> Flow[Room]:
    """Changes settings of a running room, on all replicas; None resets to the configured value."""
    return core.document(Call("PATCH", _path(room), body=settings))


def pause(core: Core, /, room: str) -> Flow[Room]:
    """Nobody is let in: newcomers queue, those inside stay. Idempotent."""
    return core.document(Call("POST", _path(room, "pause")))


def drain(core: Core, /, room: str) -> Flow[Room]:
    """Those in the queue are let in; nobody new joins it. Idempotent."""
    return core.document(Call("POST", _path(room, "drain")))


def resume(core: Core, /, room: str) -> Flow[Room]:
    """Takes back a pause or a drain. Idempotent."""
    return core.document(Call("POST", _path(room, "resume")))


def reset(core: Core, /, room: str) -> Flow[int]:
    """Empties the queue; sessions stay. How many places were removed. Not repeated by the client:
    newcomers would lose theirs."""
    call = Call("POST", _path(room, "reset"), is_repeatable=False)
    return int((yield from core.document(call))["removed"])


def find(core: Core, /, room: str, visitor: str) -> Flow[Visitor]:
    return core.document(Call("GET", _path(room, "visitors", visitor)))


def release(core: Core, /, room: str, visitor: str) -> Flow[None]:
    """Ends a visitor's session or place. RejectedError with status 404 where there is neither. Not
    repeated by the client: the visitor may have come back between two tries."""
    address = _path(room, "visitors", visitor, "release")
    yield from core.document(Call("POST", address, is_repeatable=False))


def move(core: Core, /, room: str, visitor: str, to: int | str, *, why: str = "") -> Flow[int]:
    """To a position in their queue, "head", or "back" to where they were before they were moved.
    The new position."""
    return (yield from _move(core, room, visitor, {"position": to}, why))


def set_class(
    core: Core, /, room: str, visitor: str, class_name: str | None, *, why: str = ""
) -> Flow[int]:
    """Another class, or none, and the place that it gives. The new position."""
    return (yield from _move(core, room, visitor, {"class": class_name}, why))


def _move(core: Core, room: str, visitor: str, body: dict[str, Any], why: str) -> Flow[int]:
    if why:
        body["why"] = why
    # A visitor who was moved back by a call whose response was lost cannot be moved back again.
    address = _path(room, "visitors", visitor, "move")
    call = Call("POST", address, body=body, is_repeatable=False)
    return int((yield from core.document(call))["position"])


def log(core: Core, /, room: str) -> Flow[list[LogEntry]]:
    """What operators did, latest first."""
    entries: list[LogEntry] = (yield from core.document(Call("GET", _path(room, "log"))))["log"]
    return entries


def _path(*parts: str) -> str:
    return "/admin/rooms/" + "/".join(quote(part, safe="") for part in parts)
