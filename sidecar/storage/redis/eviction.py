"""Watches whether Redis evicts keys. If it does, it forgets visitors, counts and settings without
an error."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from redis.exceptions import ResponseError

from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors

#: Seconds between two checks.
LOOK_S = 60.0
SAFE = "noeviction"
#: The policy cannot be read: INFO is not allowed, or does not have it.
UNSEEN = "unseen"

log = structlog.get_logger()


async def watch_eviction(redis: Store, tell: Callable[[str], None], *, timeout_s: float) -> None:
    """Pass the eviction policy to `tell` every LOOK_S, and log its changes, until cancelled."""
    before = SAFE
    while True:
        policy = await eviction_policy(redis, timeout_s=timeout_s)
        if policy is not None:
            tell(policy)
            if policy != before:
                _log(policy)
            before = policy
        await asyncio.sleep(LOOK_S)


async def eviction_policy(redis: Store, *, timeout_s: float) -> str | None:
    """Return maxmemory-policy, in a cluster that of a node that evicts, if there is one. Return
    UNSEEN if it cannot be read, None if Redis does not answer."""
    try:
        async with driver_errors("info", timeout_s):
            info: dict[str, Any] = await redis.info("memory")
    except StoreError as error:
        return UNSEEN if isinstance(error.__cause__, ResponseError) else None
    nodes = [node for node in info.values() if isinstance(node, dict)] or [info]
    policies = {str(node.get("maxmemory_policy", UNSEEN)) for node in nodes}
    return min(policies - {SAFE}, default=SAFE)


def _log(policy: str) -> None:
    if policy == SAFE:
        log.info("store_does_not_evict")
    elif policy == UNSEEN:
        hint = "allow INFO, or see to it that maxmemory-policy is noeviction"
        log.warning("store_eviction_unseen", hint=hint)
    else:
        hint = "Redis may forget people in silence: set maxmemory-policy to noeviction"
        log.warning("store_evicts", policy=policy, hint=hint)
