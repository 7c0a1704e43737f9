"""A room in a real store, and replicas that are moved by hand."""

import asyncio
from dataclasses import dataclass, field

from sidecar.http.metrics import Metrics
from sidecar.kit.clock import StoreClock
from sidecar.rooms.redis_keys import leader_key, room_key
from sidecar.rooms.service import WaitingRoom, WaitingRooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.model import Ticket
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.webhooks.calls import CallDetector
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.metrics import WebhookMetrics
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.room_events import RoomDetector
from sidecar.webhooks.sender import Sender, new_session
from sidecar.webhooks.service import Receiver as Hook
from sidecar.webhooks.service import Webhooks
from sidecar.webhooks.settings import Webhook
from tests.support.receiver import until
from tests.support.rooms import attended, new_room_name


@dataclass
class Replica:
    """A replica's detectors and senders of one room."""

    room: WaitingRoom
    room_detector: RoomDetector
    call_detector: CallDetector
    senders: list[Sender]
    metrics: Metrics
    sends: bool

    async def look(self) -> None:
        await self.room.refresh()
        await self.room_detector.look()
        await self.call_detector.look()
        if self.sends:
            await self.send()

    async def send(self) -> None:
        await asyncio.gather(*(sender.look() for sender in self.senders))

    async def settled(self) -> None:
        """The senders are idle."""
        await until(
            lambda: all(task.done() for sender in self.senders for task in sender.lanes.values()),
            "the end of sending",
        )

    def counted(self, result: str, event: str | None = None) -> float | None:
        """Messages about an event; without one, calls."""
        labels = {"room": self.room.name, "result": result}
        name = "waitroom_calls_total"
        if event is not None:
            name, labels = "waitroom_webhooks_total", {**labels, "event": event}
        return self.metrics.registry.get_sample_value(name, labels)

    def die(self) -> None:
        """As killed: nothing that was begun ends."""
        for sender in self.senders:
            for task in sender.lanes.values():
                task.cancel()


@dataclass
class World:
    redis: object
    turn: object
    session: object
    settings: dict = field(default_factory=lambda: {"total_active_users": 1})
    name: str = field(default_factory=new_room_name)
    visitors: list[str] = field(default_factory=list)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    #: The time moves on while a sender waits for a retry; else it looks again and again.
    hurries: bool = False

    def hook(self, number: int = 0) -> str:
        return f"{self.name}-hook{number}"

    def deliveries(self, number: int = 0) -> Deliveries:
        return Deliveries(self.redis, self.hook(number), 5, now_ms=self.turn)

    def replica(self, *webhooks: Webhook, sends: bool = True, **settings) -> Replica:
        file = RoomSettings(**{**self.settings, **settings})
        clock = StoreClock()
        store = RoomStore(self.redis, self.name, settings=attended(file), clock=clock,
                          now_ms=self.turn, timeout_s=5)  # fmt: skip
        rooms = WaitingRooms(
            [WaitingRoom(self.name, file, Tokens(self.name, ["k" * 32], clock), store, clock)]
        )
        metrics = Metrics()
        hooks = Webhooks(
            Hook(self.hook(number), webhook, self.deliveries(number), metrics.of(WebhookMetrics))
            for number, webhook in enumerate(webhooks)
        )
        detectors = [
            kind(rooms, hooks, metrics, self.redis, timeout_s=5)
            for kind in (RoomDetector, CallDetector)
        ]
        senders = [Sender(hook, rooms, self.redis, self.session, timeout_s=5) for hook in hooks]
        for each in (*detectors, *senders):
            each.lease_ms = 600_000
        for sender in senders:
            sender.sleep = self.sleep
        replica = Replica(rooms.get(self.name), *detectors, senders, metrics, sends)
        self.replicas.append(replica)
        return replica

    async def sleep(self, seconds: float) -> None:
        if self.hurries:
            self.turn.forward(seconds)
        await asyncio.sleep(0.002)

    @property
    def store(self) -> RoomStore:
        return self.replicas[-1].room.store

    def key(self, name: str) -> str:
        return room_key(self.name, name)

    async def arrive(self, number: int = 1) -> list[str]:
        visitors = [new_visitor() for _ in range(number)]
        for visitor in visitors:
            standing = await self.store.enter(visitor)
            ticket = Ticket(visitor, standing.order, standing.now_ms, standing.epoch)
            self.tickets[visitor] = ticket
        self.visitors += visitors
        return visitors

    async def go(self, number: int) -> None:
        """The last of those who came leave."""
        for _ in range(number):
            await self.store.leave(self.visitors.pop())

    async def call(self, number: int) -> list[str]:
        """Visitors come and are called, in the order in which they came."""
        visitors = await self.arrive(number)
        cap = int(await self.redis.zcard(self.key("active"))) + number
        await self.store.configure({"total_active_users": cap})
        await self.store.sweep()
        assert await self.redis.zcard(self.key("active")) == cap
        return visitors

    async def seconds(self, number: int = 1, *replicas: Replica) -> None:
        """Each replica looks once a second."""
        for _ in range(number):
            self.turn.forward(1)
            for replica in replicas or self.replicas:
                await replica.look()

    async def leases_run_out(self) -> None:
        rooms = [leader_key(self.name, work) for work in ("notifying", "calling")]
        hooks = [webhook_key(self.hook(number), "resending") for number in range(2)]
        assert await self.redis.delete(*rooms, *hooks) > 0

    async def waiting(self, number: int = 0) -> list[str]:
        """The ids of the messages that wait for a webhook, oldest first."""
        page = await self.deliveries(number).page(("waiting",), limit=100)
        return [delivery.notice.id for _, delivery in reversed(page)]

    async def states(self) -> dict[str, str]:
        """The state of each message of the first webhook."""
        page = await self.deliveries().page(limit=1000)
        return {delivery.notice.id: state for state, delivery in page}


async def make_world(url, turn, **settings):
    redis = connect(url, timeout_s=5)
    async with new_session() as session:
        world = World(redis, turn, session, **settings)
        yield world
        for replica in world.replicas:
            replica.die()
            lanes = [task for sender in replica.senders for task in sender.lanes.values()]
            await asyncio.gather(*lanes, return_exceptions=True)
    await close(redis)
