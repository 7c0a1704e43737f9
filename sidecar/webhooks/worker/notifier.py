"""What notifies webhooks of rooms: one replica a room, and a sender for each webhook.

The replica that holds a room's leader lease looks at it every second, writes what is to be sent to
Redis, and only then hands it to the senders. When nothing was heard of it for LEASE_MS another one
goes on from there. (One that was held up may take its lease back just as another has it: both send
then, once, and from the same state, so with the same ids.)
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import structlog

from sidecar.kit.errors import StoreError
from sidecar.kit.outbox import Ledger
from sidecar.kit.redis.leader_lease import LeaderLease
from sidecar.rooms.redis_keys import leader_key
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.worker.sender import WebhookSender, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.kit.metrics import Metrics
    from sidecar.kit.outbox import Result
    from sidecar.kit.redis.connect import Store
    from sidecar.rooms.service import Room, Rooms
    from sidecar.rooms.store.replies import Snapshot
    from sidecar.webhooks.settings import Wanted, Webhook
    from sidecar.webhooks.worker.sender import AnyNotice

LOOK_S = 1.0
LEASE_MS = 5_000

log = structlog.get_logger()


async def notify_forever(notifier: Notifier[Any], webhooks: Mapping[str, Webhook]) -> None:
    """Runs until cancelled."""
    async with new_session() as session:
        for name, webhook in webhooks.items():
            notifier.add(WebhookSender(name, notifier.done, webhook, session))
        try:
            await notifier.run()
        finally:
            undelivered = sum(map(len, notifier.senders.values()))
            if undelivered:
                hint = "another replica sends them, or this one when it is back"
                log.warning("webhooks_undelivered", count=undelivered, hint=hint)


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Outbox(Generic[S]):
    """Of one room."""

    room: Room
    lease: LeaderLease
    store: S
    ledger: Ledger


class Notifier(ABC, Generic[S]):
    """Senders are added before it runs."""

    #: What it sends, the work that its leader lease is for, and how it logs that Redis is
    #: unavailable.
    events: ClassVar[tuple[Wanted, ...]]
    work: ClassVar[str]
    failure: ClassVar[str]

    def __init__(
        self,
        rooms: Rooms,
        metrics: Metrics,
        redis: Store,
        *,
        timeout_s: float,
        lease_ms: int = LEASE_MS,
    ) -> None:
        replica = secrets.token_urlsafe(9)

        def outbox(room: Room) -> Outbox[S]:
            key = leader_key(room.name, self.work)
            lease = LeaderLease(redis, key, owner=replica, timeout_s=timeout_s)
            return Outbox(room, lease, self.open_store(redis, room.name, timeout_s), Ledger())

        self.senders: dict[str, WebhookSender] = {}
        self.outboxes = {room.name: outbox(room) for room in rooms}
        self._metrics = metrics.of(WebhookMetrics)
        self._lease_ms = lease_ms

    def add(self, sender: WebhookSender) -> None:
        self.senders[sender.name] = sender
        for room in filter(sender.webhook.is_about, self.outboxes):
            for event in filter(sender.webhook.events.__contains__, self.events):
                for result in ("delivered", "failed", "dropped"):
                    self._metrics.webhooks.labels(room, event, result)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for sender in self.senders.values():
                group.create_task(sender.run())
            while True:
                await self.look()
                await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Once at every room that a webhook is about and whose store answers."""
        hooks = [sender.webhook for sender in self.senders.values()]
        names = [name for name in self.outboxes if any(hook.is_about(name) for hook in hooks)]
        await asyncio.gather(*(self._look(self.outboxes[name]) for name in names))

    def done(self, webhook: str, notice: AnyNotice, result: Result) -> None:
        """Called by the senders."""
        self._metrics.webhooks.labels(notice.room, notice.event, result).inc()
        self.outboxes[notice.room].ledger.done.add((notice.id, webhook))

    def receivers(self, room: str, event: str) -> tuple[str, ...]:
        return tuple(
            name
            for name, sender in self.senders.items()
            if event in sender.webhook.events and sender.webhook.is_about(room)
        )

    def open_for(self, outbox: Outbox[S], id_: str, webhooks: tuple[str, ...]) -> tuple[str, ...]:
        """Those of them that are still to have it, and are in the settings."""
        done = outbox.ledger.done
        return tuple(w for w in webhooks if w in self.senders and (id_, w) not in done)

    async def _look(self, outbox: Outbox[S]) -> None:
        room = outbox.room
        if room.snapshot is None or room.store.is_away:
            return
        try:
            if await outbox.lease.hold(milliseconds=self._lease_ms):
                await self.notify(outbox, room.snapshot)
        except StoreError as error:
            log.warning(self.failure, room=room.name, error=str(error))

    @staticmethod
    @abstractmethod
    def open_store(redis: Store, room: str, timeout_s: float) -> S:
        """Where a room's notices are kept."""

    @abstractmethod
    async def notify(self, outbox: Outbox[S], snapshot: Snapshot) -> None:
        """Writes what is to be sent, and hands it out. Raises StoreError."""
