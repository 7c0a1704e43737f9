"""Refreshes limits: each second, each replica reads the limits that operators set at run time. If
Redis was emptied, the replica restores them. Every few seconds it writes its decision counts."""

import asyncio
import itertools
import random

import structlog

from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.limits.service import Limit, Limits

#: The time between two refreshes of a limit, in seconds, and the number of refreshes per write.
INTERVAL_S = 1.0
WRITE_EVERY = 5

log = structlog.get_logger()


async def refresh_limits_forever(limits: Limits) -> None:
    """Refresh all limits until cancelled."""
    async with asyncio.TaskGroup() as group:
        for limit in limits:
            group.create_task(_refresh_forever(limit))


async def _refresh_forever(limit: Limit) -> None:
    for turn in itertools.count(1):
        try:
            if turn % WRITE_EVERY == 0:
                await limit.store.write_recent_decisions(limit.recent)
            if restored := await limit.store.refresh_values():
                log.warning("limits_restored", limit=limit.name, keys=restored)
        except StoreUnavailableError:
            pass  # nothing was sent; the calls of the limit report the outage
        except StoreError as error:
            log.warning("refresh_failed", limit=limit.name, error=str(error))
        await asyncio.sleep(INTERVAL_S * random.uniform(0.9, 1.1))  # noqa: S311
