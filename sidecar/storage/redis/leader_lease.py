"""A lease in Redis. Its holder is the leader, which does work that only one replica should do."""

from typing import Any

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text


class LeaderLease:
    """A lease under `key` in Redis, as used by the replica `owner`. Every method raises StoreError
    if Redis does not answer.

    If a replica is slow, two replicas may act as the leader for a moment. The work must tolerate
    that.
    """

    def __init__(self, redis: Store, key: str, *, owner: str, timeout_s: float) -> None:
        self._redis: Any = redis
        self._key = key
        self._owner = owner
        self._timeout_s = timeout_s

    async def hold(self, *, milliseconds: int) -> bool:
        """Take or renew the lease for `milliseconds`. Return True if this replica holds it."""
        async with driver_errors("leader lease", self._timeout_s):
            if await self._redis.set(self._key, self._owner, nx=True, px=milliseconds):
                return True
            is_mine = await self._is_mine()
            return is_mine and bool(await self._redis.pexpire(self._key, milliseconds))

    async def give_up(self) -> None:
        """Release the lease, so that no other replica has to wait until the lease expires."""
        async with driver_errors("leader lease", self._timeout_s):
            if await self._is_mine():
                await self._redis.delete(self._key)

    async def _is_mine(self) -> bool:
        holder = await self._redis.get(self._key)
        return holder is not None and text(holder) == self._owner
