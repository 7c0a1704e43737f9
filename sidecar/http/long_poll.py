"""Requests that are held open for as long as their clients are there: long polls and streams."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from aiohttp import web

from sidecar.kit.errors import ConfigError

#: The longest `wait`, seconds.
MAX_WAIT_S = 60


class LongPolls:
    """Those of this replica. `work`: what goes on while any is open."""

    #: How often to look whether the clients are still there, seconds.
    look_s = 0.2

    def __init__(self, *work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.is_closed = False
        self._open: dict[asyncio.Event, web.Request] = {}
        self._work = (self._watch, *work)
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def opened(self, request: web.Request) -> Iterator[asyncio.Event]:
        """Open within the block. The event is set when it has to end: the client has hung up, or
        the replica stops."""
        over = asyncio.Event()
        if self.is_closed:
            over.set()
        self._open[over] = request
        if not self._tasks:
            self._tasks = [asyncio.create_task(work()) for work in self._work]
        try:
            yield over
        finally:
            del self._open[over]
            if not self._open:
                for task in self._tasks:
                    task.cancel()
                self._tasks = []

    async def hold(self, request: web.Request, seconds: float) -> float:
        """How many seconds are left: 0, and never early, unless the client has hung up or the
        replica stops."""
        ends = time.monotonic() + seconds
        with self.opened(request) as over:
            while not is_gone(request) and (left := ends - time.monotonic()) > 0:
                if await is_set(over, left):
                    break
        return max(0.0, ends - time.monotonic())

    def close(self) -> None:
        """All end, and none is held any longer."""
        self.is_closed = True
        for over in self._open:
            over.set()

    async def _watch(self) -> None:
        # One for all: a handler does not learn when its client goes.
        while True:
            await asyncio.sleep(self.look_s)
            for over, request in self._open.items():
                if is_gone(request):
                    over.set()


LONG_POLLS = web.AppKey("long polls", LongPolls)


def is_gone(request: web.Request) -> bool:
    transport = request.transport
    return transport is None or transport.is_closing()


async def is_set(event: asyncio.Event, seconds: float) -> bool:
    """Waits for it, so long at most."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def wait_of(request: web.Request) -> int:
    """`?wait=20`: for how many seconds the response may be held."""
    text = request.query.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MAX_WAIT_S):
        raise ConfigError([f"wait: whole seconds from 0 to {MAX_WAIT_S} (got {text[:40]!r})"])
    return int(text)


async def close(app: web.Application) -> None:
    """On shutdown, before the application waits for its handlers, which it would cut off: clients
    get what is known by then, and wait the rest elsewhere."""
    for polls in app.values():
        if isinstance(polls, LongPolls):
            polls.close()
