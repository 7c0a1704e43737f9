"""Runs workers, which are restarted after errors, and coroutines in the background."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeAlias

import structlog

#: Seconds before a failed worker is started again.
RESTART_PAUSE_S = 5.0

Worker: TypeAlias = Callable[[], Awaitable[None]]

log = structlog.get_logger()


async def run_worker(name: str, worker: Worker, *, pause_s: float = RESTART_PAUSE_S) -> None:
    """Run a worker forever. Restart it `pause_s` seconds after it returns or raises."""
    while True:
        try:
            await worker()
        except Exception:
            log.exception("worker_failed", worker=name, again_in_seconds=pause_s)
        await asyncio.sleep(pause_s)


def start_workers(stack: contextlib.AsyncExitStack, workers: Mapping[str, Worker]) -> None:
    """Run workers, by name, until the stack is closed."""
    tasks = [asyncio.create_task(run_worker(*worker)) for worker in workers.items()]
    stack.push_async_callback(stop_workers, *tasks)


async def stop_workers(*tasks: asyncio.Task[None], again_s: float = 1.0) -> None:
    """Cancel tasks and wait until all have ended. The cancellation is repeated every `again_s`
    seconds, because a library may swallow it."""
    while running_tasks := [task for task in tasks if not task.done()]:
        for task in running_tasks:
            task.cancel()
        await asyncio.wait(running_tasks, timeout=again_s)


class Background:
    """A group of coroutines that run in the background, so that no request waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, timeout_s: float) -> None:
        """Wait until all coroutines have ended, and cancel those that take longer."""
        if self._tasks:
            _, late_tasks = await asyncio.wait(self._tasks, timeout=timeout_s)
            await stop_workers(*late_tasks)


async def wait_for(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, for `seconds` at most. Return True if the event is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
