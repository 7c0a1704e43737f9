"""Whether Redis evicts keys: then it forgets people, counts and settings without an error."""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog
from redis.exceptions import ResponseError

from sidecar.kit.errors import StoreError
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors

#: Seconds between two looks.
LOOK_S = 60.0
SAFE = "noeviction"
#: INFO is not allowed, or does not say it.
UNSEEN = "unseen"

log = structlog.get_logger()


async def watch_eviction(redis: Store, tell: Callable[[str], None], *, timeout_s: float) -> None:
    """Looks until cancelled; tells the policy, and logs what has changed."""
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
    """maxmemory-policy, in a cluster of a node that evicts, if one does; UNSEEN; None: Redis does
    not answer."""
    try:
        async with driver_errors("info", timeout_s):
            info: dict[str, Any] = await redis.info("memory")
    except StoreError as error:
        return UNSEEN if isinstance(error.__cause__, ResponseError) else None
    nodes = [node for node in info.values() if isinstance(node, dict)] or [info]
    found = {str(node.get("maxmemory_policy", UNSEEN)) for node in nodes}
    return min(found - {SAFE}, default=SAFE)


def _log(policy: str) -> None:
    if policy == SAFE:
        log.info("store_does_not_evict")
    elif policy == UNSEEN:
        hint = "allow INFO, or see to it that maxmemory-policy is noeviction"
        log.warning("store_eviction_unseen", hint=hint)
    else:
        hint = "Redis may forget people in silence: set maxmemory-policy to noeviction"
        log.warning("store_evicts", policy=policy, hint=hint)
