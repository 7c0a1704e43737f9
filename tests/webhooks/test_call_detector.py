"""Messages about called visitors, from an event stream in Redis to a receiver."""

import json
import re
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.history.store.event_stream import EventStream
from sidecar.kit.errors import StoreError
from sidecar.rooms.redis_keys import cursor_key
from sidecar.rooms.settings import RoomSettings
from sidecar.visitors.model import Ticket
from sidecar.webhooks import calls as module
from sidecar.webhooks.calls import BATCH_SIZE, create_ticket
from sidecar.webhooks.messages import compose_message
from sidecar.webhooks.model import CalledVisitor, CallNotice
from sidecar.webhooks.settings import Webhook
from tests.support.receiver import Receiver, until
from tests.webhooks.world import make_world

URL = "https://shop.test"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text()


SETTINGS = {"total_active_users": 0, "claim_window": 30, "public_url": URL}


async def batches(world) -> list[str]:
    """Return the ids of the batches that are not enqueued yet."""
    fields = await world.redis.hkeys(world.key("calls"))
    return [name.decode() for name in fields if name != b"cursor"]


def told(receiver: Receiver) -> list[str]:
    """Return the visitors in all messages, in the order in which the messages came."""
    return [call["visitor"] for _, body in receiver.came for call in body["calls"]]


async def expect_call(world, replica, receiver: Receiver) -> None:
    """Call a visitor, and check that the first message has this call."""
    (visitor,) = await world.call_and_check()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]


@pytest.fixture
def world(world):
    world.settings = SETTINGS
    return world


@pytest.fixture
async def any_world(store_url, turn):
    """Create a world with each kind of store in turn."""
    async for world in make_world(store_url, turn, settings=SETTINGS):
        yield world


@pytest.fixture
def hook(receiver):
    return Webhook(url=receiver.url, secret="s" * 16, events=["called"])


# What is told.


async def test_a_call_is_told_once_by_one_of_two_replicas(any_world, receiver, hook):
    """The message has the visitor, the times of the call, and a link with the signed ticket."""
    world = any_world
    replicas = [world.replica(hook), world.replica(hook)]
    await world.seconds()
    (visitor,) = await world.call(1)
    called_ms = world.turn.now_ms
    for _ in range(4):
        await world.seconds()
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
    await world.seconds()
    assert await world.waiting() == []


async def test_the_link_lets_in_whoever_brings_its_ticket(world, receiver, hook):
    """The link claims the call like the visitor's own ticket. Claiming twice finds the same
    session."""
    replica = await world.start(hook)
    (visitor,) = await world.call_and_check()
    await until(lambda: told(receiver) == [visitor], "the message")
    token = receiver.came[0][1]["calls"][0]["claim_url"].partition("?token=")[2]
    for ticket in (replica.room.tokens.read_claim(token), world.tickets[visitor]):
        answer = await replica.room.check(ticket, may_join=False)
        assert (answer.state, answer.token.visitor) == ("admitted", visitor)
    assert (await replica.room.refresh()).active == 1


async def test_without_the_sites_address_the_link_is_a_path(world, receiver, hook):
    """The receiver knows the address of the site."""
    world.settings = {**SETTINGS, "public_url": None}
    await world.start(hook)
    await world.call_and_check()
    await until(lambda: len(receiver.came) == 1, "the message")
    path = receiver.came[0][1]["calls"][0]["claim_url"]
    assert path.startswith(f"/_waitroom/{world.name}/claim?token=c~")


async def test_a_message_has_a_hundred_calls_at_most(world, receiver, hook):
    """All calls are in messages, in their order, and none comes twice."""
    replica = await world.start(hook)
    visitors = await world.call_and_check(2 * BATCH_SIZE + 50)
    await until(lambda: replica.counted("delivered") == len(visitors), "all messages")
    assert [len(body["calls"]) for _, body in receiver.came] == [BATCH_SIZE, BATCH_SIZE, 50]
    assert sorted(told(receiver)) == sorted(visitors)
    assert len(set(receiver.ids)) == 3


async def test_who_came_before_the_message_was_made_is_not_in_it(world, receiver, hook):
    """Visitors who left or whose call has expired are not in the message either."""
    replica = await world.start(hook)
    late, came, left, waits = await world.call(4)
    await world.redis.zadd(world.key("active"), {late: world.turn.now_ms + 500})
    await replica.room.check(world.tickets[came], may_join=False)
    await world.store.leave(left)
    await world.seconds()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [waits]
    assert (replica.counted("came"), replica.counted("over")) == (1, 2)


async def test_what_was_called_before_anybody_asked_is_not_told(world, receiver, hook):
    """The first check of a room begins at the end of its stream."""
    replica = world.replica(hook)
    await world.call_and_check(3)
    await expect_call(world, replica, receiver)


async def test_each_webhook_is_told_of_its_rooms(world, receiver, hook):
    """A webhook about another room gets no message, and does not cause checks of this room."""
    elsewhere = Webhook(url="http://127.0.0.1:1/x", events=["called"], rooms=["another"])
    await world.start(elsewhere)
    assert await world.redis.exists(world.key("calls")) == 0
    replica = world.replica(elsewhere, hook)
    await world.seconds(1, replica)
    await world.call(1)
    await world.seconds(1, replica)
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert replica.counted("failed") == 0


# Once, whoever sends.


async def test_a_replica_that_dies_before_it_enqueues_loses_nothing(world, receiver, hook):
    """The next replica enqueues the stored batches with the same ids, and later calls after
    them."""
    first = await world.start(hook)
    visitors = await world.call(2)

    async def die(*_):
        raise ZeroDivisionError

    first.call_detector.enqueue = die
    with pytest.raises(ZeroDivisionError):
        await world.seconds()
    noted = await batches(world)
    await world.leases_run_out()
    (late,) = await world.call(1)
    heir = world.replica(hook)
    for _ in range(3):
        await world.seconds(1, heir)
    await until(lambda: heir.counted("delivered") == 3, "both messages")
    assert (receiver.ids[:1], told(receiver)) == (noted, [*visitors, late])
    assert await batches(world) == []


async def test_a_replica_that_dies_between_reading_and_noting_loses_nothing(world, receiver, hook):
    """Nothing was sent, and the next replica reads the same calls."""
    first = await world.start(hook)
    visitors = await world.call(2)
    save = first.call_detector.save_batches

    async def die(*_):
        raise StoreError("gone")

    first.call_detector.save_batches = die
    with capture_logs() as logs:
        await world.seconds()
    assert [line["event"] for line in logs] == ["calls_failed"]
    assert (receiver.came, await world.waiting()) == ([], [])
    heir = await world.start_heir(hook)
    await until(lambda: heir.counted("delivered") == 2, "the message")
    await world.seconds(1, heir)
    # I expect the first, when it has its turn again, to go on from there.
    first.call_detector.save_batches = save
    await world.leases_run_out()
    await world.seconds(1, first)
    await world.seconds(1, first)
    assert told(receiver) == visitors


async def test_two_that_read_at_once_enqueue_one(world, receiver, hook):
    """A slow replica may enqueue after it has lost its lease, but the message has the same id."""
    one, two = world.replica(hook), world.replica(hook)
    await world.seconds()
    await world.call(1)
    load = two.call_detector.load_batches
    before = await load(world.name)

    async def load_before(_):
        return before

    await world.seconds(1, one)
    two.call_detector.load_batches = load_before
    await world.leases_run_out()
    await world.seconds(1, two)
    two.call_detector.load_batches = load
    (visitor,) = await world.call(1)
    await world.seconds(1, two)
    # The first message came twice if it had been delivered before the second replica enqueued it.
    await until(lambda: visitor in told(receiver), "the next")
    assert told(receiver)[-1] == visitor
    assert len(set(receiver.ids)) == 2


async def test_what_nobody_needs_any_more_is_not_sent_at_all(world, receiver, hook):
    """A message whose visitors were all admitted is deleted."""
    replica = await world.start(hook)
    (came,) = await world.call(1)
    await replica.room.check(world.tickets[came], may_join=False)
    await world.seconds()
    await replica.settled()
    assert (receiver.came, await world.states()) == ([], {})
    assert replica.counted("came") == 1


async def test_a_message_is_tried_until_the_turn_is_over(world, receiver, hook):
    """When its calls have expired the message fails, and the next message is sent."""
    receiver.answers = [503] * 4
    world.hurries = True
    replica = await world.start(hook)
    await world.call_and_check()
    await replica.settled()  # it leaves its queue, and the next check tries it again
    await replica.send()
    await until(lambda: replica.counted("failed") == 1, "the end of trying")
    # The turn lasts for half a minute and a poll: pauses of 1, 4 and 16 s fit in.
    assert 2 <= len(receiver.came) <= 4
    assert len(set(receiver.ids)) == 1
    receiver.answers = []
    (visitor,) = await world.call_and_check()
    await until(lambda: replica.counted("delivered") == 1, "the next")
    assert told(receiver)[-1] == visitor


async def test_who_comes_before_a_retry_is_not_in_it(world, receiver, hook):
    """Each call is counted once, by its final result."""
    receiver.answers = [503]
    replica = await world.start(hook)
    came, waits = await world.call_and_check(2)
    await until(lambda: len(receiver.came) == 1, "the first try")
    await replica.room.check(world.tickets[came], may_join=False)
    for _ in range(2):
        await world.seconds()
    await until(lambda: replica.counted("delivered") == 1, "the retry")
    assert told(receiver) == [came, waits, waits]
    assert (replica.counted("came"), replica.counted("failed")) == (1, 0)


async def test_too_many_that_cannot_be_enqueued_drop_the_oldest(monkeypatch, world, receiver, hook):
    """While Redis refuses messages, each dropped message is counted and logged once."""
    monkeypatch.setattr(module, "UNSENT_LIMIT", 2)
    replica = await world.start(hook)

    async def fail(*_):
        raise StoreError("away")

    detector = replica.call_detector
    with monkeypatch.context() as away, capture_logs() as logs:
        away.setattr(detector, "enqueue", fail)
        visitors = []
        for _ in range(4):
            visitors += await world.call_and_check()
    assert replica.counted("dropped") == 2
    assert [line["event"] for line in logs if "dropped" in line["event"]] == ["calls_dropped"] * 2
    await world.seconds()
    await until(lambda: replica.counted("delivered") == 2, "the others")
    assert told(receiver) == visitors[2:]


# Streams that are trimmed, and stores that are emptied.


async def test_a_stream_that_was_trimmed_is_said_and_gone_on_with(world, receiver, hook):
    """The number of lost calls is logged and counted, and later calls are sent."""
    replica = world.replica(hook)
    await world.call_and_check()
    await world.call(3)
    await world.redis.xtrim(world.key("events"), maxlen=0, approximate=False)
    (visitor,) = await world.call(1)
    with capture_logs() as logs:
        await world.seconds()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    assert [(line["event"], line["calls"]) for line in logs if "lost" in line["event"]] == [
        ("calls_lost", 3)
    ]
    with capture_logs() as logs:
        await world.seconds()
    assert (replica.counted("lost"), logs) == (3, [])


async def test_a_long_stream_is_read_in_pages(monkeypatch, world, receiver, hook):
    """A check reads a limited number of pages, and the next check reads the others."""
    monkeypatch.setattr(module, "PAGE_SIZE", 7)
    monkeypatch.setattr(module, "MAX_PAGES", 3)
    replica = await world.start(hook)
    visitors = await world.call(20)  # and as many events of joining
    for _ in range(3):
        await world.seconds()
    await until(lambda: replica.counted("delivered") == 20, "all")
    assert sorted(told(receiver)) == sorted(visitors)
    assert replica.counted("lost") == 0


async def test_a_store_that_was_emptied_is_read_from_its_beginning(world, receiver, hook):
    """A replica that ran before knows that all events are new."""
    world.settings = {**SETTINGS, "recovery_window": 0}
    replica = world.replica(hook)
    await world.arrive(3)
    await world.seconds()
    await world.redis.delete(*[key async for key in world.redis.scan_iter(world.key("*"))])
    await expect_call(world, replica, receiver)
    assert replica.counted("lost") == 0


async def test_the_recorder_leaves_what_is_not_read_yet(world, receiver, hook):
    """The recorder does not trim events before the calls are read. It trims them later even if
    there are no new events."""
    replica = world.replica(hook)
    stream = EventStream(world.redis, world.name, owner="me", timeout_s=5)
    await world.call_and_check()
    await world.seconds()
    (visitor,) = await world.call(1)
    written = (await stream.read(100)).events
    await stream.acknowledge(written)
    left = [event.kind for event in written][-2:]
    assert left == ["joined", "called"]
    assert await world.redis.xlen(world.key("events")) == 2
    # I expect another recorder, which knows nothing of it, to find nothing to write.
    other = EventStream(world.redis, world.name, owner="other", timeout_s=5)
    assert (await other.read(100)).events == []
    await world.seconds()
    await world.seconds()
    await until(lambda: replica.counted("delivered") == 1, "the message")
    assert told(receiver) == [visitor]
    assert (await other.read(100)).events == []
    assert await world.redis.xlen(world.key("events")) == 0
    (again,) = await world.call_and_check()
    await until(lambda: told(receiver) == [visitor, again], "the next")
    assert replica.counted("lost") == 0


async def test_a_reader_that_is_gone_holds_the_recorder_for_a_minute_only(world, hook):
    """A webhook that was removed from the settings must not fill Redis."""
    await world.start(hook)
    await world.seconds()
    assert 0 < await world.redis.ttl(cursor_key(world.name)) <= 60
    assert 0 < await world.redis.ttl(world.key("calls")) <= 3 * 3600
    await world.call(1)
    await world.redis.delete(cursor_key(world.name))
    stream = EventStream(world.redis, world.name, owner="me", timeout_s=5)
    await stream.acknowledge((await stream.read(100)).events)
    assert await world.redis.xlen(world.key("events")) == 0


async def test_what_another_version_noted_is_no_error(world, receiver, hook):
    """Reading begins again at the end of the stream."""
    replica = world.replica(hook)
    key = world.key("calls")
    await world.redis.hset(key, mapping={"cursor": '{"until": 7}', "x": "[]", "y": '{"calls": 1}'})
    await world.seconds()
    await expect_call(world, replica, receiver)
    await world.seconds()
    assert await world.waiting() == []


# By itself.


def test_a_ticket_is_made_of_what_the_call_says():
    """A part that the event does not have is computed from the time of the call. If Redis is
    emptied, the visitor is then behind those who waited at this time."""
    settings = RoomSettings(total_active_users=1)
    full = CalledVisitor("v" * 22, called_ms=9_000, order=5_000_000, joined_ms=4_000)
    assert create_ticket(full, settings, epoch=3) == Ticket("v" * 22, 5_000_000, 4_000, 3)
    order_only = CalledVisitor("v" * 22, called_ms=9_000, order=5_000_000)
    assert create_ticket(order_only, settings, epoch=3) == Ticket("v" * 22, 5_000_000, 5_000, 3)
    drawn = CalledVisitor("v" * 22, called_ms=9_000, order=-5)
    assert create_ticket(drawn, settings, epoch=3) == Ticket("v" * 22, -5, 9_000, 3)
    random = settings.with_overrides({"queueing_method": "random"})
    assert create_ticket(order_only, random, epoch=3).joined_ms == 9_000
    nothing = CalledVisitor("v" * 22, called_ms=9_000)
    assert create_ticket(nothing, settings, epoch=3) == Ticket("v" * 22, 9_000_000, 9_000, 3)


def test_the_docs_show_the_body():
    """The example on the page has the keys of a message, which is signed."""
    shown = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    invited = CalledVisitor("v" * 22, 1_000, 31_000, "/_waitroom/shop/claim?token=c~")
    webhook = Webhook(url=URL, secret="s" * 16, events=["called"])
    message = compose_message(webhook, CallNotice("n1", "shop", 1_000, (invited,)), now_s=1)
    sent = json.loads(message.body)
    assert list(shown[1]) == list(sent)
    assert list(shown[1]["calls"][0]) == list(sent["calls"][0])
    assert sent["calls"][0]["claim_before"] == "1970-01-01T00:00:31.000+00:00"
    assert message.headers["X-Waitroom-Signature"].startswith("t=1,v1=")
