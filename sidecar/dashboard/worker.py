"""Shares with the other replicas, every second, which of the dashboard's sessions have ended."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from sidecar.kit.errors import StoreError
from sidecar.visitors.verdict_lifetime import REFRESH_MS

log = structlog.get_logger()


async def share_forever(share: Callable[[], Awaitable[None]]) -> None:
    """Runs until cancelled."""
    while True:
        await share_once(share)
        await asyncio.sleep(REFRESH_MS / 1000)


async def share_once(share: Callable[[], Awaitable[None]]) -> None:
    try:
        await share()
    except StoreError as error:
        log.debug("sessions_not_shared", error=str(error))
