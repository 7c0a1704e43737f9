"""A room's visitors and its log, read a page at a time."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.visitor_number import id_prefix, visitor_number

#: Members that one ZSCAN looks at, so that a search of all of them does not hold Redis.
SCANNED = 1000


class QueuedVisitor(NamedTuple):
    """A waiting visitor. `line` is the sub-queue, None where there is none or the place was drawn;
    `class_name` is "" for none; `joined_ms` is None where places are drawn."""

    visitor: str
    order: int
    line: str | None
    class_name: str
    joined_ms: int | None


@dataclass(frozen=True, slots=True)
class VisitorRecord:
    """Where one visitor is: waiting (`position` from 1 on, `place`), inside (`ends_ms`; while
    `started_ms` is None called and not arrived yet), revoked, or none of these."""

    position: int | None
    #: The position in the sub-queue, where there is one.
    line_position: int | None
    ends_ms: int | None
    started_ms: int | None
    revoked_ms: int | None
    place: QueuedVisitor | None


class Lists(PlainCommands):
    """A room's visitors, log and samples, read a page at a time or as a whole."""

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

    async def queue(self, *, offset: int, limit: int) -> list[QueuedVisitor]:
        """Return waiting visitors in their order; `offset` 0 is the head."""
        _, *row = await self._run("queue", [offset, limit])
        return [_queued(row[at : at + 5]) for at in range(0, len(row), 5)]

    async def sessions(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Return active visitors and when their session ends (ms), soonest first."""
        end = offset + limit - 1
        rows = self._redis.zrange(self._key("active"), offset, end, withscores=True)
        return [(text(member), int(score)) for member, score in await self._ask("list", rows)]

    async def find(self, visitor: str) -> VisitorRecord:
        _, *times, position, line_position, place = await self._run("find", [visitor])
        ends_ms, started_ms, revoked_ms = (None if ms < 0 else ms for ms in times)
        queued = _queued([visitor, *place]) if position else None
        return VisitorRecord(
            position or None,
            line_position if queued and queued.line else None,
            ends_ms,
            started_ms,
            revoked_ms,
            queued,
        )

    async def numbered(self, number: str) -> list[str]:
        """Return the ids with that visitor number that `find` knows. It looks at all visitors, so
        it is for operators alone. A visitor called meanwhile is found: waiting ones are read
        first."""
        ids: set[str] = set()
        for name in ("due", "active", "revoked"):
            ids |= await self._begin_with(id_prefix(number), name)
        return sorted(visitor for visitor in ids if visitor_number(visitor) == number)

    async def here(self, visitors: list[str]) -> set[str]:
        """Return those of the visitors who wait or are inside."""
        present: set[str] = set()
        for name in ("due", "active"):
            scores = await self._ask("here", self._redis.zmscore(self._key(name), visitors))
            present |= {v for v, score in zip(visitors, scores, strict=True) if score is not None}
        return present

    async def log(self) -> list[dict[str, Any]]:
        """Return what operators did, latest first: at (ms), by, what, visitor, detail. A change
        also has `revision`, and `changes`: the JSON value before and after by name, each "" if it
        is as configured."""
        return await self._json("log")

    async def minutes(self, most: int = 0) -> list[dict[str, Any]]:
        """Return one sample of the room a minute (rooms/lua/parts/minutes.lua), latest first. 0:
        all samples."""
        return await self._json("minutes", most)

    async def _begin_with(self, prefix: str, name: str) -> set[str]:
        key = self._key(name)
        ids: set[str] = set()
        cursor: int | None = None
        while cursor != 0:
            scan = self._redis.zscan(key, cursor or 0, match=prefix + "*", count=SCANNED)
            cursor, rows = await self._ask("find", scan)
            ids |= {text(member) for member, _ in rows}
        return ids

    async def _json(self, name: str, most: int = 0) -> list[dict[str, Any]]:
        rows = self._redis.lrange(self._key(name), 0, most - 1)
        return [json.loads(row) for row in await self._ask(name, rows)]


def _queued(row: list[Any]) -> QueuedVisitor:
    visitor, order, line, class_name, joined_ms = row
    return QueuedVisitor(
        text(visitor),
        order,
        text(line) or None,
        text(class_name),
        None if joined_ms < 0 else joined_ms,
    )
