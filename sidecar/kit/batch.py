"""Combines calls into batches. Calls that arrive while one batch runs form the next batch."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

BatchItem = TypeVar("BatchItem")
BatchReply = TypeVar("BatchReply")


class CallBatcher(Generic[BatchItem, BatchReply]):
    """A batcher turns many calls of `submit(item)` into few calls of `run(items)`, one at a time.

    An idle batcher adds no delay: it sends the first item alone, at once. A cancelled caller's item
    is sent all the same, because it may already have arrived. Its reply is dropped."""

    def __init__(
        self, run: Callable[[Sequence[BatchItem]], Awaitable[Sequence[BatchReply]]], *, limit: int
    ) -> None:
        self._run = run
        self.limit = limit
        self._waiting_calls: list[tuple[BatchItem, asyncio.Future[BatchReply]]] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, item: BatchItem) -> asyncio.Future[BatchReply]:
        """Add an item to the next batch. Return a future of the reply or of the error."""
        future: asyncio.Future[BatchReply] = asyncio.get_running_loop().create_future()
        self._waiting_calls.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run_batches())
        return future

    async def _run_batches(self) -> None:
        batch: list[tuple[BatchItem, asyncio.Future[BatchReply]]] = []
        try:
            while self._waiting_calls:
                batch = self._waiting_calls[: self.limit]
                del self._waiting_calls[: self.limit]
                await self._send(batch)
        finally:
            self._task = None
            # If this task is cancelled, cancel callers too: no reply will come.
            for _, future in (*batch, *self._waiting_calls):
                future.cancel()
            self._waiting_calls.clear()

    async def _send(self, batch: list[tuple[BatchItem, asyncio.Future[BatchReply]]]) -> None:
        items = [item for item, _ in batch]
        try:
            replies: Sequence[BatchReply | Exception] = await self._run(items)
            if len(replies) != len(items):
                raise RuntimeError(f"{len(items)} items got {len(replies)} replies")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - each caller gets the error
            replies = [error] * len(items)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)
