"""What runners and keepers are told at once: that a line has a job, or a call is to be cut off."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING
from weakref import WeakSet

from sidecar.store.news import news

if TYPE_CHECKING:
    from sidecar.store.connect import Store

_ABORT = "abort "


class Heard:
    """`woken`: something may be called; `urgent`: a call is to be cut off."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.urgent = asyncio.Event()


class News:
    """Events that are set when there is news of a target. Without the store there is none, and
    everybody looks by themselves now and then."""

    def __init__(self, redis: Store) -> None:
        self._redis = redis
        self._events: dict[str, WeakSet[Heard]] = {}

    def of(self, target: str) -> Heard:
        """For one listener, for as long as it keeps it."""
        heard = Heard()
        self._events.setdefault(target, WeakSet()).add(heard)
        return heard

    def tell(self, word: str) -> None:
        """As the store tells it: a target's name, "abort NAME", or "" for all."""
        target = word.removeprefix(_ABORT)
        names = [target] if word else list(self._events)
        for heard in [one for name in names for one in self._events.get(name, ())]:
            heard.woken.set()
            if word.startswith(_ABORT):
                heard.urgent.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with contextlib.aclosing(news(self._redis)) as told:
            async for word in told:
                self.tell(word)
