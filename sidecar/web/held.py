"""Holds a request until its moment, for as long as somebody waits for the answer."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

#: How often to look whether the client is still there, seconds.
LOOK_S = 0.2


async def held(request: web.Request, seconds: float) -> bool:
    """Whether the client is still there when so many seconds are over; False as soon as it is not.
    Never early."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        if is_gone(request):
            return False
        await asyncio.sleep(min(LOOK_S, left))
    return not is_gone(request)


def is_gone(request: web.Request) -> bool:
    transport = request.transport
    return transport is None or transport.is_closing()
