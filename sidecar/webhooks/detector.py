"""The base of what looks for events of rooms and enqueues their messages.

The replica that holds a room's leader lease looks at it every second. It writes the messages to
Redis together with how far it has looked, enqueues them, and only then takes them out there. If it
stops in between, the next replica enqueues them again: enqueueing is idempotent by the message's
id. Another replica takes over when the lease has expired, after LEASE_MS. (Two replicas may hold it
for a moment if one was slow: both then go on from the same state, so with the same ids.)
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Generic, TypeVar

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
from sidecar.webhooks.settings import Wanted

LOOK_S = 1.0
LEASE_MS = 5_000

S = TypeVar("S")

log = structlog.get_logger()


class Detector(ABC, Generic[S]):
    #: The events that it enqueues, the work that its leader lease is for, and the log event when
    #: Redis is unavailable.
    events: ClassVar[tuple[Wanted, ...]]
    work: ClassVar[str]
    failure: ClassVar[str]
    #: Makes the store of a room's state.
    open_store: Callable[[Store, str, float], S]
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
        self.rooms = [
            room for room in rooms if any(self.receivers(room.name, event) for event in self.events)
        ]
        self.stores = {
            room.name: self.open_store(redis, room.name, timeout_s) for room in self.rooms
        }
        self._leases = {
            room.name: LeaderLease(
                redis, leader_key(room.name, self.work), owner=replica, timeout_s=timeout_s
            )
            for room in self.rooms
        }

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once at every room that a webhook is about and whose store answers."""
        await asyncio.gather(*map(self._look, self.rooms))

    async def _look(self, room: WaitingRoom) -> None:
        if room.snapshot is None or room.store.is_away:
            return
        try:
            if await self._leases[room.name].hold(milliseconds=self.lease_ms):
                await self.detect(room, self.stores[room.name], room.snapshot)
        except StoreError as error:
            log.warning(self.failure, room=room.name, error=str(error))

    def receivers(self, room: str, event: str) -> tuple[str, ...]:
        """Return the names of the webhooks that want an event of a room."""
        return tuple(hook.name for hook in self.webhooks if hook.wants(room, event))

    async def enqueue(self, notice: AnyNotice, names: Iterable[str]) -> None:
        """Enqueue a message to the named webhooks that are still in the settings."""
        hooks = filter(None, map(self.webhooks.find, names))
        await asyncio.gather(*(hook.enqueue(notice) for hook in hooks))

    @abstractmethod
    async def detect(self, room: WaitingRoom, store: S, snapshot: Snapshot) -> None:
        """Enqueue what has happened in a room. Raises StoreError."""
