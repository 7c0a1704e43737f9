"""The leader lease: work that one replica does at a time, for as long as it renews the lease."""

from typing import Any

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text


class LeaderLease:
    """A lease under `key` for its `owner`, a replica. Every method raises StoreError when Redis
    does not answer.

    Two replicas may hold it for a moment, if one was slow: the work must tolerate that.
    """

    def __init__(self, redis: Store, key: str, *, owner: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._key = key
        self._owner = owner
        self._timeout_s = timeout_s

    async def hold(self, *, milliseconds: int) -> bool:
        """Take or renew the lease, and return True if this replica has it for that time. It expires
        by itself."""
        async with driver_errors("leader lease", self._timeout_s):
            if await self._redis.set(self._key, self._owner, nx=True, px=milliseconds):
                return True
            return await self._is_mine() and bool(
                await self._redis.pexpire(self._key, milliseconds)
            )

    async def give_up(self) -> None:
        """Release the lease, so that another replica need not wait until it expires."""
        async with driver_errors("leader lease", self._timeout_s):
            if await self._is_mine():
                await self._redis.delete(self._key)

    async def _is_mine(self) -> bool:
        holder = await self._redis.get(self._key)
        return holder is not None and text(holder) == self._owner
