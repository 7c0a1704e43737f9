"""The calls in a room's event stream, for webhooks.

How far was read is kept in Redis (`calls`, a hash), together with what was read and is not sent
yet, so the next replica goes on from there. Meanwhile `called` tells the recorder how far it may
trim the stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.kit.redis.driver_errors import driver_errors, text
from sidecar.rooms.redis_keys import called_key, room_key
from sidecar.webhooks.store.document import Document

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store

#: Events read at a time: Redis does nothing else meanwhile, for some 3 ms.
PAGE = 200
#: What was read is forgotten when nobody has read for so long: the calls are over.
KEPT_S = 3 * 3600
#: For how long the recorder waits for a silent reader.
HELD_S = 60
START = "0-0"
_CURSOR = "cursor"

# KEYS   events, stats, the calls, how far was read   ARGV  from where to read, '': the end; how far
# was read and noted, ''; how many events; HELD_S; KEPT_S
# Returns how far it has read; whether that is the end; the calls; how many calls there ever were;
# whether the event to read from is gone.
_READ = """
local from, noted = ARGV[1], ARGV[2]
local ever = redis.call('HGET', KEYS[2], 'called') or '0'
if from == '' then
  local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  return {last and last[1] or '0-0', 1, {}, ever, 0}
end
if noted ~= '' then
  redis.call('SET', KEYS[4], noted, 'EX', ARGV[4])
  redis.call('EXPIRE', KEYS[3], ARGV[5])
end
local rows = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', ARGV[3])
local calls, last = {}, from
for _, row in ipairs(rows) do
  last = row[1]
  if row[2][1] == 'kind' and row[2][2] == 'called' then calls[#calls + 1] = row end
end
local is_gone = from ~= '0-0' and #redis.call('XRANGE', KEYS[1], from, from) == 0
return {last, #rows < tonumber(ARGV[3]) and 1 or 0, calls, ever, is_gone and 1 or 0}
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the stream has it. `order` and `joined_ms` make the visitor's ticket; None where
    the event does not say them."""

    id: str
    visitor: str
    at_ms: int
    order: int | None = None
    joined_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Calls after a place in the stream."""

    calls: list[Call]
    #: How far this page goes, and whether that is the stream's end.
    until: str
    is_end: bool
    #: How many calls the room ever had, at this moment.
    ever: int
    #: Whether the event that it goes on from was trimmed.
    is_gone: bool


@dataclass(frozen=True, slots=True)
class Cursor(Document):
    """How far a room's events were read, and how many calls the room had had until there."""

    until: str = START
    ever: int = 0

    def after(self, page: Page) -> tuple[Cursor, int]:
        """How far it is read with this page, and how many calls were lost: trimmed before
        anybody had read them. That is known at the stream's end."""
        ever = self.ever + len(page.calls)
        if not page.is_end:
            return Cursor(page.until, ever), 0
        # A room that comes from another store brings a higher number along.
        lost = max(0, page.ever - ever) if page.is_gone else 0
        return Cursor(page.until, page.ever), lost


class Calls:
    """Of one room. Every method raises StoreError when Redis is unavailable."""

    def __init__(self, redis: Store, room: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._room = room
        self._key = room_key(room, "calls")
        self._timeout_s = timeout_s
        #: How far was read, as this replica knew it last.
        self.last: Cursor | None = None

    async def load(self) -> tuple[str | None, dict[str, str]]:
        """What was noted of how far it was read, and of each batch that is not sent to all, by its
        id. None: nobody has ever read, or not for long."""
        async with driver_errors("calls", self._timeout_s):
            found = await self._redis.hgetall(self._key)
        noted = {text(name): text(value) for name, value in found.items()}
        return noted.pop(_CURSOR, None), noted

    async def read(self, start: str, *, noted: str) -> Page:
        """The next page after `start`; of the end, where that is empty. `noted`: how far was read
        and noted; the recorder may trim until there."""
        stream, stats = (room_key(self._room, name) for name in ("events", "stats"))
        keys = [stream, stats, self._key, called_key(self._room)]
        async with driver_errors("calls", self._timeout_s):
            until, is_end, rows, ever, is_gone = await self._redis.eval(
                _READ, len(keys), *keys, start, noted, PAGE, HELD_S, KEPT_S
            )
        calls = [_call(event_id, fields) for event_id, fields in rows]
        return Page(calls, text(until), bool(is_end), int(text(ever)), bool(is_gone))

    async def note(self, cursor: str, batches: dict[str, str], gone: list[str]) -> None:
        """How far was read, together with the batches that are new or were changed; and takes out
        those that are done."""
        async with driver_errors("calls", self._timeout_s):
            await self._redis.hset(self._key, mapping={_CURSOR: cursor, **batches})
            if gone:
                await self._redis.hdel(self._key, *gone)

    async def ends(self, visitors: list[str]) -> tuple[dict[str, int], set[str]]:
        """Until when those of them who are called, and not yet arrived, have to come (ms); and
        those who are inside."""
        async with driver_errors("calls", self._timeout_s):
            ends = await self._redis.zmscore(room_key(self._room, "active"), visitors)
            started = await self._redis.zmscore(room_key(self._room, "admitted"), visitors)
        inside = {v for v, at in zip(visitors, started, strict=True) if at is not None}
        called = zip(visitors, ends, strict=True)
        return {v: int(at) for v, at in called if at is not None and v not in inside}, inside


def _call(event_id: bytes | str, fields: list[bytes | str]) -> Call:
    words = [text(field) for field in fields]
    said = dict(zip(words[::2], words[1::2], strict=True))
    order, joined = said.get("order"), said.get("joined")
    return Call(
        text(event_id),
        said["visitor"],
        int(said["at"]),
        None if order is None else int(float(order)),  # exact: it is a double in the store
        None if joined is None else int(joined),
    )
