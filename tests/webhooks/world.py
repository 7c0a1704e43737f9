"""A room in Redis, and replicas with webhooks that a test runs step by step."""

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
from sidecar.webhooks.sender import Sender, open_session
from sidecar.webhooks.service import ConfiguredWebhook as Hook
from sidecar.webhooks.service import Webhooks
from sidecar.webhooks.settings import Webhook
from tests.support.receiver import until
from tests.support.rooms import new_room_name, without_outages


@dataclass
class Replica:
    """The parts of a replica that detect a room's events and send its webhooks."""

    room: WaitingRoom
    room_detector: RoomDetector
    call_detector: CallDetector
    senders: list[Sender]
    metrics: Metrics
    sends: bool

    async def check(self) -> None:
        """Check the room for events and called visitors, and send what is due if `sends`."""
        await self.room.refresh()
        await self.room_detector.check_rooms()
        await self.call_detector.check_rooms()
        if self.sends:
            await self.send()

    async def send(self) -> None:
        await asyncio.gather(*(sender.check_queues() for sender in self.senders))

    async def settled(self) -> None:
        """Wait until the senders have nothing left to do."""
        await until(
            lambda: all(task.done() for sender in self.senders for task in sender.tasks.values()),
            "the end of sending",
        )

    def counted(self, result: str, event: str | None = None) -> float | None:
        """Return how many webhook messages about an event had this result, by the metrics. Without
        an event, return how many calls of visitors had it."""
        labels = {"room": self.room.name, "result": result}
        name = "waitroom_calls_total"
        if event is not None:
            name, labels = "waitroom_webhooks_total", {**labels, "event": event}
        return self.metrics.registry.get_sample_value(name, labels)

    def die(self) -> None:
        """Cancel all tasks of the senders, as if the replica was killed."""
        for sender in self.senders:
            for task in sender.tasks.values():
                task.cancel()


@dataclass
class World:
    """A room, its visitors, and the replicas that send webhooks about it."""

    redis: object
    turn: object
    session: object
    settings: dict = field(default_factory=lambda: {"total_active_users": 1})
    name: str = field(default_factory=new_room_name)
    visitors: list[str] = field(default_factory=list)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)
    #: Whether the fake time advances while a sender waits for a retry. Otherwise it stands still,
    #: and the sender waits again.
    hurries: bool = False

    def hook(self, number: int = 0) -> str:
        """Return the name of a webhook."""
        return f"{self.name}-hook{number}"

    def deliveries(self, number: int = 0) -> Deliveries:
        return Deliveries(self.redis, self.hook(number), 5, now_ms=self.turn)

    def replica(self, *webhooks: Webhook, sends: bool = True, **settings) -> Replica:
        """Create a replica with these webhooks. If not `sends`, it only detects events."""
        file = RoomSettings(**{**self.settings, **settings})
        clock = StoreClock()
        store = RoomStore(self.redis, self.name, settings=without_outages(file), clock=clock,
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
        for part in (*detectors, *senders):
            part.lease_ms = 600_000
        for sender in senders:
            sender.sleep = self.sleep
        replica = Replica(rooms.get(self.name), *detectors, senders, metrics, sends)
        self.replicas.append(replica)
        return replica

    async def start(self, *webhooks: Webhook, seconds: int = 1, **options) -> Replica:
        """Create a replica, and let all replicas check the room once a second."""
        replica = self.replica(*webhooks, **options)
        await self.seconds(seconds)
        return replica

    async def start_heir(self, *webhooks: Webhook, seconds: int = 1, **options) -> Replica:
        """Let the leases of all replicas expire. Then create a replica, and let only it check the
        room."""
        await self.leases_run_out()
        heir = self.replica(*webhooks, **options)
        await self.seconds(seconds, heir)
        return heir

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
        """Let new visitors join. Return their ids."""

        visitors = [new_visitor() for _ in range(number)]
        for visitor in visitors:
            standing = await self.store.enter(visitor)
            ticket = Ticket(visitor, standing.order, standing.now_ms, standing.epoch)
            self.tickets[visitor] = ticket
        self.visitors += visitors
        return visitors

    async def go(self, number: int) -> None:
        """Let the last `number` visitors leave."""
        for _ in range(number):
            await self.store.leave(self.visitors.pop())

    async def call(self, number: int) -> list[str]:
        """Let visitors join, and raise the cap so that they are called."""
        visitors = await self.arrive(number)
        cap = int(await self.redis.zcard(self.key("active"))) + number
        await self.store.configure({"total_active_users": cap})
        await self.store.sweep()
        assert await self.redis.zcard(self.key("active")) == cap
        return visitors

    async def call_and_check(self, number: int = 1) -> list[str]:
        """Let visitors join and be called, and let all replicas check the room."""
        visitors = await self.call(number)
        await self.seconds()
        return visitors

    async def seconds(self, number: int = 1, *replicas: Replica) -> None:
        """Advance the time by `number` seconds, and let each replica check the room every
        second."""
        for _ in range(number):
            self.turn.forward(1)
            for replica in replicas or self.replicas:
                await replica.check()

    async def leases_run_out(self) -> None:
        """Let the leader leases of all replicas expire."""
        rooms = [leader_key(self.name, work) for work in ("notifying", "calling")]
        hooks = [webhook_key(self.hook(number), "resending") for number in range(2)]
        assert await self.redis.delete(*rooms, *hooks) > 0

    async def waiting(self, number: int = 0) -> list[str]:
        """Return the ids of the messages that a webhook has yet to send, oldest first."""
        page = await self.deliveries(number).read_page(("waiting",), limit=100)
        return [delivery.notice.id for _, delivery in reversed(page)]

    async def states(self) -> dict[str, str]:
        """Return the state of each message of the first webhook."""
        page = await self.deliveries().read_page(limit=1000)
        return {delivery.notice.id: state for state, delivery in page}


async def make_world(url, turn, **settings):
    """Yield a World on the Redis at `url`. `turn` is the fake time."""
    redis = connect(url, timeout_s=5)
    async with open_session() as session:
        world = World(redis, turn, session, **settings)
        yield world
        for replica in world.replicas:
            replica.die()
            tasks = [task for sender in replica.senders for task in sender.tasks.values()]
            await asyncio.gather(*tasks, return_exceptions=True)
    await close(redis)
