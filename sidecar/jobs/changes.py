"""Tells all replicas which jobs have ended or were called, so that they wake the requests that wait
for these jobs. As messages may be lost, the jobs are also polled."""

import contextlib
from collections.abc import Sequence

from sidecar.jobs.redis_keys import CHANGES_CHANNEL
from sidecar.kit.batch import CallBatcher
from sidecar.kit.errors import StoreError
from sidecar.kit.waiters import Waiters
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.pub_sub import publish

#: The maximum number of jobs in one message.
BATCH_LIMIT = 100


class JobChanges:
    """Announces jobs that have ended or were called."""

    def __init__(self, redis: Store, *, timeout_s: float) -> None:
        self._redis = redis
        self._timeout_s = timeout_s
        self._messages = CallBatcher(self._publish, limit=BATCH_LIMIT)
        #: Wakes the requests that wait for a job, by its id.
        self.waiters = Waiters()

    def announce(self, *ids: str) -> None:
        """Announce jobs to this process now, and to the other replicas in the background."""
        for id_ in ids:
            self.waiters.wake(id_)
            self._messages.submit(id_)

    def wake(self, message: str) -> None:
        """Wake the requests that wait for the jobs in a CHANGES_CHANNEL message. "" wakes all."""
        for id_ in message.split(" "):
            self.waiters.wake(id_)

    async def _publish(self, ids: Sequence[str]) -> Sequence[None]:
        with contextlib.suppress(StoreError):
            await publish(self._redis, CHANGES_CHANNEL, " ".join(ids), timeout_s=self._timeout_s)
        return [None] * len(ids)
