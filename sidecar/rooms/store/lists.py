"""A room's visitors and its log, read a page at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sidecar.kit.redis.driver_errors import driver_errors, text
from sidecar.rooms.redis_keys import room_key

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store


@dataclass(frozen=True, slots=True)
class Found:
    """Where one visitor is: waiting (`position` from 1 on, `order`), inside (`started_ms` None: was
    called, and is not here yet), revoked, or none of these."""

    position: int | None = None
    order: int | None = None
    ends_ms: int | None = None
    started_ms: int | None = None
    revoked_ms: int | None = None


class Lists:
    """Every method raises StoreError when the store does not answer."""

    def __init__(self, redis: Store, room: str, *, timeout_s: float) -> None:
        self._redis = redis
        self._room = room
        self._timeout_s = timeout_s

    async def line(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Waiting visitors and their order, from the head on."""
        return await self._range("waiting", offset, limit)

    async def sessions(self, *, offset: int, limit: int) -> list[tuple[str, int]]:
        """Active visitors and when their session ends (ms), soonest first."""
        return await self._range("active", offset, limit)

    async def find(self, visitor: str) -> Found:
        async with driver_errors("find", self._timeout_s):
            rank = await self._redis.zrank(self._key("waiting"), visitor)
        order, ends, started, revoked = [
            await self._score(name, visitor)
            for name in ("waiting", "active", "admitted", "revoked")
        ]
        position = None if rank is None else int(rank) + 1  # type: ignore[arg-type] # with no score asked for it is a number
        return Found(position, order, ends, started, revoked)

    async def here(self, visitors: list[str]) -> set[str]:
        """The ones that wait or are inside."""
        found: set[str] = set()
        for name in ("waiting", "active"):
            async with driver_errors("here", self._timeout_s):
                scores = await self._redis.zmscore(self._key(name), visitors)
            found |= {v for v, score in zip(visitors, scores, strict=True) if score is not None}
        return found

    async def log(self) -> list[dict[str, Any]]:
        """What operators did, latest first: at (ms), by, what, visitor, detail."""
        return await self._json("log")

    async def minutes(self) -> list[dict[str, Any]]:
        """The room once a minute (rooms/lua/parts/minutes.lua), latest first."""
        return await self._json("minutes")

    def _key(self, name: str) -> str:
        return room_key(self._room, name)

    async def _score(self, name: str, visitor: str) -> int | None:
        async with driver_errors("find", self._timeout_s):
            score = await self._redis.zscore(self._key(name), visitor)
        return None if score is None else int(score)

    async def _json(self, name: str) -> list[dict[str, Any]]:
        async with driver_errors(name, self._timeout_s):
            rows = await self._redis.lrange(self._key(name), 0, -1)
        return [json.loads(row) for row in rows]

    async def _range(self, name: str, offset: int, limit: int) -> list[tuple[str, int]]:
        async with driver_errors("list", self._timeout_s):
            rows = await self._redis.zrange(
                self._key(name), offset, offset + limit - 1, withscores=True
            )
        pairs: list[tuple[bytes, float]] = list(rows)  # type: ignore[arg-type] # the driver's type is a union of all its replies
        return [(text(member), int(score)) for member, score in pairs]
