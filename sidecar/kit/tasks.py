"""Workers as tasks: kept at work, and stopped for good."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import structlog

#: Before a worker that failed is started again, seconds.
REST_S = 5.0

Worker: TypeAlias = Callable[[], Awaitable[None]]

log = structlog.get_logger()


async def keep_at_work(name: str, worker: Worker, *, rest_s: float = REST_S) -> None:
    """Runs a worker, and again a moment after it failed: an error that nobody foresaw must not
    end it for good, and requests do not depend on it."""
    while True:
        try:
            await worker()
        except Exception:
            log.exception("worker_failed", worker=name, again_in_seconds=rest_s)
        await asyncio.sleep(rest_s)


async def stop_workers(*tasks: asyncio.Task[None], again_s: float = 1.0) -> None:
    """Cancels all at once until they have ended: what a worker waits for may swallow a
    cancellation."""
    while going := [task for task in tasks if not task.done()]:
        for task in going:
            task.cancel()
        await asyncio.wait(going, timeout=again_s)


class Background:
    """Work that no request waits for."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, timeout_s: float) -> None:
        """Returns when all of it is done; cancels what takes longer."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
            await stop_workers(*late)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Until it is set, for so many seconds at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
