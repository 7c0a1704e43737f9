"""Sends what an operator sends again, and tests: one attempt each, at the side of the others.

A replica that holds the webhook's leader lease takes the requests from Redis, where each stays
until its answer is saved: after a crash in between the next one sends it, with the same id.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.kit.outbox import Answer, Result, Schedule
from sidecar.rooms.service import Rooms
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.call_notices import Call, Calls, invite
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import AnyNotice, CallNotice
from sidecar.webhooks.notifier import (
    LEASE_MS,
    SCHEDULE,
    WebhookSender,
    keep_sending,
    new_session,
)
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.settings import Webhook

#: That one sender has at a time: what it has, another replica that takes over sends too.
IN_HAND = 5
#: Looks after which what is too old is dropped.
_TIDY_EVERY = 60

log = structlog.get_logger()


@dataclass(eq=False)
class Resending(WebhookSender):
    """One attempt: an operator sees what came of it, and tries again."""

    schedule = Schedule(1, SCHEDULE.backoff)

    _: KW_ONLY
    #: A call's notice as it is now; None: nobody in it may still come.
    renew: Callable[[CallNotice], Awaitable[CallNotice | None]]
    deliveries: Deliveries
    lease: LeaderLease
    looks: int = field(default=0, init=False)

    async def send(self, item: AnyNotice) -> Answer:
        if isinstance(item, CallNotice):
            renewed = await self.renew(item)
            if renewed is None:
                return Answer(reason="not sent: its calls are over, or the visitors have arrived")
            item = renewed
        return await super().send(item)


class Resender:
    """Of this replica. Senders are added before it runs; it runs once."""

    #: For how long it has a webhook, ms.
    lease_ms = LEASE_MS

    def __init__(self, rooms: Rooms, metrics: Metrics, redis: Store, *, timeout_s: float) -> None:
        self.senders: list[Resending] = []
        self._rooms, self._redis, self._timeout_s = rooms, redis, timeout_s
        self._metrics = metrics.of(WebhookMetrics)
        self._replica = secrets.token_urlsafe(9)

    def add(self, name: str, webhook: Webhook, session: Any, **more: Any) -> Resending:
        """`more`: of the sender."""
        key = webhook_key(name, "resending")
        sender = Resending(
            name,
            self.done,
            webhook,
            session,
            renew=self._renew,
            deliveries=Deliveries(self._redis, name, self._timeout_s),
            lease=LeaderLease(self._redis, key, owner=self._replica, timeout_s=self._timeout_s),
            **more,
        )
        self.senders.append(sender)
        return sender

    async def run(self, webhooks: Mapping[str, Webhook]) -> None:
        """Until cancelled."""
        async with new_session() as session:
            for name, webhook in webhooks.items():
                self.add(name, webhook, session)
            await keep_sending(self.senders, self.look)

    async def look(self) -> None:
        """Once at every webhook's requests."""
        for sender in self.senders:
            try:
                await self._look(sender)
            except StoreError as error:
                log.warning("resends_failed", webhook=sender.name, error=str(error))

    async def _look(self, sender: Resending) -> None:
        store, journal = sender.deliveries, sender.journal
        await journal.save(store)
        if sender.looks % _TIDY_EVERY == 0:
            await store.save({})
        sender.looks += 1
        asked = await store.asked()
        journal.asked = {i: word for i, word in journal.asked.items() if asked.get(i) == word}
        # Also while the sender has all of them: another replica would send them too.
        if not asked or not await sender.lease.hold(milliseconds=self.lease_ms):
            return
        new = [id_ for id_ in asked if id_ not in journal.asked][: IN_HAND - len(sender)]
        found = await store.find(new)
        for id_, delivery in found.items():
            journal.asked[id_] = asked[id_]
            sender.put(delivery.notice)
        if gone := [id_ for id_ in new if id_ not in found]:
            await store.forget(gone)

    def done(self, _webhook: str, notice: AnyNotice, result: Result) -> None:
        """Called by the senders."""
        if notice.event != "test":
            self._metrics.webhooks.labels(notice.room, notice.event, result).inc()

    async def _renew(self, notice: CallNotice) -> CallNotice | None:
        room = self._rooms.find(notice.room)
        if room is None or room.snapshot is None:
            return None
        calls = tuple(
            Call(f"{call.called_ms}-0", call.visitor, call.called_ms) for call in notice.calls
        )
        store = Calls(self._redis, room.name, self._timeout_s)
        invited, _ = await invite(room, store, calls, epoch=room.snapshot.epoch)
        return replace(notice, calls=invited) if invited else None
