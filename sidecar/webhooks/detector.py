"""The base class of the detectors, which detect events of rooms and enqueue messages about them.

For each room, the replica that holds the room's leader lease detects events. It stores new messages
in Redis together with the new state of the detector, enqueues them for the senders, and then
deletes the stored copies. If it stops in between, another replica takes over when the lease has
expired. That replica enqueues the messages again with the same ids, which has no effect on messages
that are already enqueued. While a replica is slow, two replicas may detect the same event. Both
give it the same id, because both start from the same state.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import leader_key
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import AnyNotice
from sidecar.webhooks.service import Webhooks
from sidecar.webhooks.settings import WebhookEventName

#: How often rooms and queues are checked, in seconds.
CHECK_S = 1.0
LEASE_MS = 5_000

log = structlog.get_logger()


class Detector(ABC):
    """Detects some kinds of events, in all rooms."""

    events: ClassVar[tuple[WebhookEventName, ...]]
    #: The name of the leader lease, and the log event for an unavailable Redis.
    lease_name: ClassVar[str]
    failure_event: ClassVar[str]
    lease_ms = LEASE_MS

    def __init__(
        self,
        rooms: WaitingRooms,
        webhooks: Webhooks,
        metrics: Metrics,
        redis: Store,
        *,
        timeout_s: float,
    ) -> None:
        replica = secrets.token_urlsafe(9)
        self.webhooks = webhooks
        self.metrics = metrics.of(WebhookMetrics)
        self.redis: Any = redis
        self.timeout_s = timeout_s
        #: Maps a room to the state that this replica last stored, in case Redis loses the state.
        self.last_states: dict[str, Any] = {}
        #: The rooms that have a webhook for one of `events`.
        self.rooms = [room for room in rooms if self._has_subscribers(room.name)]
        self._leases = {}
        for room in self.rooms:
            key = leader_key(room.name, self.lease_name)
            self._leases[room.name] = LeaderLease(redis, key, owner=replica, timeout_s=timeout_s)

    async def run(self) -> None:
        """Check all rooms every second until cancelled."""
        while True:
            await self.check_rooms()
            await asyncio.sleep(CHECK_S)

    async def check_rooms(self) -> None:
        """Check each room once, if this replica has the room's lease and Redis is available."""
        await asyncio.gather(*map(self._check_room, self.rooms))

    async def _check_room(self, room: WaitingRoom) -> None:
        if room.snapshot is None or room.store.is_away:
            return
        try:
            if await self._leases[room.name].hold(milliseconds=self.lease_ms):
                await self.handle_snapshot(room, room.snapshot)
        except StoreError as error:
            log.warning(self.failure_event, room=room.name, error=str(error))

    def _has_subscribers(self, room: str) -> bool:
        return any(self.find_subscribers(room, event) for event in self.events)

    def find_subscribers(self, room: str, event: str) -> tuple[str, ...]:
        """Return the names of the webhooks that receive messages about an event of a room."""
        return tuple(
            webhook.name for webhook in self.webhooks if webhook.is_subscribed_to(room, event)
        )

    async def enqueue(self, notice: AnyNotice, names: Iterable[str]) -> None:
        """Enqueue a message for those of the named webhooks that are still configured."""
        webhooks = filter(None, map(self.webhooks.find, names))
        await asyncio.gather(*(webhook.enqueue(notice) for webhook in webhooks))

    @abstractmethod
    async def handle_snapshot(self, room: WaitingRoom, snapshot: Snapshot) -> None:
        """Detect a room's new events and enqueue messages about them. Raises StoreError."""
