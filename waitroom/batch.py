"""Batches the calls that come while others are on their way."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from waitroom.errors import UnavailableError

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Batcher(Generic[Item, Reply]):
    """Turns many `submit(item)` into few `run(items)`, at most `flights` of them at a time, of at
    most `limit` items each.

    The first item goes at once, with others of the same turn of the event loop. The item of a
    caller who is cancelled before it was sent is not sent; after that its reply goes to `unseen`. A
    reply that is an exception is raised.
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Reply | Exception]]],
        *,
        limit: int,
        flights: int,
        unseen: Callable[[Item, Reply], None],
    ) -> None:
        self._run = run
        self._limit = limit
        self._most = flights
        self._unseen = unseen
        self._waiting: list[tuple[Item, asyncio.Future[Reply]]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._is_starting = False

    async def submit(self, item: Item) -> Reply:
        """Return the reply for this item. Raises the error that `run` raised for its batch."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._start()
        try:
            return await future
        except asyncio.CancelledError:
            # The reply came, and the caller was cancelled before seeing it.
            if not future.cancelled() and future.exception() is None:
                self._unseen(item, future.result())
            raise

    async def landed(self) -> None:
        """Wait until no batch is on its way."""
        while self._flights:
            await asyncio.wait(self._flights)

    def _start(self) -> None:
        if self._waiting and not self._is_starting and len(self._flights) < self._most:
            self._is_starting = True
            flight = asyncio.create_task(self._fly())
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if flight.cancelled():
            # The loop is ending, so no reply will come.
            self._is_starting = False
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    async def _fly(self) -> None:
        self._is_starting = False
        while batch := self._take():
            self._start()
            await self._send(batch)

    def _take(self) -> list[tuple[Item, asyncio.Future[Reply]]]:
        taken = self._waiting[: self._limit]
        del self._waiting[: self._limit]
        batch = [pair for pair in taken if not pair[1].done()]
        return batch if batch or not self._waiting else self._take()

    async def _send(self, batch: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            answers = await self._run([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as failure:  # noqa: BLE001 - each caller gets it
            answers = [failure] * len(batch)
        if len(answers) != len(batch):
            error = UnavailableError(f"{len(batch)} calls got {len(answers)} answers")
            answers = [error] * len(batch)
        for (item, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                if not future.done():
                    future.set_exception(answer)
            elif future.done():
                self._unseen(item, answer)
            else:
                future.set_result(answer)
