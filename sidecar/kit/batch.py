"""Batches calls: those that arrive while a batch is in flight go together in the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class CallBatcher(Generic[Item, Reply]):
    """Turns many calls of `submit(item)` into few calls of `run(items)`, one at a time.

    An idle batcher adds no delay: the first item goes alone, at once. The item of a cancelled
    caller is still sent, since the store may already have it; its reply is dropped."""

    def __init__(
        self, run: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]], *, limit: int
    ) -> None:
        self._run = run
        self._limit = limit
        self._waiting: list[Item] = []
        self._futures: list[asyncio.Future[Reply]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: Item) -> asyncio.Future[Reply]:
        """Return a future of the reply to this item, or of the exception of its batch."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(item)
        self._futures.append(future)
        if self._task is None:
            self._task = asyncio.create_task(self._run_batches())
        return future

    async def _run_batches(self) -> None:
        futures: list[asyncio.Future[Reply]] = []
        try:
            while self._waiting:
                items, futures = self._waiting[: self._limit], self._futures[: self._limit]
                del self._waiting[: self._limit], self._futures[: self._limit]
                await self._send(items, futures)
        finally:
            self._task = None
            # If this task is cancelled, cancel callers too: no reply will come.
            for future in (*futures, *self._futures):
                future.cancel()
            self._waiting.clear()
            self._futures.clear()

    async def _send(self, items: list[Item], futures: list[asyncio.Future[Reply]]) -> None:
        try:
            replies = await self._run(items)
        except Exception as error:  # noqa: BLE001 - each caller gets the error
            _fail(futures, error)
            return
        if len(replies) != len(items):
            _fail(futures, RuntimeError(f"{len(items)} items got {len(replies)} replies"))
            return
        for future, reply in zip(futures, replies, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(reply, Exception):  # an error of this item alone
                future.set_exception(reply)
            else:
                future.set_result(reply)


def _fail(futures: Sequence[asyncio.Future[Reply]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
