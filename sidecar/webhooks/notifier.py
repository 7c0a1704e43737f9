"""Notifies webhooks: one replica looks at each room, and each webhook has a sender.

The replica that holds a room's leader lease looks at it every second, writes what is to be sent to
Redis, and only then hands it to the senders. When nothing was heard of it for LEASE_MS another one
goes on from there. (One that was held up may take its lease back just as another has it: both send
then, once, and from the same state, so with the same ids.)
"""

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, Generic, TypeVar

import aiohttp
import structlog

from sidecar.http.metrics import Metrics
from sidecar.kit.errors import StoreError
from sidecar.kit.outbox import FRESH_S, Answer, Delivery, Ledger, Result, Schedule, Sender, post
from sidecar.kit.retry import Backoff
from sidecar.rooms.redis_keys import leader_key
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.store.replies import Snapshot
from sidecar.storage.redis.connect import Store
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks.deliveries import Deliveries, Journal
from sidecar.webhooks.messages import compose, legible, read_dingtalk
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.model import AnyNotice
from sidecar.webhooks.settings import Wanted, Webhook

LOOK_S = 1.0
LEASE_MS = 5_000
TIMEOUT_S = 5.0
#: Takes about a quarter of an hour.
SCHEDULE = Schedule(8, Backoff(1.0, 300.0, factor=4, jitter=0.2))

log = structlog.get_logger()


def new_session() -> aiohttp.ClientSession:
    """It keeps no cookies, and heeds HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=True)


async def send(session: aiohttp.ClientSession, webhook: Webhook, notice: AnyNotice) -> Answer:
    """One try. Signed anew: a signature has the time of the try."""
    read = read_dingtalk if webhook.format == "dingtalk" else None
    message = compose(webhook, notice, now_s=time.time())
    return await post(session, message, timeout_s=TIMEOUT_S, read=read, keeps_refusal=True)


@dataclass(eq=False)
class WebhookSender(Sender["AnyNotice"]):
    """Sends to one webhook: one that hangs holds up no other."""

    schedule = SCHEDULE

    webhook: Webhook
    session: aiohttp.ClientSession
    _: KW_ONLY
    journal: Journal = field(default_factory=Journal)

    def put(self, item: AnyNotice, *, age_s: float = 0, fresh_s: float = FRESH_S) -> None:
        self.journal.began(item)
        super().put(item, age_s=age_s, fresh_s=fresh_s)

    async def send(self, item: AnyNotice) -> Answer:
        began_s = time.monotonic()
        answer = await send(self.session, self.webhook, item)
        took_s = time.monotonic() - began_s
        reason, body = (legible(self.webhook, text) for text in (answer.reason, answer.body))
        self.journal.tried(item, answer.status, reason, body, took_s=took_s)
        return answer

    def _finish(self, item: AnyNotice, result: Result, reason: str) -> None:
        self.journal.ended(item, result, legible(self.webhook, reason))
        super()._finish(item, result, reason)

    def log(self, say: Callable[..., object], result: str, item: AnyNotice, **more: object) -> None:
        notice = {"room": item.room, "happened": item.event, "id": item.id}
        say(f"webhook_{result}", webhook=self.name, host=self.webhook.host, **notice, **more)


async def keep_sending(
    senders: Collection[WebhookSender], look: Callable[[], Awaitable[None]]
) -> None:
    """Until cancelled: `look`, again and again, has what they send."""
    try:
        async with asyncio.TaskGroup() as group:
            for sender in senders:
                group.create_task(sender.run())
            while True:
                await look()
                await asyncio.sleep(LOOK_S)
    finally:
        if undelivered := sum(map(len, senders)):
            hint = "another replica sends them, or this one when it is back"
            log.warning("webhooks_undelivered", count=undelivered, hint=hint)


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Outbox(Generic[S]):
    """Of one room. `store`: keeps its notices."""

    room: Room
    lease: LeaderLease
    store: S
    ledger: Ledger


class Notifier(ABC, Generic[S]):
    """Of what one source has to say. Senders are added before it runs; it runs once."""

    #: What it sends, the work that its leader lease is for, and how it logs that Redis is
    #: unavailable.
    events: ClassVar[tuple[Wanted, ...]]
    work: ClassVar[str]
    failure: ClassVar[str]
    #: Makes the store of a room's notices.
    open_store: Callable[[Store, str, float], S]

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
        self._redis, self._timeout_s = redis, timeout_s
        self._deliveries: dict[str, Deliveries] = {}
        #: What the senders have done with, which is not saved yet: its room too.
        self._ended: list[tuple[str, Delivery]] = []
        self._lease_ms = lease_ms

    def add(self, sender: WebhookSender) -> None:
        self.senders[sender.name] = sender
        self._deliveries[sender.name] = Deliveries(self._redis, sender.name, self._timeout_s)
        for room in filter(sender.webhook.is_about, self.outboxes):
            for event in filter(sender.webhook.events.__contains__, self.events):
                for result in ("delivered", "failed", "dropped"):
                    self._metrics.webhooks.labels(room, event, result)

    async def run(self, webhooks: Mapping[str, Webhook]) -> None:
        """Until cancelled."""
        async with new_session() as session:
            for name, webhook in webhooks.items():
                self.add(WebhookSender(name, self.done, webhook, session))
            await keep_sending(self.senders.values(), self.look)

    async def look(self) -> None:
        """Once at every room that a webhook is about and whose store answers."""
        await self._save()
        hooks = [sender.webhook for sender in self.senders.values()]
        names = [name for name in self.outboxes if any(hook.is_about(name) for hook in hooks)]
        await asyncio.gather(*(self._look(self.outboxes[name]) for name in names))

    def done(self, webhook: str, notice: AnyNotice, result: Result) -> None:
        """Called by the senders."""
        self._metrics.webhooks.labels(notice.room, notice.event, result).inc()
        self._ended.append((notice.room, (notice.id, webhook)))

    async def _save(self) -> None:
        """What the senders did. Only what is kept of it may be taken out of an outbox: what fails
        is in one of both, also after a crash."""
        ended, self._ended = self._ended, []
        try:
            for name, sender in self.senders.items():
                await sender.journal.save(self._deliveries[name])
        except StoreError as error:
            self._ended = ended + self._ended
            log.warning("deliveries_not_saved", error=str(error))
            return
        for room, delivery in ended:
            self.outboxes[room].ledger.done.add(delivery)

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

    @abstractmethod
    async def notify(self, outbox: Outbox[S], snapshot: Snapshot) -> None:
        """Writes what is to be sent, and hands it out. Raises StoreError."""
