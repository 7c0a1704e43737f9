"""Webhooks about visitors who were called: to a real receiver, from a real store's stream."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.app.replica import running
from sidecar.history.store.event_stream import EventStream
from sidecar.http.metrics import Metrics
from sidecar.kit.clock import StoreClock
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import called_key, leader_key, room_key
from sidecar.rooms.service import Room, Rooms
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.model import Ticket
from sidecar.visitors.tokens import Tokens, new_visitor
from sidecar.webhooks import call_notices
from sidecar.webhooks.call_notices import (
    BATCH,
    Call,
    CallNotifier,
    Calls,
    Cursor,
    Page,
    read_batches,
    ticket_of,
)
from sidecar.webhooks.messages import compose
from sidecar.webhooks.model import CallNotice, Invitation
from sidecar.webhooks.notifier import WebhookSender, new_session
from sidecar.webhooks.settings import Webhook
from tests.support.processes import free_port
from tests.support.receiver import Pauses, Receiver, until
from tests.support.rooms import attended, new_room_name

URL = "https://shop.test"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text()


@dataclass
class Replica:
    """A replica's call notifier over one room, moved by hand."""

    room: Room
    notifier: CallNotifier
    metrics: Metrics
    tasks: list[asyncio.Task[None]]

    @property
    def calls(self) -> Calls:
        return self.notifier.outboxes[self.room.name].store

    async def look(self) -> None:
        await self.room.refresh()
        await self.notifier.look()

    def counted(self, result: str) -> float | None:
        labels = {"room": self.room.name, "result": result}
        return self.metrics.registry.get_sample_value("waitroom_calls_total", labels)

    def die(self) -> None:
        """As killed: nothing that was begun ends."""
        for task in self.tasks:
            task.cancel()


@dataclass
class World:
    """A room in a store, its time, who waits there, and replicas that look at it."""

    redis: object
    turn: object
    session: object
    settings: dict = field(default_factory=lambda: {"public_url": URL})
    name: str = field(default_factory=new_room_name)
    pauses: Pauses = field(default_factory=Pauses)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)

    def replica(self, *webhooks: Webhook, sends: bool = True) -> Replica:
        file = RoomSettings(total_active_users=0, claim_window=30, **self.settings)
        clock = StoreClock()
        store = RoomStore(self.redis, self.name, settings=attended(file), clock=clock,
                          now_ms=self.turn, timeout_s=5)  # fmt: skip
        room = Room(self.name, file, Tokens(self.name, ["k" * 32], clock), store, clock)
        metrics = Metrics()
        notifier = CallNotifier(Rooms([room]), metrics, self.redis, timeout_s=5, lease_ms=600_000)
        tasks = []
        for number, webhook in enumerate(webhooks):
            sender = WebhookSender(f"hook{number}", notifier.done, webhook, self.session,
                                   sleep=self.pauses.sleep, clock=self.pauses.clock)  # fmt: skip
            notifier.add(sender)
            if sends:
                tasks.append(asyncio.create_task(sender.run()))
        self.replicas.append(Replica(room, notifier, metrics, tasks))
        return self.replicas[-1]

    @property
    def store(self) -> RoomStore:
        return self.replicas[-1].room.store

    async def arrive(self, number: int) -> list[str]:
        """They wait, because nobody is let in yet."""
        visitors = [new_visitor() for _ in range(number)]
        standings = await asyncio.gather(*(self.store.enter(one) for one in visitors))
        for visitor, standing in zip(visitors, standings, strict=True):
            ticket = Ticket(visitor, standing.order, standing.now_ms, standing.epoch)
            self.tickets[visitor] = ticket
        return visitors

    async def call(self, cap: int) -> None:
        """So many may be inside: who waits is called."""
        await self.store.configure({"total_active_users": cap})
        await self.store.sweep()

    async def called(self, number: int) -> list[str]:
        """So many come, and are called, in the order in which they came."""
        visitors = await self.arrive(number)
        cap = int(await self.redis.zcard(self.key("active"))) + number
        await self.call(cap)
        assert await self.redis.zcard(self.key("active")) == cap
        return visitors

    async def look(self, *replicas: Replica) -> None:
        self.turn.forward(1)
        for replica in replicas or self.replicas:
            await replica.look()

    async def lease_runs_out(self) -> None:
        assert await self.redis.delete(leader_key(self.name, "calling")) == 1

    def key(self, name: str) -> str:
        return room_key(self.name, name)

    async def unsent(self) -> list[str]:
        """The ids of what the store has to be sent."""
        return [
            name.decode() for name in await self.redis.hkeys(self.key("calls")) if name != b"cursor"
        ]


def told(receiver: Receiver) -> list[str]:
    """The visitors in all messages, in the order in which they came."""
    return [call["visitor"] for _, body in receiver.came for call in body["calls"]]


async def make_world(url, turn):
    redis = connect(url, timeout_s=5)
    async with new_session() as session:
        world = World(redis, turn, session)
        yield world
        for replica in world.replicas:
            replica.die()
            await asyncio.gather(*replica.tasks, return_exceptions=True)
    await close(redis)


@pytest.fixture
async def world(redis_socket, turn):
    async for world in make_world(f"unix://{redis_socket}", turn):
        yield world


@pytest.fixture
async def any_world(store_url, turn):
    """With each kind of store in turn."""
    async for world in make_world(store_url, turn):
        yield world


@pytest.fixture
def hook(receiver):
    return Webhook(url=receiver.url, secret="s" * 16, events=["called"])


# What is told.


async def test_a_call_is_told_once_by_one_of_two_replicas(any_world, receiver, hook):
    """With who it is, since when, until when, and a link that is the visitor's ticket, signed."""
    world = any_world
    replicas = [world.replica(hook), world.replica(hook)]
    await world.look()
    (visitor,) = await world.called(1)
    called_ms = world.turn.now_ms
    for _ in range(4):
        await world.look()
    await until(lambda: len(receiver.came) == 1, "the message")
    ((headers, body),) = receiver.came
    assert headers["X-Waitroom-Event"] == "called"
    assert headers["X-Waitroom-Signature"].startswith("t=")
    assert headers["X-Waitroom-Delivery"] == body["id"]
    assert (body["event"], body["room"]) == ("called", world.name)
    (call,) = body["calls"]
    assert (call["visitor"], call["called_at"]) == (visitor, "2027-01-15T08:00:01.000+00:00")
    ends_ms = int(await world.redis.zscore(world.key("active"), visitor))
    assert ends_ms >= called_ms + 30_000
    assert call["claim_before"].startswith("2027-01-15T08:00:")
    path, _, token = call["claim_url"].partition("?token=")
    assert path == f"{URL}/_waitroom/{world.name}/claim"
    ticket = replicas[0].room.tokens.read_claim(token)
    assert (ticket.visitor, ticket.epoch) == (visitor, world.tickets[visitor].epoch)
    await until(lambda: sum(r.counted("delivered") for r in replicas) == 1, "the count")
    await world.look()
    assert await world.unsent() == []


async def test_the_link_lets_in_whoever_brings_its_ticket(world, receiver, hook):
    """The ticket of the link claims the turn like the visitor's own, and a second time the same
    session is found."""
    replica = world.replica(hook)
    await world.look()
    (visitor,) = await world.called(1)
    await world.look()
    await until(lambda: told(receiver) == [visitor], "the message")
    token = receiver.came[0][1]["calls"][0]["claim_url"].partition("?token=")[2]
    for ticket in (replica.room.tokens.read_claim(token), world.tickets[visitor]):
        answer = await replica.room.check(ticket, may_join=False)
        assert (answer.state, answer.token.visitor) == ("admitted", visitor)
    assert (await replica.room.refresh()).active == 1


async def test_without_the_sites_address_the_link_is_a_path(world, receiver, hook):
    """The receiver knows where it is."""
    world.settings = {}
    world.replica(hook)
    await world.look()
    await world.called(1)
    await world.look()
    await until(lambda: len(receiver.came) == 1, "the message")
    path = receiver.came[0][1]["calls"][0]["claim_url"]
    assert path.startswith(f"/_waitroom/{world.name}/claim?token=c~")


async def test_a_message_has_a_hundred_calls_at_most(world, receiver, hook):
    """All are told, in the order of the calls, none twice."""
    replica = world.replica(hook)
    await world.look()
    visitors = await world.called(2 * BATCH + 50)
    await world.look()
    await until(lambda: replica.counted("delivered") == len(visitors), "all messages")
    assert [len(body["calls"]) for _, body in receiver.came] == [BATCH, BATCH, 50]
    assert sorted(told(receiver)) == sorted(visitors)
    assert len(set(receiver.ids)) == 3


async def test_who_came_before_the_message_was_made_is_not_in_it(world, receiver, hook):
    """Nor who gave up the turn, nor whose turn is over: only the one who may still come."""
    replica = world.replica(hook)
    await world.look()
    late, came, left, waits = await world.called(4)
    await world.redis.zadd(world.key("active"), {late: world.turn.now_ms + 500})
    await replica.room.check(world.tickets[came], may_join=False)
    await world.store.leave(left)
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [waits]
    assert (replica.counted("came"), replica.counted("over")) == (1, 2)


async def test_what_was_called_before_anybody_asked_is_not_told(world, receiver, hook):
    """The first look at a room begins at the end."""
    replica = world.replica(hook)
    await world.called(3)
    await world.look()
    (visitor,) = await world.called(1)
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]


async def test_each_webhook_is_told_of_its_rooms(world, receiver, hook):
    """One that is about another room is not, and its room is not looked at."""
    elsewhere = Webhook(url="http://127.0.0.1:1/x", events=["called"], rooms=["another"])
    world.replica(elsewhere)
    await world.look()
    assert await world.redis.exists(world.key("calls")) == 0
    replica = world.replica(elsewhere, hook)
    await world.look(replica)
    await world.called(1)
    await world.look(replica)
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert replica.counted("failed") == 0


# Once, whoever sends.


async def test_a_replica_that_dies_before_it_sends_loses_nothing(world, receiver, hook):
    """What it wrote and did not send the next one sends, with the id that was given to it."""
    mute = world.replica(hook, sends=False)
    await world.look()
    visitors = await world.called(2)
    await world.look()
    written = await world.unsent()
    mute.die()
    heir = world.replica(hook)
    # I expect nothing while the dead one's turn lasts.
    await world.look(heir)
    assert receiver.came == []
    await world.lease_runs_out()
    await world.look(heir)
    await until(lambda: heir.counted("delivered") == 2, "the message")
    assert (receiver.ids, told(receiver)) == (written, visitors)
    await world.look(heir)
    assert await world.unsent() == []


async def test_a_replica_that_dies_before_it_notes_repeats_with_the_same_id(world, receiver, hook):
    """The last messages come again, once and not for ever; nobody is missed after them."""
    first = world.replica(hook)
    await world.look()
    await world.called(2)
    await world.look()
    await until(lambda: len(receiver.came) == 1, "the message")
    first.die()
    heir = world.replica(hook)
    await world.lease_runs_out()
    (late,) = await world.called(1)
    for _ in range(3):
        await world.look(heir)
    await until(lambda: heir.counted("delivered") == 3, "the repeat, and the next")
    assert receiver.ids[0] == receiver.ids[1] != receiver.ids[2]
    assert receiver.came[0][1]["calls"][0]["visitor"] == receiver.came[1][1]["calls"][0]["visitor"]
    assert told(receiver)[-1] == late


async def test_a_replica_that_dies_between_reading_and_noting_loses_nothing(world, receiver, hook):
    """Nothing was sent, and the next one reads the same."""
    first = world.replica(hook)
    await world.look()
    visitors = await world.called(2)
    note = first.calls.note

    async def die(*_):
        raise StoreError("gone")

    first.calls.note = die
    with capture_logs() as logs:
        await world.look()
    assert [line["event"] for line in logs] == ["calls_failed"]
    assert (receiver.came, await world.unsent()) == ([], [])
    await world.lease_runs_out()
    heir = world.replica(hook)
    await world.look(heir)
    await until(lambda: heir.counted("delivered") == 2, "the message")
    await world.look(heir)
    # I expect the first, when it has its turn again, to go on from there.
    first.calls.note = note
    await world.lease_runs_out()
    await world.look(first)
    await world.look(first)
    assert told(receiver) == visitors


async def test_two_that_read_at_once_give_the_same_id(world, receiver, hook):
    """A replica that was held up may tell just as another has the turn: the receiver can see it."""
    one, two = world.replica(hook), world.replica(hook)
    await world.look()
    await world.called(1)
    load = two.calls.load
    before = await load()

    async def load_before():
        return before

    await world.look(one)
    two.calls.load = load_before
    await world.lease_runs_out()
    await world.look(two)
    await until(lambda: len(receiver.came) == 2, "both")
    assert len(set(receiver.ids)) == 1
    two.calls.load = load
    (visitor,) = await world.called(1)
    await world.look(two)
    await until(lambda: len(receiver.came) == 3, "the next")
    assert told(receiver)[-1] == visitor


async def test_a_claim_between_death_and_heir_is_not_repeated(world, receiver, hook):
    """What the dead one had not sent is looked at again: who came meanwhile needs no message."""
    mute = world.replica(hook, sends=False)
    await world.look()
    came, waits = await world.called(2)
    await world.look()
    mute.die()
    await mute.room.check(world.tickets[came], may_join=False)
    heir = world.replica(hook)
    await world.lease_runs_out()
    await world.look(heir)
    await until(lambda: heir.counted("delivered") == 1, "the message")
    assert told(receiver) == [waits]


async def test_what_nobody_needs_any_more_is_not_sent_at_all(world, receiver, hook):
    """A batch of which all have come is forgotten without a message."""
    replica = world.replica(hook)
    await world.look()
    (came,) = await world.called(1)
    await replica.room.check(world.tickets[came], may_join=False)
    await world.look()
    await world.look()
    assert (receiver.came, await world.unsent()) == ([], [])
    assert replica.counted("came") == 1


async def test_only_who_did_not_have_it_is_told_again(world, receiver, hook):
    """Of two webhooks the one that is down is left."""
    dead = Webhook(url=f"http://127.0.0.1:{free_port()}/x", events=["called"])
    first = world.replica(dead, hook)
    first.tasks[0].cancel()
    await world.look()
    await world.called(1)
    await world.look()
    await until(lambda: first.counted("delivered") == 1, "the message")
    await world.look()
    _, texts = await first.calls.load()
    assert [batch.webhooks for batch in read_batches(texts).values()] == [("hook0",)]
    await world.lease_runs_out()
    heir = world.replica(hook)  # the dead one is in its settings no more
    await world.look(heir)
    assert len(await world.unsent()) == 1  # now it is called hook0, and is told
    await until(lambda: len(receiver.came) == 2, "the message")


async def test_a_webhook_that_is_gone_is_not_waited_for(world, hook):
    """What was on its way to it is forgotten."""
    world.replica(hook, hook, sends=False)
    await world.look()
    await world.called(1)
    await world.look()
    await world.lease_runs_out()
    heir = world.replica(hook, sends=False)
    await world.look(heir)
    _, texts = await heir.calls.load()
    assert [batch.webhooks for batch in read_batches(texts).values()] == [("hook0",)]


async def test_a_message_is_tried_until_the_turn_is_over(world, receiver, hook):
    """Then it has failed, and the next one is sent."""
    receiver.answers = [503] * 4
    replica = world.replica(hook)
    await world.look()
    await world.called(1)
    await world.look()
    await until(lambda: replica.counted("failed") == 1, "the end of trying")
    # The turn lasts for half a minute and a poll: pauses of 1, 4 and 16 s fit in.
    assert 2 <= len(receiver.came) <= 4
    assert len(set(receiver.ids)) == 1
    receiver.answers = []
    (visitor,) = await world.called(1)
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the next")
    assert told(receiver)[-1] == visitor


async def test_a_sender_has_a_few_at_a_time_and_the_rest_is_looked_at_again(
    monkeypatch, world, receiver, hook
):
    """Who comes while a slow receiver keeps the sender is in no message."""
    monkeypatch.setattr(call_notices, "IN_HAND", 1)
    receiver.answers = [None]
    replica = world.replica(hook)
    await world.look()
    (slow,) = await world.called(1)
    await world.look()
    await until(lambda: len(receiver.came) == 1, "the first")
    (came,) = await world.called(1)
    await world.look()
    (waits,) = await world.called(1)
    await world.look()
    await replica.room.check(world.tickets[came], may_join=False)
    receiver.let_go()
    await until(lambda: replica.counted("delivered") == 1, "the first to be taken")
    for _ in range(3):
        await world.look()
    await until(lambda: replica.counted("delivered") == 2, "the last")
    assert told(receiver) == [slow, waits]
    assert replica.counted("came") == 1


async def test_too_many_drop_the_oldest(monkeypatch, world, receiver, hook):
    """What a sender has stays; the oldest behind it gives way, and is counted and logged."""
    monkeypatch.setattr(call_notices, "UNSENT", 2)
    monkeypatch.setattr(call_notices, "IN_HAND", 1)
    receiver.answers = [None]
    replica = world.replica(hook)
    await world.look()
    visitors = []
    with capture_logs() as logs:
        for _ in range(4):
            visitors += await world.called(1)
            await world.look()
    await until(lambda: len(receiver.came) == 1, "the first")
    assert replica.counted("dropped") == 2
    assert [line["event"] for line in logs if "dropped" in line["event"]] == ["calls_dropped"] * 2
    receiver.let_go()
    await until(lambda: replica.counted("delivered") == 1, "the first to be taken")
    await world.look()
    await until(lambda: replica.counted("delivered") == 2, "the last")
    assert told(receiver) == [visitors[0], visitors[3]]


# Streams that are trimmed, and stores that are emptied.


async def test_a_stream_that_was_trimmed_is_said_and_gone_on_with(world, receiver, hook):
    """How many were lost is logged and counted; what came later is told."""
    replica = world.replica(hook)
    await world.called(1)
    await world.look()
    await world.called(3)
    await world.redis.xtrim(world.key("events"), maxlen=0, approximate=False)
    (visitor,) = await world.called(1)
    with capture_logs() as logs:
        await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    assert [(line["event"], line["calls"]) for line in logs if "lost" in line["event"]] == [
        ("calls_lost", 3)
    ]
    with capture_logs() as logs:
        await world.look()
    assert (replica.counted("lost"), logs) == (3, [])


async def test_a_long_stream_is_read_in_pages(monkeypatch, world, receiver, hook):
    """Whatever fits in between, and with a rest for the next look."""
    monkeypatch.setattr("sidecar.webhooks.call_notices.PAGE", 7)
    monkeypatch.setattr(call_notices, "PAGES", 3)
    replica = world.replica(hook)
    await world.look()
    visitors = await world.called(20)  # and as many events of joining
    for _ in range(3):
        await world.look()
    await until(lambda: replica.counted("delivered") == 20, "all")
    assert sorted(told(receiver)) == sorted(visitors)
    assert replica.counted("lost") == 0


async def test_a_store_that_was_emptied_is_read_from_its_beginning(world, receiver, hook):
    """The replicas that were there know that all in it is new."""
    world.settings |= {"recovery_window": 0}
    replica = world.replica(hook)
    await world.arrive(3)
    await world.look()
    await world.redis.delete(*[key async for key in world.redis.scan_iter(world.key("*"))])
    (visitor,) = await world.called(1)
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    assert replica.counted("lost") == 0


async def test_the_recorder_leaves_what_is_not_read_yet(world, receiver, hook):
    """A history that is written faster than calls are read takes none away; what stayed is trimmed
    when it was read, though nothing more happens."""
    replica = world.replica(hook)
    stream = EventStream(world.redis, world.name, owner="me", timeout_s=5)
    await world.called(1)
    await world.look()
    await world.look()
    (visitor,) = await world.called(1)
    written = (await stream.read(100)).events
    await stream.done(written)
    left = [event.kind for event in written][-2:]
    assert left == ["joined", "called"]
    assert await world.redis.xlen(world.key("events")) == 2
    # I expect another recorder, which knows nothing of it, to find nothing to write.
    other = EventStream(world.redis, world.name, owner="other", timeout_s=5)
    assert (await other.read(100)).events == []
    await world.look()
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    assert (await other.read(100)).events == []
    assert await world.redis.xlen(world.key("events")) == 0
    (again,) = await world.called(1)
    await world.look()
    await until(lambda: told(receiver) == [visitor, again], "the next")
    assert replica.counted("lost") == 0


async def test_a_reader_that_is_gone_holds_the_recorder_for_a_minute_only(world, hook):
    """A webhook that was taken out of the settings must not fill the store."""
    world.replica(hook)
    await world.look()
    await world.look()
    assert 0 < await world.redis.ttl(called_key(world.name)) <= 60
    assert 0 < await world.redis.ttl(world.key("calls")) <= 3 * 3600
    await world.called(1)
    await world.redis.delete(called_key(world.name))
    stream = EventStream(world.redis, world.name, owner="me", timeout_s=5)
    await stream.done((await stream.read(100)).events)
    assert await world.redis.xlen(world.key("events")) == 0


async def test_what_another_version_noted_is_no_error(world, receiver, hook):
    """It begins anew, at the end."""
    replica = world.replica(hook)
    key = world.key("calls")
    await world.redis.hset(key, mapping={"cursor": '{"until": 7}', "x": "[]", "y": '{"calls": 1}'})
    await world.look()
    (visitor,) = await world.called(1)
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    await world.look()
    assert await world.unsent() == []


async def test_a_store_that_does_not_answer_is_tried_again(world, tmp_path, receiver, hook):
    """Looking raises nothing, and tells when the store is back."""
    replica = world.replica(hook)
    await world.look()
    await world.called(1)
    gone = connect(f"unix://{tmp_path}/none.sock", timeout_s=1)
    replica.calls._redis, real = gone, replica.calls._redis
    with capture_logs() as logs:
        await world.look()
    assert [line["event"] for line in logs] == ["calls_failed"]
    replica.calls._redis = real
    await world.look()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    await close(gone)


# By itself.


def test_a_cursor_tells_what_was_lost():
    """At the end of the stream, where the room had more calls than were seen, and the event that
    was read last is gone. A room that was imported has a higher number, and has lost nothing."""
    call = Call("5-0", "v", 5)
    page = Page([call], "6-0", is_end=True, ever=10, is_gone=True)
    assert Cursor("4-0", 7).after(page) == (Cursor("6-0", 10), 2)
    assert Cursor("4-0", 9).after(page) == (Cursor("6-0", 10), 0)
    kept = Page([call], "6-0", is_end=True, ever=10, is_gone=False)
    assert Cursor("4-0", 7).after(kept) == (Cursor("6-0", 10), 0)
    more = Page([call], "6-0", is_end=False, ever=10, is_gone=True)
    assert Cursor("4-0", 7).after(more) == (Cursor("6-0", 8), 0)
    # I expect a store that was emptied to count anew, and nothing to be lost by it.
    fewer = Page([], "6-0", is_end=True, ever=1, is_gone=True)
    assert Cursor("4-0", 7).after(fewer) == (Cursor("6-0", 1), 0)
    assert Cursor.read(None) is Cursor.read("{") is Cursor.read("[]") is None


def test_a_ticket_is_made_of_what_the_call_says():
    """Order and time of joining as far as they are said; else they are the call's time, so that
    its bearer goes behind those who waited then, if the store is emptied."""
    settings = RoomSettings(total_active_users=1)
    said = Call("1-0", "v" * 22, at_ms=9_000, order=5_000_000, joined_ms=4_000)
    assert ticket_of(said, settings, epoch=3) == Ticket("v" * 22, 5_000_000, 4_000, 3)
    order_only = Call("1-0", "v" * 22, at_ms=9_000, order=5_000_000)
    assert ticket_of(order_only, settings, epoch=3) == Ticket("v" * 22, 5_000_000, 5_000, 3)
    drawn = Call("1-0", "v" * 22, at_ms=9_000, order=-5)
    assert ticket_of(drawn, settings, epoch=3) == Ticket("v" * 22, -5, 9_000, 3)
    random = settings.changed({"queueing_method": "random"})
    assert ticket_of(order_only, random, epoch=3).joined_ms == 9_000
    nothing = Call("1-0", "v" * 22, at_ms=9_000)
    assert ticket_of(nothing, settings, epoch=3) == Ticket("v" * 22, 9_000_000, 9_000, 3)


def test_the_docs_show_the_body():
    """The page's example has the keys that are sent, and is signed as all is."""
    shown = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    invited = Invitation("v" * 22, 1_000, 31_000, "/_waitroom/shop/claim?token=c~")
    webhook = Webhook(url=URL, secret="s" * 16, events=["called"])
    message = compose(webhook, CallNotice("n1", "shop", 1_000, (invited,)), now_s=1)
    sent = json.loads(message.body)
    assert list(shown[1]) == list(sent)
    assert list(shown[1]["calls"][0]) == list(sent["calls"][0])
    assert sent["calls"][0]["claim_before"] == "1970-01-01T00:00:31.000+00:00"
    assert message.headers["X-Waitroom-Signature"].startswith("t=1,v1=")


# Whole.


async def test_a_replica_tells_what_its_settings_say(monkeypatch, redis_socket, tmp_path, receiver):
    """A webhook for `called` gets calls and nothing else, beside one for a room's events."""
    monkeypatch.setattr("sidecar.webhooks.notifier.LOOK_S", 0.02)
    monkeypatch.setattr("sidecar.rooms.worker.REFRESH_MS", 20)
    name = new_room_name()
    store = f"unix://{redis_socket}"
    settings = Settings(
        store=store,
        secret_keys=["k" * 32],
        edge_listen=f"unix:{tmp_path}/e",
        ops_listen=f"unix:{tmp_path}/o",
        rooms={name: {"total_active_users": 1}},
        webhooks={
            "mailer": {"url": receiver.url, "events": ["called"]},
            "team": {"url": f"http://127.0.0.1:{free_port()}/x", "events": ["room_full"]},
        },
    )
    redis = connect(store, timeout_s=5)
    first, second = new_visitor(), new_visitor()
    async with running(settings, []) as rooms:
        room = rooms.get(name)
        while not await redis.exists(room_key(name, "calls")):
            await asyncio.sleep(0.01)
        await room.store.enter(first)
        await room.store.enter(second)
        await room.store.leave(first, why="unseen")
        await until(lambda: len(receiver.came) == 1, "the message")
    assert told(receiver) == [second]
    assert receiver.events == ["called"]
    await close(redis)
