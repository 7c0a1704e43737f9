"""A room from one store to another: the operator's calls that `waitroom rooms export` and
`import` are made of. A line of the file is a page of the one and a call of the other."""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from aiohttp import web

from sidecar.kit.errors import ConfigError, StoreError
from sidecar.kit.http.auth.session import operator
from sidecar.kit.http.problems import problem
from sidecar.kit.http.request_parameters import object_of
from sidecar.queue.model import Outside
from sidecar.queue.tokens import is_visitor
from sidecar.rooms.endpoints.request_parameters import room_of
from sidecar.rooms.store.transfer import FORMAT, PAGE, READ_ORDER, WRITE_ORDER, stats_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.rooms.service import Room
    from sidecar.rooms.store.transfer import Row

#: Lot 0 is never outside, so this proof is worth nothing but its signature.
_PROOF = Outside(0)
_CURSOR = re.compile(rf"({'|'.join(READ_ORDER)})-([0-9]{{1,20}})")
#: A page of the answer has so many pages of the store at most.
_PAGES = 10
_ADDRESS = re.compile(r"[A-Za-z0-9_-]{16}~([A-Za-z0-9_-]{22})")
_GRANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME = re.compile(r"(?!wait_)[a-z][a-z0-9_]{0,39}|wait_[0-9]{1,2}")
#: What the scripts count with: doubles.
_MOST = 2**53
#: For as long as it takes to notice that a store is back.
_TRIES, _PAUSE_S = 5, 1.0

T = TypeVar("T")

log = structlog.get_logger()


async def export_room(request: web.Request) -> web.Response:
    """Lines of a file, and the cursor of the next ones (null: these are the last). The first page
    is what is asked for without one: it begins with the head, and has the settings and numbers."""
    room = room_of(request)
    cursor = request.query.get("cursor")
    if cursor is None:
        lines = await _head(room)
        kind, at = READ_ORDER[0], 0
    else:
        match = _CURSOR.fullmatch(cursor)
        if match is None or int(match[2]) >= 2**64:
            raise ConfigError(["cursor: give the one that the last page named as next"])
        lines, kind, at = [], match[1], int(match[2])
    for _ in range(_PAGES):
        pages, at = await patiently(partial(room.store.transfer.page, kind, at))
        lines += [{"kind": kind, "rows": rows} for rows in pages]
        if at == 0:
            following = READ_ORDER.index(kind) + 1
            if following == len(READ_ORDER):
                return web.json_response({"lines": lines, "next": None})
            kind = READ_ORDER[following]
    return web.json_response({"lines": lines, "next": f"{kind}-{at}"})


async def _head(room: Room) -> list[dict[str, Any]]:
    snapshot = await room.refresh()
    head = {
        "format": FORMAT,
        "room": room.name,
        "exported_at_ms": snapshot.now_ms,
        "epoch": snapshot.epoch,
        "settings": snapshot.overrides,
        "waiting": snapshot.waiting,
        "active": snapshot.active,
        "proof": room.tokens.write(_PROOF),
    }
    return [head, {"kind": "stats", "rows": stats_rows(snapshot.counters)}]


async def import_room(request: web.Request) -> web.Response:
    """One step: {"kind": "begin", "head": …} checks the head and pauses the room; a line of the
    file, with exported_at_ms; {"kind": "end", "head": …} gives the room the settings of the
    file, and with that ends the pause, unless the file says queue_all itself."""
    room = room_of(request)
    step = await object_of(request)
    match step.get("kind"):
        case "begin":
            return await _begin(request, room, _read_head(room, step))
        case "end":
            head = _read_head(room, step)
            await room.store.configure(await _changes(room, head), by=operator(request))
            await room.refresh()
            log.info("imported", room=room.name)
            return web.json_response({"room": room.name, "added": 0})
        case str() as kind if kind in WRITE_ORDER:
            read_ms = _whole(step.get("exported_at_ms"), "exported_at_ms")
            rows = _read_rows(kind, step.get("rows"))
            write = partial(room.store.transfer.write, kind, rows, read_ms=read_ms)
            added = await patiently(write)
            return web.json_response({"room": room.name, "added": added})
        case _:
            raise ConfigError([f"kind: one of begin, {', '.join(WRITE_ORDER)}, end"])


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """A call that may be done twice, again where the store did not answer: among thousands one may
    well be slow, and that must not end them."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(StoreError):
            return await call()
        await asyncio.sleep(_PAUSE_S)
    return await call()


async def _begin(request: web.Request, room: Room, head: dict[str, Any]) -> web.Response:
    if not room.tokens.read(head.get("proof")):
        raise ConfigError(
            ["made with other secret_keys, or over a day ago: its tickets are worth nothing here"]
        )
    await _changes(room, head)  # refused now rather than at the end
    transfer, read_ms = room.store.transfer, head["exported_at_ms"]
    if not await transfer.begin(head["epoch"], read_ms=read_ms, by=operator(request)):
        return problem(
            409,
            "The queue was reset",
            detail="The queue here was reset after the export: its tickets are worth nothing. "
            "Nothing was changed.",
        )
    await room.refresh()
    log.info("import_began", room=room.name, exported_at_ms=read_ms)
    return web.json_response({"room": room.name, "added": 0})


async def _changes(room: Room, head: dict[str, Any]) -> dict[str, Any]:
    """What makes the settings changed at run time those of the file. Raises ConfigError."""
    settings = head["settings"]
    checked = room.file_settings.changed(settings).model_dump()
    here = (await room.refresh()).overrides
    taken_back = dict.fromkeys(name for name in here if name not in settings)
    return {**taken_back, **{name: checked[name] for name in settings}}


def _read_head(room: Room, step: dict[str, Any]) -> dict[str, Any]:
    head = step.get("head")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ConfigError([f"head: not of the format {FORMAT}, which this version reads"])
    if head.get("room") != room.name:
        raise ConfigError(
            ["head: the file is of another room; tickets are of one alone, so both have one name"]
        )
    if not isinstance(head.get("settings"), dict):
        raise ConfigError(["head: settings must be an object"])
    if not isinstance(head.get("proof"), str):
        raise ConfigError(["head: proof must be text"])
    for name in ("epoch", "exported_at_ms"):
        _whole(head.get(name), f"head: {name}")
    return head


def _read_rows(kind: str, rows: Any) -> list[Row]:
    """Raises ConfigError: what is not as an export has it would spoil the queue for everybody."""
    if not isinstance(rows, list) or len(rows) > PAGE:
        raise ConfigError([f"rows: a list of at most {PAGE}"])
    return [_read_row(kind, row, f"rows[{at}]") for at, row in enumerate(rows)]


def _read_row(kind: str, row: Any, where: str) -> Row:
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        raise ConfigError([f"{where}: a list that begins with a text"])
    name, *fields = row
    address = _ADDRESS.fullmatch(name)
    is_right = {
        "stats": _NAME.fullmatch(name) is not None,
        "addresses": address is not None and is_visitor(address[1]),
        "grants": _GRANT.fullmatch(name) is not None,
    }.get(kind, is_visitor(name))
    if not is_right:
        raise ConfigError([f"{where}: {name[:40]!r} is none that an export has"])
    if len(fields) != (2 if kind in {"active", "waiting"} else 1):
        raise ConfigError([f"{where}: not as many fields as an export has"])
    if kind == "active" and fields[1] == "":  # called, and not yet here
        return (name, _score(fields[0], where), "")
    return (name, *(_score(field, where) for field in fields))


def _score(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError([f"{where}: {str(value)[:40]!r} is no number"])
    if not -_MOST <= value <= _MOST:  # nor NaN
        raise ConfigError([f"{where}: a number is too large"])
    return value


def _whole(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ConfigError([f"{where}: must be a whole number"])
    return value
