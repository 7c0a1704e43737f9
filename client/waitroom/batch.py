"""Combines calls into batches while earlier requests are unanswered."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from waitroom.errors import UnavailableError

BatchItem = TypeVar("BatchItem")
BatchReply = TypeVar("BatchReply")


class Batcher(Generic[BatchItem, BatchReply]):
    """Combines many `submit(item)` calls into few `run(items)` calls. At most `max_senders` of them
    run at the same time, each with at most `max_size` items.

    The first item is sent at once, with others submitted in the same iteration of the event loop.
    If a caller is cancelled before its item is sent, the item is dropped. If the caller is
    cancelled later, the reply is passed to `on_unclaimed`.
    """

    def __init__(
        self,
        run: Callable[[Sequence[BatchItem]], Awaitable[Sequence[BatchReply | Exception]]],
        *,
        max_size: int,
        max_senders: int,
        on_unclaimed: Callable[[BatchItem, BatchReply], None],
    ) -> None:
        self._run = run
        self._max_size = max_size
        self._max_senders = max_senders
        self._on_unclaimed = on_unclaimed
        self._waiting: list[tuple[BatchItem, asyncio.Future[BatchReply]]] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._is_starting = False

    async def submit(self, item: BatchItem) -> BatchReply:
        """Return the reply to this item. Raises the exception that `run` raised or returned."""
        future: asyncio.Future[BatchReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        try:
            return await future
        except asyncio.CancelledError:
            # If the reply had already arrived, the cancelled caller will never read it.
            if not future.cancelled() and future.exception() is None:
                self._on_unclaimed(item, future.result())
            raise

    async def wait_until_idle(self) -> None:
        """Wait until every batch has its replies."""
        while self._senders:
            await asyncio.wait(self._senders)

    def _start(self) -> None:
        if self._waiting and not self._is_starting and len(self._senders) < self._max_senders:
            self._is_starting = True
            sender = asyncio.create_task(self._send_batches())
            self._senders.add(sender)
            sender.add_done_callback(self._remove_sender)

    def _remove_sender(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        if sender.cancelled():
            # The event loop is shutting down, so no reply will arrive.
            self._is_starting = False
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    async def _send_batches(self) -> None:
        self._is_starting = False
        while batch := self._take_batch():
            self._start()
            await self._send(batch)

    def _take_batch(self) -> list[tuple[BatchItem, asyncio.Future[BatchReply]]]:
        pairs = self._waiting[: self._max_size]
        del self._waiting[: self._max_size]
        batch = [pair for pair in pairs if not pair[1].done()]
        return batch if batch or not self._waiting else self._take_batch()

    async def _send(self, batch: list[tuple[BatchItem, asyncio.Future[BatchReply]]]) -> None:
        try:
            replies = await self._run([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as failure:  # noqa: BLE001 - raised in each caller
            replies = [failure] * len(batch)
        if len(replies) != len(batch):
            error = UnavailableError(f"{len(batch)} calls got {len(replies)} answers")
            replies = [error] * len(batch)
        for (item, future), reply in zip(batch, replies, strict=True):
            if isinstance(reply, Exception):
                if not future.done():
                    future.set_exception(reply)
            elif future.done():
                self._on_unclaimed(item, reply)
            else:
                future.set_result(reply)
