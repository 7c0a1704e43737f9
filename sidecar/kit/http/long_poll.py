"""Holds answers until their moment, for as long as somebody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import time

from aiohttp import web

#: How often to look whether the clients are still there, seconds.
LOOK_S = 0.2


class Held:
    """The answers that this replica holds. `close`: it stops, and holds none any longer."""

    def __init__(self) -> None:
        self.is_closed = False
        self._held: dict[asyncio.Event, web.Request] = {}
        self._watch: asyncio.Task[None] | None = None

    async def hold(self, request: web.Request, seconds: float) -> float:
        """How many seconds are left: 0, and never early, unless the client is gone or the replica
        stops."""
        ends, woken = time.monotonic() + seconds, asyncio.Event()
        self._held[woken] = request
        if self._watch is None:
            self._watch = asyncio.create_task(self._look())
        try:
            while not self.is_closed and not is_gone(request):
                left = ends - time.monotonic()
                if left <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await woken.wait()
        finally:
            del self._held[woken]
            if not self._held and self._watch is not None:
                self._watch.cancel()
                self._watch = None
        return max(0.0, ends - time.monotonic())

    def close(self) -> None:
        self.is_closed = True
        for woken in self._held:
            woken.set()

    async def _look(self) -> None:
        # One for all: a handler is not told when its client goes.
        while True:
            await asyncio.sleep(LOOK_S)
            for woken, request in self._held.items():
                if is_gone(request):
                    woken.set()


HELD = web.AppKey("held", Held)


def is_gone(request: web.Request) -> bool:
    transport = request.transport
    return transport is None or transport.is_closing()


async def close(app: web.Application) -> None:
    """Before the application waits for its handlers, which it would cut off: whoever is held
    hears how long is left, and waits the rest elsewhere."""
    app[HELD].close()
