"""Stores a room's draws in Redis: the drawn visitors, the commitments, and digests of the lists.

waitroom:{room}:drawn  zset  visitor -> order, which is the visitor's lot - 2^53; for the pre-queue
                             that began at `drawn_from` (ms, in the room's stats)
waitroom:{room}:draws  hash  draw key -> commitment; draw key:places -> "count SHA-256". The draw
                             key is RoomEvent.draw_key. Each field is written only once.
"""

import asyncio
import hashlib
import time
from dataclasses import dataclass

from sidecar.kit.errors import StoreError
from sidecar.lottery.commitment import format_list
from sidecar.rooms.store.plain_commands import PlainCommands
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import text

#: How many places one command reads.
PAGE = 1000
#: How long a page is cached, in seconds, so that many clients cause few reads.
CACHE_S = 10.0
#: The maximum number of cached pages. A page takes some 70 KB.
_MAX_CACHED_PAGES = 200


@dataclass(frozen=True, slots=True)
class ListDigest:
    """The length and the SHA-256 of a draw's list."""

    count: int
    sha256: str


class DrawsStore(PlainCommands):
    """The draws of one room in Redis."""

    def __init__(self, redis: Store, room: str, *, timeout_s: float) -> None:
        super().__init__(redis, room, timeout_s=timeout_s)
        self._draws_key = self._key("draws")
        #: The cached pages, as (read time, visitors) by (begins_ms of the pre-queue, page number).
        self._pages: dict[tuple[int, int], tuple[float, list[str]]] = {}
        self._digests: dict[tuple[str, int], ListDigest] = {}
        self._digest_task: asyncio.Task[None] | None = None

    async def read_published(self) -> dict[str, str]:
        """Return commitments by draw key, and digests of lists by `draw key:places`."""
        fields = await self._send("draws", self._redis.hgetall(self._draws_key))
        return {text(name): text(value) for name, value in fields.items()}

    async def publish(self, field: str, value: str) -> str:
        """Publish a commitment or digest if there is none yet. Return the one that is published."""
        await self._send("draws", self._redis.hsetnx(self._draws_key, field, value))
        published = await self._send("draws", self._redis.hget(self._draws_key, field))
        return value if published is None else text(published)

    async def list_drawn_visitors(self, *, begins_ms: int, offset: int, limit: int) -> list[str]:
        """Return up to `limit` visitors of the pre-queue that began at `begins_ms`, in the order of
        their places, from place `offset` + 1 on. Return an empty list if Redis has the list of
        another pre-queue. Results are cached for CACHE_S."""
        visitors: list[str] = []
        while limit > len(visitors):
            number, start = divmod(offset + len(visitors), PAGE)
            page = await self._read_cached_page(begins_ms, number)
            visitors += page[start : start + limit - len(visitors)]
            if len(page) < PAGE:
                break
        return visitors

    async def find_digest(
        self, draw: str, *, begins_ms: int, born_ms: int, wait_s: float = 0.0
    ) -> ListDigest | None:
        """Return the digest of a draw's list. If it is unknown, start a task that computes it, and
        wait up to `wait_s`. Return None if the digest is not computed yet, or if Redis has the list
        of a later draw.

        `born_ms` is when the data in Redis began, as the caller last read it. If Redis was emptied
        since then, its list may be incomplete, and no digest is computed."""
        cache_key = (draw, born_ms)
        if cache_key not in self._digests:
            if self._digest_task is None or self._digest_task.done():
                self._digest_task = asyncio.create_task(self._load_digest(draw, begins_ms, born_ms))
            if wait_s:
                await asyncio.wait({self._digest_task}, timeout=wait_s)
        return self._digests.get(cache_key)

    async def _load_digest(self, draw: str, begins_ms: int, born_ms: int) -> None:
        """Read the published digest of a draw's list, or compute and publish it."""
        field = f"{draw}:places"
        try:
            published = (await self.read_published()).get(field)
            digest = published or await self._compute_digest(begins_ms)
            # Check this last, because Redis may have been emptied while the list was read.
            if digest is None or await self._read_stat("born") != born_ms:
                return
            count, sha256 = (published or await self.publish(field, digest)).split()
        except StoreError:
            return  # the next request tries again
        self._digests[draw, born_ms] = ListDigest(int(count), sha256)

    async def _compute_digest(self, begins_ms: int) -> str | None:
        """Return a list's "count SHA-256", or None if it has changed or Redis has a later list."""
        drawn_from = await self._read_stat("drawn_from")
        if drawn_from > begins_ms:
            return None
        digest, count, size = hashlib.sha256(), 0, await self._count_drawn()
        while drawn_from == begins_ms:
            visitors = await self._read_page(count)
            digest.update(format_list(visitors, first=count + 1))
            count += len(visitors)
            if len(visitors) < PAGE:
                break
        if await self._read_stat("drawn_from") != drawn_from:
            return None
        # If nobody joined, Redis has an earlier pre-queue's list. Then the digest is of no places.
        if drawn_from == begins_ms and not size == count == await self._count_drawn():
            return None
        return f"{count} {digest.hexdigest()}"

    async def _read_cached_page(self, begins_ms: int, number: int) -> list[str]:
        now_s = time.monotonic()
        read_s, visitors = self._pages.get((begins_ms, number), (-CACHE_S, []))
        if now_s - read_s < CACHE_S:
            return visitors
        visitors = await self._read_page(number * PAGE)
        # Check this last, because the next pre-queue's list, which is secret, has the same key.
        if await self._read_stat("drawn_from") != begins_ms:
            return []
        self._pages.pop((begins_ms, number), None)
        if len(self._pages) >= _MAX_CACHED_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[begins_ms, number] = (now_s, visitors)
        return visitors

    async def _read_page(self, offset: int) -> list[str]:
        page = self._redis.zrange(self._key("drawn"), offset, offset + PAGE - 1)
        return [text(visitor) for visitor in await self._send("drawn", page)]

    async def _count_drawn(self) -> int:
        return int(await self._send("drawn", self._redis.zcard(self._key("drawn"))))

    async def _read_stat(self, name: str) -> int:
        """Read a number from the room's stats. Return 0 if the number is missing."""
        value = await self._send("draws", self._redis.hget(self._key("stats"), name))
        return 0 if value is None else int(float(value))
