"""Shares among all replicas which sessions of the dashboard a log-out has ended."""

import time
from collections.abc import Callable
from typing import Any

from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.driver_errors import driver_errors, text

#: The Redis key of the ended sessions, a sorted set. The members are session ids. The scores are
#: the unix times when the sessions would have expired. The member `name:ann` stands for all
#: sessions of Ann that expire by the time in its score. The key itself expires too.
ENDED_SESSIONS = "waitroom:dashboard:ended"
#: How many seconds an expired session stays in Redis, because a replica's clock may be behind.
KEEP_EXPIRED_S = 3600


class EndedSessions:
    """The ended sessions that a replica knows. share() adds those that other replicas know."""

    def __init__(
        self,
        redis: Store | None,
        *,
        timeout_s: float = 1.0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`redis` is None if there are no other replicas."""
        self._redis: Any = redis
        self._timeout_s = timeout_s
        self._now_s = now_s
        #: The time at which each ended session would have expired, unix seconds.
        self._ends_s: dict[str, int] = {}
        #: Until the ended sessions are read from Redis, sessions that began before this time are
        #: refused, because they may have ended.
        self._unsure_before_s = now_s() if redis else 0.0

    def add(self, session: str, ends_s: int) -> None:
        """Mark a session as ended. `ends_s` is when it would have expired, in unix seconds."""
        self._ends_s[session] = ends_s

    def would_end_s(self, session: str) -> int:
        """Return the unix time at which a session that has ended would have expired, else 0."""
        return self._ends_s.get(session, 0)

    def is_unsure(self, began_s: int) -> bool:
        """Return True while it is unknown whether a session that began at `began_s` has ended."""
        return began_s < int(self._unsure_before_s)

    async def share(self) -> None:
        """Exchange ended sessions with the other replicas. If this raises StoreError, the
        next call writes what this call could not write."""
        if self._redis is not None:
            shared_ends_s = await self._exchange()
            self._ends_s |= shared_ends_s
            self._unsure_before_s = 0.0
        now_s = self._now_s()
        self._ends_s = {s: ends_s for s, ends_s in self._ends_s.items() if ends_s > now_s}

    async def _exchange(self) -> dict[str, int]:
        """Add the ended sessions of this replica to those in Redis, and return all of them. If both
        have a time for a session, the later one counts."""
        oldest_s = int(self._now_s()) - KEEP_EXPIRED_S
        async with driver_errors("ended sessions", self._timeout_s):
            rows = await self._redis.zrangebyscore(
                ENDED_SESSIONS, oldest_s, "+inf", withscores=True
            )
            stored_ends_s = {text(session): int(ends_s) for session, ends_s in rows}
            missing_ends_s = {
                session: ends_s
                for session, ends_s in self._ends_s.items()
                if ends_s > stored_ends_s.get(session, 0) and ends_s >= oldest_s
            }
            all_ends_s = stored_ends_s | missing_ends_s
            if missing_ends_s:
                # Because of `gt` a later time is never replaced with an earlier one.
                await self._redis.zadd(ENDED_SESSIONS, missing_ends_s, gt=True)
                last_s = max(all_ends_s.values()) + KEEP_EXPIRED_S
                await self._redis.expireat(ENDED_SESSIONS, last_s)
                await self._redis.zremrangebyscore(ENDED_SESSIONS, "-inf", oldest_s)
        return {s: max(ends_s, self.would_end_s(s)) for s, ends_s in all_ends_s.items()}
