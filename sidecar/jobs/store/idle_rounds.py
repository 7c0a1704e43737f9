"""One look at all targets, where no wake-up came (jobs/lua/round)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sidecar.jobs.redis_keys import target_key
from sidecar.kit.redis.driver_errors import driver_errors
from sidecar.kit.redis.functions import Scripts
from sidecar.kit.redis.topology import Cluster

if TYPE_CHECKING:
    from sidecar.kit.redis.connect import Store

_PARTS = ("state", "line", "later", "active", "ended")
#: Targets in one script call. More would hold Redis too long for the others.
AT_ONCE = 200


class Rounds:
    """`now_us` overrides the store's time (tests)."""

    def __init__(
        self, redis: Store, *, timeout_s: float, now_us: Callable[[], int] | None = None
    ) -> None:
        # The targets of a cluster are on several servers: each is asked for itself.
        self._at_once = 1 if isinstance(redis, Cluster) else AT_ONCE
        self._scripts = Scripts(redis, "jobs")
        self._timeout_s = timeout_s
        self._now_us = now_us

    async def look(self, targets: Mapping[str, bool]) -> list[str]:
        """Those where a job waits, is called or is over, or whose queue was lost. `targets` says
        whether this process has a worker for each, which is noted. Raises StoreError when Redis
        does not answer."""
        names = list(targets)
        parts = [names[i : i + self._at_once] for i in range(0, len(names), self._at_once)]
        told = await asyncio.gather(*(self._part(part, targets) for part in parts))
        return [name for part in told for name in part]

    async def _part(self, names: Sequence[str], targets: Mapping[str, bool]) -> list[str]:
        keys = [target_key(name, part) for name in names for part in _PARTS]
        now = "" if self._now_us is None else self._now_us()
        async with driver_errors("round", self._timeout_s):
            args = [now, *(int(targets[name]) for name in names)]
            replies = await self._scripts.run("round", keys, args)
        return [name for name, reply in zip(names, replies, strict=True) if reply]
