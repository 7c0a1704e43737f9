"""Endpoints that move a room from one Redis to another, for `waitroom rooms export` and `import`.
An import sends each line of the export file in a separate request."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import structlog
from aiohttp import web

from sidecar.http.auth.session import find_logged_name
from sidecar.http.endpoint import ADMINS, Endpoints
from sidecar.http.problems import ProblemError
from sidecar.kit.errors import InputError, StoreError
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
from sidecar.rooms.service import WaitingRoom, room_of
from sidecar.rooms.store.transfer import READ_ORDER, make_stats_rows
from sidecar.visitors.model import Outside

ENDPOINTS = Endpoints("administration", find=room_of, unknown=UNKNOWN_ROOM)

#: The token in the file's head, of which only the signature matters. As a cookie it admits nobody,
#: because the roll-out number 0 is never outside the roll-out.
_PROOF = Outside(0)
#: The maximum number of pages that are read from Redis for one page of the response.
_STORE_PAGES = 10
#: The number of attempts of one call, and the pause between two. All attempts together last long
#: enough to detect that Redis is available again.
_ATTEMPTS, _PAUSE_S = 5, 1.0

T = TypeVar("T")

log = structlog.get_logger()


@ENDPOINTS.get(
    "/admin/rooms/{room}/export", ADMINS, replies={200: "Lines of the file, and the next cursor."}
)
async def export_room(request: web.Request, params: ExportParameters) -> ExportPage:
    """Export a page of the room, to move it to another Redis.

    `waitroom rooms export` reads all pages."""
    room = room_of(request)
    lines: list[ExportHead | ExportRows] = [] if params.cursor else await _make_head(room)
    kind, _, number = (params.cursor or f"{READ_ORDER[0]}-0").partition("-")
    cursor = int(number)
    for _ in range(_STORE_PAGES):
        read_page = partial(room.store.transfer.read_page, kind, cursor)
        pages, cursor = await call_with_retries(read_page)
        lines += [ExportRows(kind=kind, rows=rows) for rows in pages]
        if cursor == 0:
            next_index = READ_ORDER.index(kind) + 1
            if next_index == len(READ_ORDER):
                return ExportPage.model_construct(lines=lines, next=None)
            kind = READ_ORDER[next_index]
    return ExportPage.model_construct(lines=lines, next=f"{kind}-{cursor}")


async def _make_head(room: WaitingRoom) -> list[ExportHead | ExportRows]:
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
    return [head, ExportRows(kind="stats", rows=make_stats_rows(snapshot.counters))]


@ENDPOINTS.post(
    "/admin/rooms/{room}/import",
    ADMINS,
    replies={200: "How many rows were new."},
    problems=(QUEUE_RESET,),
)
async def import_room(request: web.Request, _params: RoomAddress, step: ImportStep) -> Imported:
    """Import one step of an export.

    `begin` pauses the room. Then send each line of the file. `end` applies the file's settings,
    which ends the pause unless they contain queue_all. `waitroom rooms import` sends all steps."""
    room = room_of(request)
    if step.head is None:
        transfer = room.store.transfer
        write = partial(transfer.write, step.kind, step.rows, read_ms=step.exported_at_ms)
        return Imported(room=room.name, added=await call_with_retries(write))
    if step.head.room != room.name:
        raise InputError(
            ["head: the file is of another room; tickets are of one alone, so both have one name"]
        )
    if step.kind == "begin":
        return await _begin_import(request, room, step.head)
    await room.store.configure(
        await _find_setting_changes(room, step.head.settings), by=find_logged_name(request)
    )
    await room.refresh()
    log.info("imported", room=room.name)
    return Imported(room=room.name)


async def call_with_retries(call: Callable[[], Awaitable[T]]) -> T:
    """Make an idempotent call and return its result. Repeat the call if Redis does not reply,
    because one slow call among thousands must not abort the whole export or import."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(StoreError):
            return await call()
        await asyncio.sleep(_PAUSE_S)
    return await call()


async def _begin_import(request: web.Request, room: WaitingRoom, head: ExportHead) -> Imported:
    if not room.tokens.read(head.proof):
        raise InputError(
            ["made with other secret_keys, or over a day ago: its tickets are invalid here"]
        )
    await _find_setting_changes(room, head.settings)  # raises InputError now, not at the end
    transfer, read_ms = room.store.transfer, head.exported_at_ms
    if not await transfer.begin(head.epoch, read_ms=read_ms, by=find_logged_name(request)):
        raise ProblemError(
            QUEUE_RESET,
            detail="The queue here was reset after the export: its tickets are invalid. "
            "Nothing was changed.",
        )
    await room.refresh()
    log.info("import_began", room=room.name, exported_at_ms=read_ms)
    return Imported(room=room.name)


async def _find_setting_changes(room: WaitingRoom, exported: dict[str, Any]) -> dict[str, Any]:
    """Return the changes that give the room the exported settings, and that reset all others that
    were changed at run time. Raises InputError if a setting is not allowed."""
    new_settings = room.file_settings.with_overrides(exported).model_dump()
    overrides = (await room.refresh()).overrides
    resets = dict.fromkeys(name for name in overrides if name not in exported)
    return {**resets, **{name: new_settings[name] for name in exported}}
