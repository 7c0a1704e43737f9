"""Holds the requests of long polls and event streams open while their clients are connected."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from aiohttp import web

from sidecar.kit.errors import InputError
from sidecar.kit.tasks import wait_for

#: The longest `wait` that a client may ask for, in seconds.
MAX_WAIT_S = 60


class LongPolls:
    """The requests that this replica holds open. While there are any, the coroutine functions
    `work` run in the background."""

    #: The interval at which the connections of the clients are checked, in seconds.
    check_interval_s = 0.2

    def __init__(self, *work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.is_closed = False
        #: The open requests. Each event is set when its request has to end.
        self._open: dict[asyncio.Event, web.Request] = {}
        self._work = (self._watch_connections, *work)
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def keep_open(self, request: web.Request) -> Iterator[asyncio.Event]:
        """Register the request as open until the block ends. Yield an event that is set when the
        client disconnects or the replica stops."""
        ended = asyncio.Event()
        if self.is_closed:
            ended.set()
        self._open[ended] = request
        if not self._tasks:
            self._tasks = [asyncio.create_task(work()) for work in self._work]
        try:
            yield ended
        finally:
            del self._open[ended]
            if not self._open:
                for task in self._tasks:
                    task.cancel()
                self._tasks = []

    async def hold(self, request: web.Request, seconds: float) -> float:
        """Wait `seconds`, or until the client leaves or the replica stops. Return the seconds
        that are left."""
        ends_s = time.monotonic() + seconds
        with self.keep_open(request) as ended:
            # A loop, because a timer may fire a moment early, and then time would remain.
            while not is_gone(request) and (left_s := ends_s - time.monotonic()) > 0:
                if await wait_for(ended, left_s):
                    break
        return max(0.0, ends_s - time.monotonic())

    def close(self) -> None:
        """End all open requests. Later requests are not held open."""
        self.is_closed = True
        for ended in self._open:
            ended.set()

    async def _watch_connections(self) -> None:
        # aiohttp does not tell a handler that its client has disconnected.
        while True:
            await asyncio.sleep(self.check_interval_s)
            for ended, request in self._open.items():
                if is_gone(request):
                    ended.set()


LONG_POLLS = web.AppKey("long polls", LongPolls)


def is_gone(request: web.Request) -> bool:
    transport = request.transport
    return transport is None or transport.is_closing()


def read_wait(request: web.Request) -> int:
    """Return `wait` in the query: how many seconds to hold the request. Raises InputError."""
    text = request.query.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) < 4 and int(text) <= MAX_WAIT_S):
        raise InputError([f"wait: whole seconds from 0 to {MAX_WAIT_S} (got {text[:40]!r})"])
    return int(text)


async def close(app: web.Application) -> None:
    """End all long polls on shutdown, before the application cancels the handlers. Clients get the
    current state, and send the next request to another replica."""
    for polls in app.values():
        if isinstance(polls, LongPolls):
            polls.close()
