"""Watches whether Redis may evict keys, which would silently lose visitors, counts and settings."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from redis.exceptions import ResponseError

from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors

#: Seconds between two checks.
CHECK_INTERVAL_S = 60.0
#: The only value of maxmemory-policy with which Redis evicts no keys.
SAFE = "noeviction"
#: Stands for a policy that cannot be read, because INFO is forbidden or does not have the policy.
UNSEEN = "unseen"

log = structlog.get_logger()


async def watch_eviction(
    redis: Store, on_policy: Callable[[str], None], *, timeout_s: float
) -> None:
    """Call `on_policy` with the eviction policy every minute, and log changes, until cancelled."""
    previous_policy = SAFE
    while True:
        policy = await read_eviction_policy(redis, timeout_s=timeout_s)
        if policy is not None:
            on_policy(policy)
            if policy != previous_policy:
                _log_policy(policy)
            previous_policy = policy
        await asyncio.sleep(CHECK_INTERVAL_S)


async def read_eviction_policy(redis: Store, *, timeout_s: float) -> str | None:
    """Return the maxmemory-policy of Redis. In a cluster, return SAFE only if all nodes have it.
    Return UNSEEN if the policy cannot be read, or None if Redis does not answer."""
    try:
        async with driver_errors("info", timeout_s):
            info: dict[str, Any] = await redis.info("memory")
    except StoreError as error:
        return UNSEEN if isinstance(error.__cause__, ResponseError) else None
    nodes = [node for node in info.values() if isinstance(node, dict)] or [info]
    policies = {str(node.get("maxmemory_policy", UNSEEN)) for node in nodes}
    return min(policies - {SAFE}, default=SAFE)


def _log_policy(policy: str) -> None:
    if policy == SAFE:
        log.info("store_does_not_evict")
    elif policy == UNSEEN:
        hint = "allow INFO, or see to it that maxmemory-policy is noeviction"
        log.warning("store_eviction_unseen", hint=hint)
    else:
        hint = "Redis may forget people in silence: set maxmemory-policy to noeviction"
        log.warning("store_evicts", policy=policy, hint=hint)
