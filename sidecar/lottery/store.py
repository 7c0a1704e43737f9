"""A room's draws in Redis: the drawn visitors, read a page at a time, and what was published.

waitroom:{room}:drawn  zset  visitor -> order, which is its lot - 2^53; of the pre-queue that
                             began at `drawn_from` of the room's stats (ms)
waitroom:{room}:draws  hash  draw -> commitment; draw:places -> "count SHA-256". A draw is
                             rooms/openings.py's draw_key. No field is written twice.
"""

import asyncio
import hashlib
import time
from dataclasses import dataclass

from sidecar.kit.errors import StoreError
from sidecar.lottery.commitment import as_lines
from sidecar.rooms.redis_keys import draws_key
from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text

#: Places that one command reads.
PAGE = 1000
#: How long a page is cached, so that many clients cause few reads, seconds.
REMEMBERED_S = 10.0
#: The most cached pages, some 70 KB each.
_PAGES = 200


@dataclass(frozen=True, slots=True)
class ListDigest:
    """The length of a draw's list, and its SHA-256."""

    count: int
    sha256: str


class DrawsStore(PlainCommands):
    """The draws of one room."""

    def __init__(self, redis: Store, room: str, *, timeout_s: float) -> None:
        super().__init__(redis, room, timeout_s=timeout_s)
        self._draws_key = draws_key(room)
        #: By the pre-queue's beginning (ms) and the page's number: when it was read, and visitors.
        self._pages: dict[tuple[int, int], tuple[float, list[str]]] = {}
        self._digests: dict[tuple[str, int], ListDigest] = {}
        self._computing: asyncio.Task[None] | None = None

    async def published(self) -> dict[str, str]:
        """Return commitments by draw, and digests of lists by draw:places."""
        found = await self._send("draws", self._redis.hgetall(self._draws_key))
        return {text(name): text(value) for name, value in found.items()}

    async def publish(self, draw: str, value: str) -> str:
        """Publish a value of a draw, unless there is one. Return the published value."""
        await self._send("draws", self._redis.hsetnx(self._draws_key, draw, value))
        kept = await self._send("draws", self._redis.hget(self._draws_key, draw))
        return value if kept is None else text(kept)

    async def drawn(self, *, begins_ms: int, offset: int, limit: int) -> list[str]:
        """Return visitors by place, from the place `offset` (the first is 0), of the pre-queue that
        began at `begins_ms`; at most REMEMBERED_S old. Empty if the list is another pre-queue's."""
        found: list[str] = []
        while limit > len(found):
            page, within = divmod(offset + len(found), PAGE)
            visitors = await self._remembered(begins_ms, page)
            found += visitors[within : within + limit - len(found)]
            if len(visitors) < PAGE:
                break
        return found

    async def list_digest(
        self, draw: str, *, begins_ms: int, born_ms: int, wait_s: float = 0.0
    ) -> ListDigest | None:
        """Return the digest of a draw's list, or None if it is not computed yet or the list is
        another draw's by now. The first call starts to compute it; wait for that for `wait_s`.

        `born_ms`: when the caller believes that Redis was created. If it was emptied since, its
        list may be incomplete.
        """
        known = (draw, born_ms)
        if known not in self._digests:
            if self._computing is None or self._computing.done():
                self._computing = asyncio.create_task(self._compute(draw, begins_ms, born_ms))
            if wait_s:
                await asyncio.wait({self._computing}, timeout=wait_s)
        return self._digests.get(known)

    async def _compute(self, draw: str, begins_ms: int, born_ms: int) -> None:
        try:
            value = await self._send("draws", self._redis.hget(self._draws_key, f"{draw}:places"))
            digest = None if value is None else _read(text(value))
            if digest is None:
                digest = await self._count_and_digest(begins_ms)
                # Checked last: Redis may have been emptied while the list was read.
                if digest is None or await self._stat("born") != born_ms:
                    return
                kept = await self.publish(f"{draw}:places", f"{digest.count} {digest.sha256}")
                digest = _read(kept)
            elif await self._stat("born") != born_ms:
                return
        except StoreError:
            return  # the next request tries again
        if digest is not None:
            self._digests[draw, born_ms] = digest

    async def _count_and_digest(self, begins_ms: int) -> ListDigest | None:
        """Compute the digest; None if the list is of a later pre-queue, or changed meanwhile."""
        drawn_from = await self._stat("drawn_from")
        if drawn_from > begins_ms:
            return None
        digest, count, size = hashlib.sha256(), 0, await self._size()
        while drawn_from == begins_ms:
            visitors = await self._read_page(count)
            digest.update(as_lines(visitors, first=count + 1))
            count += len(visitors)
            if len(visitors) < PAGE:
                break
        if await self._stat("drawn_from") != drawn_from:
            return None
        # An earlier pre-queue's list stays until the first visitor of this one.
        if drawn_from == begins_ms and not size == count == await self._size():
            return None
        return ListDigest(count, digest.hexdigest())

    async def _remembered(self, begins_ms: int, page: int) -> list[str]:
        now_s = time.monotonic()
        read_s, visitors = self._pages.get((begins_ms, page), (-REMEMBERED_S, []))
        if now_s - read_s < REMEMBERED_S:
            return visitors
        visitors = await self._read_page(page * PAGE)
        # Checked last: the next pre-queue's list, which is secret, has the same key.
        if await self._stat("drawn_from") != begins_ms:
            return []
        self._pages.pop((begins_ms, page), None)
        if len(self._pages) >= _PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[begins_ms, page] = (now_s, visitors)
        return visitors

    async def _read_page(self, offset: int) -> list[str]:
        page = self._redis.zrange(self._key("drawn"), offset, offset + PAGE - 1)
        return [text(visitor) for visitor in await self._send("drawn", page)]

    async def _size(self) -> int:
        return int(await self._send("drawn", self._redis.zcard(self._key("drawn"))))

    async def _stat(self, name: str) -> int:
        """Return a number of the room's stats; 0 if it is missing."""
        value = await self._send("draws", self._redis.hget(self._key("stats"), name))
        return 0 if value is None else int(float(value))


def _read(value: str) -> ListDigest | None:
    count, _, sha256 = value.partition(" ")
    return ListDigest(int(count), sha256) if count.isdecimal() else None
