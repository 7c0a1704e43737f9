"""Webhooks as they are sent: to a real receiver, from what a real store holds."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from sidecar.app.replica import running
from sidecar.http.metrics import Metrics
from sidecar.kit import outbox
from sidecar.kit.clock import StoreClock
from sidecar.kit.outbox import FRESH_S
from sidecar.rooms.redis_keys import leader_key, room_key
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.webhooks import notifier as notifiers
from sidecar.webhooks.deliveries import Deliveries
from sidecar.webhooks.model import Notice
from sidecar.webhooks.notifier import SCHEDULE, WebhookSender, new_session, send
from sidecar.webhooks.room_notices import RoomNotifier
from sidecar.webhooks.settings import Webhook
from tests.support.processes import free_port
from tests.support.receiver import Pauses, Receiver, until
from tests.support.rooms import attended, new_room_name


@pytest.fixture
async def quick():
    quick = await Receiver().start()
    yield quick
    await quick.stop()


@dataclass
class Replica:
    """A replica's notifier over one room, moved by hand."""

    room: Room
    notifier: RoomNotifier
    metrics: Metrics
    tasks: list[asyncio.Task[None]]

    async def look(self) -> None:
        await self.room.refresh()
        await self.notifier.look()

    def counted(self, event: str, result: str) -> float | None:
        labels = {"room": self.room.name, "event": event, "result": result}
        return self.metrics.registry.get_sample_value("waitroom_webhooks_total", labels)

    def die(self) -> None:
        """As killed: nothing that was begun ends."""
        for task in self.tasks:
            task.cancel()


class World:
    """A room of one slot in a real store, its time, and replicas that look at it."""

    def __init__(self, redis, turn, session) -> None:
        self.redis, self.turn, self.session = redis, turn, session
        self.name = new_room_name()
        self.pauses = Pauses()
        self.visitors: list[str] = []
        self.replicas: list[Replica] = []

    def replica(self, *webhooks: Webhook, sends: bool = True, **settings) -> Replica:
        file = RoomSettings(**{"total_active_users": 1, **settings})
        clock = StoreClock()
        store = RoomStore(self.redis, self.name, settings=attended(file), clock=clock,
                          now_ms=self.turn, timeout_s=5)  # fmt: skip
        room = Room(self.name, file, Tokens(self.name, ["k" * 32], clock), store, clock)
        metrics = Metrics()
        notifier = RoomNotifier(Rooms([room]), metrics, self.redis, timeout_s=5, lease_ms=600_000)
        tasks = []
        for number, webhook in enumerate(webhooks):
            sender = self.sender(f"hook{number}", webhook, notifier.done)
            notifier.add(sender)
            if sends:
                tasks.append(asyncio.create_task(sender.run()))
        self.replicas.append(Replica(room, notifier, metrics, tasks))
        return self.replicas[-1]

    def sender(self, name, webhook, done) -> WebhookSender:
        pauses = self.pauses
        return WebhookSender(
            name, done, webhook, self.session, sleep=pauses.sleep, clock=pauses.clock
        )

    async def arrive(self, number: int = 1) -> None:
        for _ in range(number):
            self.visitors.append(new_visitor())
            await self.replicas[-1].room.store.enter(self.visitors[-1])

    async def go(self, number: int) -> None:
        """The last of those who came go."""
        for _ in range(number):
            await self.replicas[-1].room.store.leave(self.visitors.pop())

    async def seconds(self, number: int, *replicas: Replica) -> None:
        """Each of them looks once a second."""
        for _ in range(number):
            self.turn.forward(1)
            for replica in replicas or self.replicas:
                await replica.look()

    async def lease_runs_out(self) -> None:
        assert await self.redis.pttl(leader_key(self.name, "notifying")) > 0
        await self.redis.delete(leader_key(self.name, "notifying"))

    async def unsent(self) -> list[dict]:
        return json.loads(await self.redis.get(room_key(self.name, "notices")))["unsent"]


@pytest.fixture
async def world(redis_socket, turn):
    redis = connect(f"unix://{redis_socket}", timeout_s=5)
    async with new_session() as session:
        world = World(redis, turn, session)
        yield world
        for replica in world.replicas:
            replica.die()
            await asyncio.gather(*replica.tasks, return_exceptions=True)
    await close(redis)


# Once, whoever sends.


async def test_two_replicas_send_one_event(world, receiver):
    """Of several replicas one has the turn; each event is sent once, with the room's numbers."""
    hook = Webhook(url=receiver.url, secret="s" * 16)
    first, second = world.replica(hook), world.replica(hook)
    await world.seconds(2)
    await world.arrive(3)
    await world.seconds(10)
    await until(lambda: len(receiver.came) == 2, "two events")
    await world.go(2)
    await world.seconds(15)
    await until(lambda: len(receiver.came) == 3, "a third event")
    await world.seconds(5)
    assert receiver.events == ["room_full", "queue_started", "queue_empty"]
    headers, body = receiver.came[1]
    assert headers["X-Waitroom-Signature"].startswith("t=")
    assert (body["room"], body["waiting"], body["active"], body["cap"]) == (world.name, 2, 1, 1)
    counted = [replica.counted("queue_started", "delivered") for replica in (first, second)]
    assert sorted(counted) == [0, 1]
    assert await world.unsent() == []


async def test_a_replica_that_dies_before_it_sends_loses_nothing(world, receiver):
    """What it wrote and did not send the next one sends, with the id that was given to it."""
    hook = Webhook(url=receiver.url)
    mute = world.replica(hook, sends=False)
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(1)
    written = [one["notice"]["id"] for one in await world.unsent()]
    assert len(written) == 2
    mute.die()
    heir = world.replica(hook)
    # I expect nothing while the dead one's turn lasts.
    await world.seconds(3, heir)
    assert receiver.came == []
    await world.lease_runs_out()
    await world.seconds(2, heir)
    await until(lambda: receiver.ids == written, "what was written")
    await world.seconds(2, heir)
    assert await world.unsent() == []


async def test_a_replica_that_dies_before_it_notes_repeats_with_the_same_id(world, receiver):
    """A receiver that looks at the ids drops the repeat; it comes once, not for ever."""
    hook = Webhook(url=receiver.url, events=["queue_started"])
    first = world.replica(hook)
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(1)
    await until(lambda: len(receiver.came) == 1, "the event")
    first.die()
    heir = world.replica(hook)
    await world.lease_runs_out()
    await world.seconds(1, heir)
    await until(lambda: len(receiver.came) == 2, "the repeat")
    for _ in range(3):
        await world.lease_runs_out()
        await world.seconds(1, heir)
    assert len(receiver.came) == 2
    assert len(set(receiver.ids)) == 1


async def test_a_dead_receiver_alone_is_told_again(world, receiver):
    """The next replica sends to those who did not have it, and to no other."""
    dead = Webhook(url=f"http://127.0.0.1:{free_port()}/x")
    alive = Webhook(url=receiver.url, events=["queue_started"])
    first = world.replica(dead, alive)
    first.tasks[0].cancel()
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(1)
    await until(lambda: first.counted("queue_started", "delivered") == 1, "the event")
    await world.seconds(1)
    assert {name for one in await world.unsent() for name in one["webhooks"]} == {"hook0"}
    first.die()
    await world.lease_runs_out()
    heir = world.replica(dead, alive, sends=False)
    await world.seconds(2, heir)
    assert [len(sender) for sender in heir.notifier.senders.values()] == [2, 0]


async def test_a_restart_goes_on_where_it_was(world, receiver):
    """A queue that was told is not told again, and its end is, although nobody looked between."""
    hook = Webhook(url=receiver.url, events=["queue_started", "queue_empty"])
    world.replica(hook)
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(2)
    await until(lambda: receiver.events == ["queue_started"], "the beginning")
    await world.seconds(1)
    world.replicas.pop().die()
    await world.lease_runs_out()
    world.turn.forward(20)
    world.replica(hook)
    await world.seconds(5)
    assert receiver.events == ["queue_started"]
    await world.go(1)
    await world.seconds(12)
    await until(lambda: receiver.events == ["queue_started", "queue_empty"], "the end")


async def test_what_is_done_while_the_memory_is_written_is_noted_the_next_time(world):
    """Senders go on meanwhile, and nothing that they did is forgotten."""
    replica = world.replica(Webhook(url="http://127.0.0.1:1/x"), sends=False)
    await world.seconds(2)
    await world.arrive(1)
    await world.seconds(1)
    notices = replica.notifier.outboxes[world.name].store
    ((full, _),) = replica.notifier.senders["hook0"]._backlog
    write = notices.write

    async def write_slowly(memory: str) -> None:
        replica.notifier.done("hook0", full, "delivered")
        await write(memory)

    notices.write = write_slowly
    await world.arrive(1)
    await world.seconds(1)
    notices.write = write
    await world.seconds(1)
    assert [one["notice"]["event"] for one in await world.unsent()] == ["queue_started"]


async def test_queue_over_follows_a_setting_that_changes(world, receiver):
    """notify_above may be set while the room runs, as `waitroom rooms set` does."""
    replica = world.replica(Webhook(url=receiver.url, events=["queue_over"]))
    await world.arrive(4)
    await world.seconds(3)
    await replica.room.store.configure({"notify_above": 2})
    await world.seconds(2)
    await until(lambda: receiver.events == ["queue_over"], "the event")
    assert (receiver.came[0][1]["waiting"], receiver.came[0][1]["threshold"]) == (3, 2)


async def test_rooms_and_events_are_chosen(world, receiver):
    """A webhook hears of its rooms and its events; a room that none is about is not looked at."""
    replica = world.replica(Webhook(url=receiver.url, rooms=["another"]))
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(2)
    keys = room_key(world.name, "notices"), leader_key(world.name, "notifying")
    assert await world.redis.exists(*keys) == 0
    assert replica.counted("queue_started", "delivered") is None


async def test_a_webhook_that_is_gone_is_not_waited_for(world):
    """What was on its way to one that is in the settings no more is forgotten."""
    hook = Webhook(url="http://127.0.0.1:1/x")
    world.replica(hook, hook, sends=False)
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(1)
    assert {name for one in await world.unsent() for name in one["webhooks"]} == {"hook0", "hook1"}
    await world.lease_runs_out()
    heir = world.replica(hook, sends=False)
    await world.seconds(1, heir)
    assert {name for one in await world.unsent() for name in one["webhooks"]} == {"hook0"}


async def test_a_store_that_does_not_answer_is_tried_again(world, tmp_path, receiver):
    """Looking raises nothing, and tells when the store is back."""
    replica = world.replica(Webhook(url=receiver.url, events=["room_full"]))
    await world.seconds(2)
    await world.arrive(1)
    notices = replica.notifier.outboxes[world.name].store
    gone = connect(f"unix://{tmp_path}/none.sock", timeout_s=1)
    notices._redis, real = gone, notices._redis
    with capture_logs() as logs:
        await world.seconds(2)
    assert [line["event"] for line in logs] == ["notify_failed"] * 2
    notices._redis = real
    await world.seconds(1)
    await until(lambda: receiver.events == ["room_full"], "the event")
    await close(gone)


async def test_what_the_store_forgot_is_remembered(world, receiver):
    """The notifier has its memory too: a queue that it told of has an end in an emptied store."""
    world.replica(Webhook(url=receiver.url, events=["queue_started", "queue_empty"]))
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(2)
    await world.redis.delete(room_key(world.name, "notices"), leader_key(world.name, "notifying"))
    await world.go(1)
    await world.seconds(12)
    await until(lambda: receiver.events == ["queue_started", "queue_empty"], "beginning and end")


# What is kept of it.


async def test_what_fails_is_kept(world, receiver):
    """With what the receiver answered, in which nothing is secret; and it waits no more."""
    receiver.answers = [404]
    replica = world.replica(Webhook(url=receiver.url, events=["queue_started"]))
    store = Deliveries(world.redis, "hook0", 5)
    await world.seconds(2)
    await world.arrive(2)
    await world.seconds(1)
    ((wanted,),) = [[one["notice"]["id"]] for one in await world.unsent()]
    await until(lambda: replica.counted("queue_started", "failed") == 1, "the end")
    await world.seconds(1)
    assert await world.unsent() == []
    found = (await store.find([wanted]))[wanted]
    assert (found.attempts, found.status, found.reason) == (1, 404, "HTTP 404")
    assert found.notice.room == world.name
    assert wanted in await store.failed()


async def test_what_cannot_be_kept_stays_in_the_outbox(world, tmp_path, receiver):
    """So that it is in one of both, and is sent once all the same."""
    replica = world.replica(Webhook(url=receiver.url, events=["queue_started"]))
    store = replica.notifier._deliveries["hook0"]
    gone = connect(f"unix://{tmp_path}/none.sock", timeout_s=1)
    store._redis, real = gone, store._redis
    await world.seconds(2)
    await world.arrive(2)
    with capture_logs() as logs:
        await world.seconds(1)
        await until(lambda: replica.counted("queue_started", "delivered") == 1, "the event")
        await world.seconds(3)
    assert {line["event"] for line in logs} == {"webhook_delivered", "deliveries_not_saved"}
    assert len(await world.unsent()) == 1
    store._redis = real
    await world.seconds(1)
    assert await world.unsent() == []
    assert (await store.find(receiver.ids))[receiver.ids[0]].attempts == 1
    assert len(receiver.came) == 1
    await close(gone)


# One sender.


@pytest.fixture
def brought(world):
    """A sender that runs, and its results."""
    tasks = []

    def start(
        webhook: Webhook, *, runs: bool = True
    ) -> tuple[WebhookSender, list[tuple[str, str]]]:
        results: list[tuple[str, str]] = []
        sender = world.sender("team", webhook, lambda _, n, result: results.append((n.id, result)))
        if runs:
            tasks.append(asyncio.create_task(sender.run()))
        return sender, results

    yield start
    for task in tasks:
        task.cancel()


def notice(number: int = 1) -> Notice:
    return Notice(f"n{number}", "room_full", "shop", 0, waiting=1, active=1, cap=1)


async def test_it_is_tried_again_with_growing_pauses(world, receiver, brought):
    """Broken, then busy, then taken: in order, with the pause that the receiver asks for."""
    receiver.answers = [500, 502, (429, {"Retry-After": "77"}), 200]
    sender, results = brought(Webhook(url=receiver.url, secret="s" * 16))
    sender.put(notice(1), age_s=0)
    sender.put(notice(2), age_s=0)
    await until(lambda: len(results) == 2, "both")
    assert results == [("n1", "delivered"), ("n2", "delivered")]
    assert receiver.ids == ["n1"] * 4 + ["n2"]
    first, second, third = world.pauses.slept
    assert 0.8 <= first <= 1
    assert 3.2 <= second <= 4
    assert third == 77


@pytest.mark.parametrize("answer", [400, 404, 410, (307, {"Location": "/elsewhere"})])
async def test_what_is_refused_is_not_tried_again(world, receiver, brought, answer):
    """A wrong address stays wrong, a redirect leads nowhere, and the next notice has its turn."""
    receiver.answers = [answer]
    sender, results = brought(Webhook(url=receiver.url))
    sender.put(notice(1), age_s=0)
    sender.put(notice(2), age_s=0)
    await until(lambda: len(results) == 2, "both")
    assert results == [("n1", "failed"), ("n2", "delivered")]
    assert (len(receiver.came), world.pauses.slept) == (2, [])


async def test_it_gives_up(world, receiver, brought):
    """After eight tries, which take about a quarter of an hour."""
    receiver.answers = [503] * SCHEDULE.tries
    sender, results = brought(Webhook(url=receiver.url))
    sender.put(notice(1), age_s=0)
    await until(lambda: bool(results), "a result")
    assert results == [("n1", "failed")]
    assert len(receiver.came) == SCHEDULE.tries == 8
    assert 600 < sum(world.pauses.slept) < 1000
    assert max(world.pauses.slept) <= 300


async def test_what_is_old_is_not_sent(world, receiver, brought):
    """An hour after the event nobody wants it; a pause that would go beyond is not begun."""
    receiver.answers = [(503, {"Retry-After": "7200"})]
    sender, results = brought(Webhook(url=receiver.url))
    sender.put(notice(1), age_s=0)
    sender.put(notice(2), age_s=FRESH_S)
    sender.put(notice(3), age_s=FRESH_S - 1)
    await until(lambda: len(results) == 3, "all")
    assert results == [("n1", "failed"), ("n2", "failed"), ("n3", "delivered")]
    assert receiver.ids == ["n1", "n3"]
    assert world.pauses.slept == []


async def test_too_many_drop_the_oldest(monkeypatch, receiver, brought):
    """The one that is on its way stays; the oldest behind it gives way, and is counted."""
    monkeypatch.setattr(outbox, "BACKLOG", 3)
    receiver.answers = [None]
    sender, results = brought(Webhook(url=receiver.url))
    sender.put(notice(0), age_s=0)
    await until(lambda: len(receiver.came) == 1, "the first")
    for number in range(1, 6):
        sender.put(notice(number), age_s=0)
    assert results == [("n1", "dropped"), ("n2", "dropped")]
    assert len(sender) == 4
    receiver.let_go()
    await until(lambda: len(sender) == 0, "the others")
    assert receiver.ids == ["n0", "n3", "n4", "n5"]


async def test_one_that_hangs_delays_no_other_and_no_stop(monkeypatch, world, receiver, quick):
    """Others get everything meanwhile; a stop does not wait for it, and says what is left."""
    monkeypatch.setattr(notifiers, "TIMEOUT_S", 1000)
    monkeypatch.setattr(notifiers, "LOOK_S", 0.01)
    receiver.answers = [None]
    replica = world.replica()
    hooks = {"slow": Webhook(url=receiver.url), "quick": Webhook(url=quick.url)}
    notifier = RoomNotifier(Rooms([replica.room]), replica.metrics, world.redis, timeout_s=5)
    work = notifier.run(hooks)
    await replica.room.refresh()
    with capture_logs() as logs:
        task = asyncio.create_task(work)
        while not await world.redis.exists(room_key(world.name, "notices")):
            await asyncio.sleep(0.01)
        await world.arrive(2)
        world.turn.forward(1)
        await replica.room.refresh()
        # What came may still count as under way.
        await until(lambda: delivered(logs) == 2, "both events")
        await until(lambda: len(receiver.came) == 1, "one that is not answered")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert logs[-1]["event"] == "webhooks_undelivered"
    assert logs[-1]["count"] == 2


def delivered(logs):
    return sum(line["event"] == "webhook_delivered" for line in logs)


async def test_the_log_shows_no_address(receiver, brought):
    """Of a webhook its name and host: paths and queries of chats are secrets."""
    closed = f"http://127.0.0.1:{free_port()}/token-that-nobody-sees"
    with capture_logs() as logs:
        for url in (closed, receiver.url):
            receiver.answers = [404]
            sender, results = brought(Webhook(url=url, secret="secret-that-nobody-sees"))
            sender.put(notice(), age_s=0)
            await until(lambda results=results: results == [("n1", "failed")], "a result")
    retried, *_ = logs
    assert (retried["event"], retried["webhook"], retried["host"]) == (
        "webhook_retried", "team", "127.0.0.1",
    )  # fmt: skip
    assert retried["reason"].startswith("ClientConnectorError: ")
    assert logs[-1]["reason"] == "HTTP 404"
    assert "nobody-sees" not in str(logs)


@pytest.mark.parametrize("sent", [b"no http\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_garbage_is_an_answer_like_any(world, sent):
    """What answers no HTTP at all is tried again, and raises nothing."""

    async def talk(reader, writer):
        await reader.read(100)
        writer.write(sent)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hook = Webhook(url=f"http://127.0.0.1:{port}/token-that-nobody-sees")
    answer = await send(world.session, hook, notice())
    assert (answer.is_taken, answer.may_retry) == (False, True)
    assert "nobody-sees" not in answer.reason
    server.close()
    await server.wait_closed()


async def test_a_host_that_cannot_be_one_is_no_crash(world):
    """It fails for good, or after a while, with a reason."""
    for url in ("http://" + "a" * 64 + ".test/x", "http://a..b/x"):
        answer = await send(world.session, Webhook(url=url), notice())
        assert not answer.is_taken
        assert answer.reason


# Whole.


async def test_a_replica_sends_what_its_settings_say(monkeypatch, redis_socket, tmp_path, receiver):
    """`webhooks` in the settings is all that it takes."""
    monkeypatch.setattr(notifiers, "LOOK_S", 0.02)
    monkeypatch.setattr("sidecar.rooms.worker.REFRESH_MS", 20)
    name = new_room_name()
    store = f"unix://{redis_socket}"
    settings = Settings(
        store=store,
        secret_keys=["k" * 32],
        edge_listen=f"unix:{tmp_path}/e",
        ops_listen=f"unix:{tmp_path}/o",
        rooms={name: {"total_active_users": 1}},
        webhooks={"team": {"url": receiver.url, "format": "slack"}},
    )
    redis = connect(store, timeout_s=5)
    async with running(settings, []) as rooms:
        while not await redis.exists(room_key(name, "notices")):
            await asyncio.sleep(0.01)
        for _ in range(2):
            await rooms.get(name).store.enter(new_visitor())
        await until(lambda: sorted(receiver.events) == ["queue_started", "room_full"], "two events")
    assert all(body["text"].startswith(f"Waitroom {name}: ") for _, body in receiver.came)
    await close(redis)
