"""The dashboard's sessions that operators have logged out of, shared by all replicas."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text

#: The Redis key of the ended sessions: a zset, session id -> when the session would have expired,
#: unix seconds. `name:ann` stands for all sessions of Ann that expire by then. The key expires.
ENDED_SESSIONS = "waitroom:dashboard:ended"


#: How long an expired session is still kept, seconds, because the clocks of replicas may be late.
LATE_S = 3600


class EndedSessions:
    def __init__(
        self, redis: Store, *, timeout_s: float = 1.0, now_s: Callable[[], float] = time.time
    ) -> None:
        self._redis: Any = redis
        self._timeout_s = timeout_s
        self._now_s = now_s

    async def exchange(self, sessions: Mapping[str, int]) -> dict[str, int]:
        """Add ended sessions to those in Redis, and return all of them. Each session id has the
        time at which the session would have expired, unix seconds. Raises StoreError."""
        oldest_s = int(self._now_s()) - LATE_S
        async with driver_errors("ended sessions", self._timeout_s):
            rows = await self._redis.zrangebyscore(
                ENDED_SESSIONS, oldest_s, "+inf", withscores=True
            )
            stored = {text(session): int(ends_s) for session, ends_s in rows}
            missing = {
                session: ends_s
                for session, ends_s in sessions.items()
                if ends_s > stored.get(session, 0) and ends_s >= oldest_s
            }
            if missing:
                # gt: of two replicas' times the later one stays, whichever is written first.
                await self._redis.zadd(ENDED_SESSIONS, missing, gt=True)
                last_s = max((stored | missing).values()) + LATE_S
                await self._redis.expireat(ENDED_SESSIONS, last_s)
                await self._redis.zremrangebyscore(ENDED_SESSIONS, "-inf", oldest_s)
        return stored | missing
