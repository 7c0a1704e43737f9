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
        batch: list[tuple[Item, asyncio.Future[Reply]]] = []
        try:
            while self._waiting:
                batch = self._waiting[: self._limit]
                del self._waiting[: self._limit]
                await self._send(batch)
        finally:
            self._flight = None
            # At a shutdown in flight: nobody waits on for an answer that will not come.
            for _, future in (*batch, *self._waiting):
                future.cancel()
            self._waiting.clear()

    async def _send(self, batch: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            replies = await self._run([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
            answers: list[Reply | Exception] = [error] * len(batch)
        else:
            answers = [*replies]
            if len(answers) != len(batch):
                wrong = RuntimeError(f"{len(batch)} items got {len(answers)} replies")
                answers = [wrong] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():  # its caller is gone
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
