"""Collects the calls that arrive while the previous batch is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Batcher(Generic[Item, Reply]):
    """Turns many `submit(item)` into few `run(items)`, one in flight at a time.

    An idle batcher adds no delay: the first item goes at once, alone; those that come
    meanwhile go together. A caller that is cancelled takes nothing from the others: its
    item is still sent (the store may already have it), its reply is dropped.
    """

    def __init__(
        self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]], *, limit: int
    ) -> None:
        self._run = run
        self._limit = limit
        self._waiting: list[tuple[Item, asyncio.Future[Reply]]] = []
        self._flight: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Reply:
        """The reply for this item. Raises whatever `run` raised for its batch."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly())
        return await future

    async def _fly(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._limit]
                del self._waiting[: self._limit]
                try:
                    replies = await self._run([item for item, _ in batch])
                    if len(replies) != len(batch):
                        raise RuntimeError(f"{len(batch)} items got {len(replies)} replies")
                except BaseException as error:  # each caller gets it, a shutdown's too
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    if not isinstance(error, Exception):
                        raise
                    continue
                for (_, future), reply in zip(batch, replies, strict=True):
                    if not future.done():
                        future.set_result(reply)
        finally:
            self._flight = None
