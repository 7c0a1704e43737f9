"""A room's visitors as pages, read from one Redis and written to another."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.tokens import is_visitor_id

#: The format of an export. Other versions may have other fields.
FORMAT = "waitroom-room/1"
#: The most members in one line of a file.
PAGE = 500
#: The most members in one script call: at a million waiting it holds Redis for some 4 ms.
CALL = 150
#: The sorted sets in the order of reading: a visitor who is called meanwhile is read twice, as
#: waiting and as active, and never missed.
READ_ORDER = ("waiting", "active", "spent", "addresses", "drawn", "grants", "revoked")
#: The order of writing: a visitor who is inside or has left is not queued again.
WRITE_ORDER = ("stats", "revoked", "spent", "addresses", "drawn", "grants", "active", "waiting")
#: Where a member's second score is from: when the next heartbeat is due; when the session began.
_SECOND = {"waiting": "due", "active": "admitted"}
#: The numbers of `stats` that are about the old Redis only.
_LEFT_BEHIND = {"tokens", "tokens_at", "measured_at", "recovery", "address_at"}

#: The pattern of a row's first field, if that is not a visitor.
_NAMES = {
    "stats": re.compile(r"(?!wait_)[a-z][a-z0-9_]{0,39}|wait_[0-9]{1,2}"),
    "addresses": re.compile(r"[A-Za-z0-9_-]{16}~[A-Za-z0-9_-]{22}"),
    "grants": re.compile(r"[A-Za-z0-9_-]{1,64}"),
}
#: The largest number that the scripts count exactly, in doubles.
_MOST = 2**53

Row = tuple[str | float, ...]


class Transfer(PlainCommands):
    """Reads and writes pages of a room's visitors.

    Times are absolute, in ms, by the clock of the Redis that was read. By as much as the two clocks
    differ, sessions end sooner or later.
    """

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

    async def page(self, kind: str, cursor: int) -> tuple[list[list[Row]], int]:
        """Return some members of a sorted set (READ_ORDER), at most PAGE in a list, and the cursor
        of the next page. Cursor 0 begins, and is the end. A member that stays is in some page, and
        may be in two."""
        page = self._redis.zscan(self._key(kind), cursor, count=PAGE)
        cursor, members = await self._ask("export", page)
        pages = []
        for start in range(0, len(members), PAGE):
            part = [(text(member), float(score)) for member, score in members[start : start + PAGE]]
            pages.append(await self._rows(kind, part))
        return pages, int(cursor)

    async def begin(self, epoch: int, *, read_ms: int, by: str) -> bool:
        """Pause the room (queue_all) and give the queue its epoch. Return False, without a change,
        if the queue here was reset after the other one, so that the tickets of the other one are
        void.

        `read_ms` is when the other Redis was read, `by` the operator.
        """
        return await self._write("begin", [(epoch,)], read_ms, by) >= 0

    async def write(self, kind: str, rows: list[Row], *, read_ms: int) -> int:
        """Write at most PAGE rows of one kind (WRITE_ORDER). Return how many members are new
        here."""
        parts = [rows[start : start + CALL] for start in range(0, len(rows), CALL)]
        return sum([await self._write(kind, part, read_ms, "") for part in parts])

    async def _write(self, kind: str, rows: list[Row], read_ms: int, by: str) -> int:
        args = [number(field) for row in rows for field in row]
        _, added = await self._run("import", [kind, read_ms, by, *args])
        return int(added)

    async def _rows(self, kind: str, part: list[tuple[str, float]]) -> list[Row]:
        if kind not in _SECOND:
            return [(member, whole(score)) for member, score in part]
        members = [member for member, _ in part]
        scores = self._redis.zmscore(self._key(_SECOND[kind]), members)
        seconds = await self._ask("export", scores)
        return [
            (member, whole(score), "" if second is None else whole(float(second)))
            for (member, score), second in zip(part, seconds, strict=True)
            # A visitor who is not in `due` was just called, and is read as active.
            if kind == "active" or second is not None
        ]


def row_problem(kind: str, row: Any) -> str:
    """Return what is wrong with a row; "" if nothing is. A row that no export writes would spoil
    the queue for everybody."""
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        return "a list that begins with a text"
    name, *fields = row
    pattern = _NAMES.get(kind)
    if not (pattern.fullmatch(name) if pattern else is_visitor_id(name)):
        return f"{name[:40]!r} is none that an export has"
    if len(fields) != (2 if kind in _SECOND else 1):
        return "not as many fields as an export has"
    if kind == "active" and fields[1] == "":  # called and not arrived yet
        del fields[1]
    for value in fields:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{str(value)[:40]!r} is no number"
        if not -_MOST <= value <= _MOST:  # also false for NaN
            return "a number is too large"
    return ""


def stats_rows(counters: dict[str, float]) -> list[Row]:
    """Return those of a room's numbers that are worth keeping."""
    return [(name, value) for name, value in counters.items() if name not in _LEFT_BEHIND]


def whole(score: float) -> float:
    """Return an int if the score has no fraction."""
    return int(score) if score == int(score) else score


def number(field: str | float) -> str:
    """Write a field for Redis: all digits, and no exponent, which a script would not take."""
    return field if isinstance(field, str) else repr(whole(field))
