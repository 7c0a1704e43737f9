"""What runners and keepers are told at once: that a line has a job, a call is to be cut off, or the
settings of a target are others."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakSet

import structlog

from sidecar.jobs.store.idle_rounds import Rounds
from sidecar.jobs.store.pubsub import news
from sidecar.kit.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.kit.redis.connect import Store

#: News may be lost: between two looks at all targets, seconds. Whoever has nothing to do waits for
#: news; if even this look says nothing, they look by themselves after `IDLE_S`.
ROUND_S = 10.0
IDLE_S = 60.0
_ABORT, SETTINGS = "abort ", "settings "

log = structlog.get_logger()


class Heard:
    """`woken`: something may be called; `urgent`: a call is to be cut off. `asks`: this listener
    makes calls of offline jobs."""

    def __init__(self, *, asks: bool = False) -> None:
        self.asks = asks
        self.woken = asyncio.Event()
        self.urgent = asyncio.Event()


class News:
    """Events that are set when there is news of a target, told by the store at once, or found by a
    look at all targets every ROUND_S."""

    def __init__(
        self, redis: Store, *, timeout_s: float = 1.0, now_us: Callable[[], int] | None = None
    ) -> None:
        self._redis = redis
        self._rounds = Rounds(redis, timeout_s=timeout_s, now_us=now_us)
        self._events: dict[str, WeakSet[Heard]] = {}
        #: Somebody changed the settings of a target.
        self.changed = asyncio.Event()

    def of(self, target: str, *, asks: bool = False) -> Heard:
        """For one listener, for as long as it keeps it."""
        heard = Heard(asks=asks)
        self._events.setdefault(target, WeakSet()).add(heard)
        return heard

    def tell(self, word: str) -> None:
        """As the store tells it: a target's name, "abort NAME", "settings NAME", or "" for all."""
        if not word or word.startswith(SETTINGS):
            self.changed.set()
        target = word.removeprefix(_ABORT).removeprefix(SETTINGS)
        names = [target] if word else list(self._events)
        for heard in [one for name in names for one in self._events.get(name, ())]:
            heard.woken.set()
            if word.startswith(_ABORT):
                heard.urgent.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._look_forever())

    async def _listen(self) -> None:
        async with contextlib.aclosing(news(self._redis)) as told:
            async for word in told:
                self.tell(word)

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(ROUND_S)
            try:
                await self.look()
            except StoreError as error:
                log.debug("round_failed", error=str(error))

    async def look(self) -> None:
        """Tells what can be seen. Raises StoreError."""
        asked = {
            name: any(heard.asks for heard in listeners)
            for name, listeners in self._events.items()
            if listeners
        }
        for name in await self._rounds.look(asked):
            self.tell(name)
