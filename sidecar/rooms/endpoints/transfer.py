"""Endpoints that move a room from one Redis to another, used by `waitroom rooms export` and
`import`. A line of the file is a page of the export and a call of the import."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import structlog
from aiohttp import web

from sidecar.http.auth.session import operator
from sidecar.http.endpoint import ADMINS, Endpoints
from sidecar.http.problems import ProblemError
from sidecar.kit.errors import ConfigError, StoreError
from sidecar.rooms.app_keys import room_of
from sidecar.rooms.schemas.common import UNKNOWN_ROOM, RoomAddress
from sidecar.rooms.schemas.transfer import (
    QUEUE_RESET,
    ExportHead,
    ExportPage,
    ExportParameters,
    ExportRows,
    Imported,
    ImportStep,
)
from sidecar.rooms.service import Room
from sidecar.rooms.store.transfer import READ_ORDER, stats_rows
from sidecar.visitors.model import Outside

ENDPOINTS = Endpoints("administration", find=room_of, problems=(UNKNOWN_ROOM,))

#: Lot 0 is never outside, so this proof has no worth but its signature.
_PROOF = Outside(0)
#: A page of the answer has so many pages of the store at most.
_PAGES = 10
#: For as long as it takes to notice that a store is back.
_TRIES, _PAUSE_S = 5, 1.0

T = TypeVar("T")

log = structlog.get_logger()


@ENDPOINTS.get(
    "/admin/rooms/{room}/export", ADMINS, replies={200: "Lines of a file, and where to go on."}
)
async def export_room(request: web.Request, at: ExportParameters) -> ExportPage:
    """Export a page of the room, to move it to another Redis.

    `waitroom rooms export` reads all pages.
    """
    room = room_of(request)
    lines: list[ExportHead | ExportRows] = [] if at.cursor else await _head(room)
    kind, _, number = (at.cursor or f"{READ_ORDER[0]}-0").partition("-")
    cursor = int(number)
    for _ in range(_PAGES):
        pages, cursor = await patiently(partial(room.store.transfer.page, kind, cursor))
        lines += [ExportRows(kind=kind, rows=rows) for rows in pages]
        if cursor == 0:
            following = READ_ORDER.index(kind) + 1
            if following == len(READ_ORDER):
                return ExportPage.model_construct(lines=lines, next=None)
            kind = READ_ORDER[following]
    return ExportPage.model_construct(lines=lines, next=f"{kind}-{cursor}")


async def _head(room: Room) -> list[ExportHead | ExportRows]:
    snapshot = await room.refresh()
    head = ExportHead(
        format="waitroom-room/1",
        room=room.name,
        exported_at_ms=snapshot.now_ms,
        epoch=snapshot.epoch,
        settings=snapshot.overrides,
        waiting=snapshot.waiting,
        active=snapshot.active,
        proof=room.tokens.write(_PROOF),
    )
    return [head, ExportRows(kind="stats", rows=stats_rows(snapshot.counters))]


@ENDPOINTS.post(
    "/admin/rooms/{room}/import",
    ADMINS,
    replies={200: "How many are new here."},
    problems=(QUEUE_RESET,),
)
async def import_room(request: web.Request, _at: RoomAddress, step: ImportStep) -> Imported:
    """Import one step of an export.

    `begin` pauses the room. Then send each line of the file. `end` sets the settings of the file
    and ends the pause, unless the file has queue_all. `waitroom rooms import` does all of it.
    """
    room = room_of(request)
    if step.head is None:
        transfer = room.store.transfer
        write = partial(transfer.write, step.kind, step.rows, read_ms=step.exported_at_ms)
        return Imported(room=room.name, added=await patiently(write))
    if step.head.room != room.name:
        raise ConfigError(
            ["head: the file is of another room; tickets are of one alone, so both have one name"]
        )
    if step.kind == "begin":
        return await _begin(request, room, step.head)
    await room.store.configure(await _changes(room, step.head.settings), by=operator(request))
    await room.refresh()
    log.info("imported", room=room.name)
    return Imported(room=room.name)


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Make a call that may be made twice, and repeat it if Redis does not answer: one of thousands
    may be slow, and must not end them all."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(StoreError):
            return await call()
        await asyncio.sleep(_PAUSE_S)
    return await call()


async def _begin(request: web.Request, room: Room, head: ExportHead) -> Imported:
    if not room.tokens.read(head.proof):
        raise ConfigError(
            ["made with other secret_keys, or over a day ago: its tickets are invalid here"]
        )
    await _changes(room, head.settings)  # refused now rather than at the end
    transfer, read_ms = room.store.transfer, head.exported_at_ms
    if not await transfer.begin(head.epoch, read_ms=read_ms, by=operator(request)):
        raise ProblemError(
            QUEUE_RESET,
            detail="The queue here was reset after the export: its tickets are invalid. "
            "Nothing was changed.",
        )
    await room.refresh()
    log.info("import_began", room=room.name, exported_at_ms=read_ms)
    return Imported(room=room.name)


async def _changes(room: Room, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the changes that turn the settings in force into those of the file. Raises
    ConfigError."""
    checked = room.file_settings.changed(settings).model_dump()
    here = (await room.refresh()).overrides
    taken_back = dict.fromkeys(name for name in here if name not in settings)
    return {**taken_back, **{name: checked[name] for name in settings}}
