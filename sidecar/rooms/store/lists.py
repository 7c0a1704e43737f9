"""A room's visitors and its log, read a page at a time."""

import json
from dataclasses import dataclass
from typing import Any

from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.visitor_number import id_prefix, visitor_number

#: Members that one ZSCAN looks at, so that no look at all of them holds Redis.
SCANNED = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """Where one visitor is: waiting (`position` from 1 on, `order`), inside (`started_ms` None: was
    called, and is not here yet), revoked, or none of these."""

    position: int | None = None
    order: int | None = None
    ends_ms: int | None = None
    started_ms: int | None = None
    revoked_ms: int | None = None


class Lists(PlainCommands):
    """What is read of a room a page at a time, or as a whole."""

    async def line(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Waiting visitors and their order, from the head on."""
        return await self._range("waiting", offset, limit)

    async def sessions(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Active visitors and when their session ends (ms), soonest first."""
        return await self._range("active", offset, limit)

    async def find(self, visitor: str) -> Found:
        rank = await self._ask("find", self._redis.zrank(self._key("waiting"), visitor))
        scores = [
            await self._score(name, visitor)
            for name in ("waiting", "active", "admitted", "revoked")
        ]
        if rank is None and scores[1] is None:  # next, and a slot is kept for their next poll
            scores[0] = await self._score("reserved", visitor)
            rank = None if scores[0] is None else 0
        return Found(None if rank is None else int(rank) + 1, *scores)

    async def before_moves(self, visitors: list[str]) -> list[int | None]:
        """Of each the order before an operator moved them; None: nobody did."""
        if not visitors:
            return []
        scores = await self._ask("list", self._redis.zmscore(self._key("moved"), visitors))
        return [None if score is None else int(score) for score in scores]

    async def numbered(self, number: str) -> list[str]:
        """The ids of that visitor number that `find` knows. It looks at all visitors, so it is for
        operators alone. A visitor called meanwhile is found: waiting ones are read first."""
        found: set[str] = set()
        for name in ("due", "active", "revoked"):
            found |= await self._begin_with(id_prefix(number), name)
        return sorted(visitor for visitor in found if visitor_number(visitor) == number)

    async def here(self, visitors: list[str]) -> set[str]:
        """The ones that wait or are inside."""
        found: set[str] = set()
        for name in ("due", "active"):
            scores = await self._ask("here", self._redis.zmscore(self._key(name), visitors))
            found |= {v for v, score in zip(visitors, scores, strict=True) if score is not None}
        return found

    async def log(self) -> list[dict[str, Any]]:
        """What operators did, latest first: at (ms), by, what, visitor, detail. Of a change also
        `revision`, and `changes`: by name the value before and after as JSON, each "" where it is
        as configured."""
        return await self._json("log")

    async def minutes(self, most: int = 0) -> list[dict[str, Any]]:
        """The room once a minute (rooms/lua/parts/minutes.lua), latest first; 0: all samples."""
        return await self._json("minutes", most)

    async def _begin_with(self, prefix: str, name: str) -> set[str]:
        key = self._key(name)
        found: set[str] = set()
        cursor: int | None = None
        while cursor != 0:
            scan = self._redis.zscan(key, cursor or 0, match=prefix + "*", count=SCANNED)
            cursor, rows = await self._ask("find", scan)
            found |= {text(member) for member, _ in rows}
        return found

    async def _score(self, name: str, visitor: str) -> int | None:
        score = await self._ask("find", self._redis.zscore(self._key(name), visitor))
        return None if score is None else int(score)

    async def _json(self, name: str, most: int = 0) -> list[dict[str, Any]]:
        rows = self._redis.lrange(self._key(name), 0, most - 1)
        return [json.loads(row) for row in await self._ask(name, rows)]

    async def _range(self, name: str, offset: int, limit: int) -> list[tuple[str, int]]:
        end = offset + limit - 1
        rows = self._redis.zrange(self._key(name), offset, end, withscores=True)
        return [(text(member), int(score)) for member, score in await self._ask("list", rows)]
