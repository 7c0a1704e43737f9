"""Reads a room's lists from Redis: visitors, the operators' log, and samples of the figures."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from sidecar.rooms.messages import join_changes
from sidecar.rooms.store.plain_commands import ScriptedCommands
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.visitor_number import get_id_prefix, visitor_number

#: How many members one ZSCAN command examines, so that it does not block Redis for long.
SCAN_COUNT = 1000
#: The sets with all visitors. The waiting visitors come first, so that a visitor who is called
#: during a search is found among the active ones.
SEARCHED_SETS = ("due", "active", "revoked")


class QueuedVisitor(NamedTuple):
    """A waiting visitor. `line` is the sub-queue; None if the room has none or the place was drawn.
    `class_name` is "" without a class. `joined_ms` is None if the place was or will be drawn."""

    visitor: str
    order: int
    line: str | None
    class_name: str
    joined_ms: int | None


@dataclass(frozen=True, slots=True)
class VisitorRecord:
    """The state of one visitor. A waiting visitor has a `position` (the first is 1) and a `place`.
    An active visitor has `ends_ms`; if `started_ms` is None, the visitor was called and has not
    arrived yet. A revoked visitor has `revoked_ms`. For an unknown visitor all fields are None."""

    position: int | None
    #: The position in the sub-queue. None if the visitor is in no sub-queue.
    line_position: int | None
    ends_ms: int | None
    started_ms: int | None
    revoked_ms: int | None
    place: QueuedVisitor | None


class Lists(ScriptedCommands):
    """Reads a room's visitors, log and samples. Every method raises StoreError."""

    async def queue(self, *, offset: int, limit: int) -> list[QueuedVisitor]:
        """Return a page of the waiting visitors, in queue order. `offset` 0 is the head."""
        _, *row = await self._run("queue", [offset, limit])
        return [_read_place(row[at : at + 5]) for at in range(0, len(row), 5)]

    async def sessions(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Return a page of pairs (active visitor, end of the session in ms), soonest end first."""
        end = offset + limit - 1
        rows = self._redis.zrange(self._key("active"), offset, end, withscores=True)
        return [(text(member), int(score)) for member, score in await self._send("list", rows)]

    async def find(self, visitor: str) -> VisitorRecord:
        _, *times, position, line_position, fields = await self._run("find", [visitor])
        ends_ms, started_ms, revoked_ms = (None if ms < 0 else ms for ms in times)
        place = _read_place([visitor, *fields]) if position else None
        return VisitorRecord(
            position or None,
            line_position if place and place.line else None,
            ends_ms,
            started_ms,
            revoked_ms,
            place,
        )

    async def ids_by_number(self, number: str) -> list[str]:
        """Return the ids of the room's visitors who have this visitor number. This scans all
        visitors, so use it for operators only."""
        ids: set[str] = set()
        for name in SEARCHED_SETS:
            cursor: int | None = None
            while cursor != 0:
                cursor, page = await self.scan_number(name, number, cursor or 0)
                ids |= page
        return sorted(ids)

    async def scan_number(self, name: str, number: str, cursor: int = 0) -> tuple[int, set[str]]:
        """Scan about SCAN_COUNT members of one of SEARCHED_SETS. Return the cursor of the next scan
        (0 at the end), and the ids of the visitors with this visitor number."""
        match = get_id_prefix(number) + "*"
        scan = self._redis.zscan(self._key(name), cursor, match=match, count=SCAN_COUNT)
        next_cursor, rows = await self._send("find", scan)
        ids = {text(member) for member, _ in rows}
        return int(next_cursor), {id_ for id_ in ids if visitor_number(id_) == number}

    async def filter_present(self, visitors: list[str]) -> set[str]:
        """Return those of these visitors who are waiting or active."""
        present: set[str] = set()
        for name in ("due", "active"):
            scores = await self._send("here", self._redis.zmscore(self._key(name), visitors))
            present |= {v for v, score in zip(visitors, scores, strict=True) if score is not None}
        return present

    async def log(self) -> list[dict[str, Any]]:
        """Return the operators' actions, latest first, with the fields at (ms), by, what, visitor
        and detail. A change of settings also has `revision` and `changes`, which has for each
        setting the JSON values before and after; "" stands for the configured value."""
        acts = await self._read_list("log")
        for act in acts:
            if act.get("changes"):
                act["changes"] = join_changes(act["changes"])
        return acts

    async def minutes(self, limit: int = 0) -> list[dict[str, Any]]:
        """Return up to `limit` of the room's samples, latest first; 0 means all of them. A sample
        is taken once a minute (rooms/lua/parts/minutes.lua)."""
        return await self._read_list("minutes", limit)

    async def _read_list(self, name: str, limit: int = 0) -> list[dict[str, Any]]:
        rows = self._redis.lrange(self._key(name), 0, limit - 1)
        return [json.loads(row) for row in await self._send(name, rows)]


def _read_place(row: list[Any]) -> QueuedVisitor:
    visitor, order, line, class_name, joined_ms = row
    return QueuedVisitor(
        text(visitor),
        order,
        text(line) or None,
        text(class_name),
        None if joined_ms < 0 else joined_ms,
    )
