"""Reads a room's visitors from one Redis and writes them to another, in pages."""

import re
from typing import Any

from sidecar.rooms.store.plain_commands import ScriptedCommands
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.tokens import is_visitor_id

#: The format of an export file, which its first line names.
FORMAT = "waitroom-room/1"
#: The maximum number of members in one line of an export file.
PAGE = 500
#: How many rows one script call writes. With a million in the queue, it blocks Redis some 4 ms.
CALL_ROWS = 150
#: The sorted sets, in the order in which they are read. A visitor who is called during the export
#: is read twice, as waiting and as active, but never missed.
READ_ORDER = ("waiting", "active", "spent", "addresses", "drawn", "grants", "revoked")
#: The kinds of rows, in the order in which they are written. Visitors who left or are active come
#: before those who wait, so that they are not queued again.
WRITE_ORDER = ("stats", "revoked", "spent", "addresses", "drawn", "grants", "active", "waiting")
#: For the kinds of rows with two scores, the set with the second score: the time at which the next
#: heartbeat is due, or at which the session began.
_SECOND_SET = {"waiting": "due", "active": "admitted"}
#: The fields of the hash `stats` that make sense only in the Redis that was read.
_LOCAL_STATS = {"tokens", "tokens_at", "measured_at", "recovery", "address_at"}

#: The pattern of a row's first field, for the kinds where it is not a visitor's id.
_NAME_PATTERNS = {
    "stats": re.compile(r"(?!wait_)[a-z][a-z0-9_]{0,39}|wait_[0-9]{1,2}"),
    "addresses": re.compile(r"[A-Za-z0-9_-]{16}~[A-Za-z0-9_-]{22}"),
    "grants": re.compile(r"[A-Za-z0-9_-]{1,64}"),
}
#: The largest integer that the scripts, which use doubles, represent exactly.
_MAX_EXACT_INTEGER = 2**53

Row = tuple[str | float, ...]


class Transfer(ScriptedCommands):
    """Reads and writes pages of a room's visitors. Every method raises StoreError.

    Times are absolute, in ms, by the clock of the Redis that was read. If the clocks of the two
    Redis servers differ, sessions end sooner or later by the difference."""

    async def read_page(self, kind: str, cursor: int) -> tuple[list[list[Row]], int]:
        """Return some members of one of the sorted sets in READ_ORDER, as lists of at most PAGE
        rows, and the next cursor. Begin with cursor 0. A returned 0 means the end. A member that
        stays in the set is returned at least once, and perhaps twice."""
        page = self._redis.zscan(self._key(kind), cursor, count=PAGE)
        cursor, members = await self._send("export", page)
        pages = []
        for start in range(0, len(members), PAGE):
            part = [(text(member), float(score)) for member, score in members[start : start + PAGE]]
            pages.append(await self._make_rows(kind, part))
        return pages, int(cursor)

    async def begin(self, epoch: int, *, read_ms: int, by: str) -> bool:
        """Pause the room (queue_all), and set the epoch of its queue. If the room is in use here
        and its queue has a later epoch, the queue was reset and the exported tickets are void: then
        return False and change nothing. `read_ms` is the time of the export."""
        return await self._write("begin", [(epoch,)], read_ms, by) >= 0

    async def write(self, kind: str, rows: list[Row], *, read_ms: int) -> int:
        """Write at most PAGE rows of one kind (WRITE_ORDER). Return how many members were added."""
        parts = [rows[start : start + CALL_ROWS] for start in range(0, len(rows), CALL_ROWS)]
        return sum([await self._write(kind, part, read_ms, "") for part in parts])

    async def _write(self, kind: str, rows: list[Row], read_ms: int, by: str) -> int:
        args = [format_field(field) for row in rows for field in row]
        _, added = await self._run("import", [kind, read_ms, by, *args])
        return int(added)

    async def _make_rows(self, kind: str, part: list[tuple[str, float]]) -> list[Row]:
        if kind not in _SECOND_SET:
            return [(member, drop_zero_fraction(score)) for member, score in part]
        members = [member for member, _ in part]
        scores = self._redis.zmscore(self._key(_SECOND_SET[kind]), members)
        seconds = await self._send("export", scores)
        return [
            (
                member,
                drop_zero_fraction(score),
                "" if second is None else drop_zero_fraction(float(second)),
            )
            for (member, score), second in zip(part, seconds, strict=True)
            # A visitor without a score in `due` was just called, and will be read as active.
            if kind == "active" or second is not None
        ]


def find_row_problem(kind: str, row: Any) -> str:
    """Return the problem of a row, or "" if the row is valid. Only rows that an export can contain
    are valid, because any other row might break the queue for all visitors."""
    if not isinstance(row, list) or not row or not isinstance(row[0], str):
        return "a list that begins with a text"
    name, *fields = row
    pattern = _NAME_PATTERNS.get(kind)
    if not (pattern.fullmatch(name) if pattern else is_visitor_id(name)):
        return f"{name[:40]!r} is none that an export has"
    if len(fields) != (2 if kind in _SECOND_SET else 1):
        return "not as many fields as an export has"
    if kind == "active" and fields[1] == "":  # called and not arrived yet
        del fields[1]
    for value in fields:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return f"{str(value)[:40]!r} is no number"
        if not -_MAX_EXACT_INTEGER <= value <= _MAX_EXACT_INTEGER:  # also true for NaN
            return "a number is too large"
    return ""


def make_stats_rows(counters: dict[str, float]) -> list[Row]:
    """Return the rows of the counters that also make sense in another Redis."""
    return [(name, value) for name, value in counters.items() if name not in _LOCAL_STATS]


def drop_zero_fraction(score: float) -> float:
    """Return the score, as an int if it is a whole number."""
    return int(score) if score == int(score) else score


def format_field(field: str | float) -> str:
    """Format a field for a Lua script. Numbers get all their digits, integers no exponent."""
    return field if isinstance(field, str) else repr(drop_zero_fraction(field))
