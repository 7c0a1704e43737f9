"""Messages about events of a room, from a room in Redis to a receiver."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from sidecar.app.replica import run_replica
from sidecar.rooms.redis_keys import leader_key, room_key
from sidecar.settings.model import Settings
from sidecar.storage.redis.connect import close, connect
from sidecar.visitors.tokens import new_visitor
from sidecar.webhooks.model import Notice
from sidecar.webhooks.settings import Webhook
from tests.support.receiver import until
from tests.support.rooms import new_room_name


async def unsent(world):
    """Return the messages of the room that are not enqueued yet."""
    return json.loads(await world.redis.get(world.key("notices")))["unsent"]


async def die(*_):
    raise ZeroDivisionError


async def test_two_replicas_send_one_event(world, receiver):
    """One of several replicas has the leases. Each event is sent once, with the room's numbers."""
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
    counted = [replica.counted("delivered", "queue_started") for replica in (first, second)]
    assert sorted(counted) == [0, 1]
    assert (await unsent(world), await world.waiting()) == ([], [])


async def test_a_replica_that_dies_before_it_enqueues_loses_nothing(world, receiver):
    """The next replica enqueues the messages that the first one stored."""
    hook = Webhook(url=receiver.url)
    first = await world.start(hook, seconds=2)
    first.room_detector.enqueue = die
    await world.arrive(2)
    with pytest.raises(ZeroDivisionError):
        await world.seconds(1)
    written = [each["notice"]["id"] for each in await unsent(world)]
    # I expect one that was enqueued by then to be sent once all the same.
    await world.deliveries().enqueue(Notice(**(await unsent(world))[0]["notice"]))
    assert (len(written), await world.waiting()) == (2, written[:1])
    first.die()
    heir = await world.start_heir(hook, seconds=2)
    await until(lambda: receiver.ids == written, "both")
    await heir.settled()
    assert (await unsent(world), await world.waiting()) == ([], [])


async def test_a_restart_goes_on_where_it_was(world, receiver):
    """The begin of a queue is not sent again. Its end is sent, although nobody checked in
    between."""
    hook = Webhook(url=receiver.url, events=["queue_started", "queue_empty"])
    await world.start(hook, seconds=2)
    await world.arrive(2)
    await world.seconds(2)
    await until(lambda: receiver.events == ["queue_started"], "the beginning")
    await world.replicas.pop().settled()
    await world.leases_run_out()
    world.turn.forward(20)
    await world.start(hook, seconds=5)
    assert receiver.events == ["queue_started"]
    await world.go(1)
    await world.seconds(12)
    await until(lambda: receiver.events == ["queue_started", "queue_empty"], "the end")


async def test_queue_over_follows_a_setting_that_changes(world, receiver):
    """notify_above can be changed at run time, as `waitroom rooms set` does."""
    replica = world.replica(Webhook(url=receiver.url, events=["queue_over"]))
    await world.arrive(4)
    await world.seconds(3)
    await replica.room.store.configure({"notify_above": 2})
    await world.seconds(2)
    await until(lambda: receiver.events == ["queue_over"], "the event")
    assert (receiver.came[0][1]["waiting"], receiver.came[0][1]["threshold"]) == (3, 2)


async def test_rooms_and_events_are_chosen(world, receiver):
    """A room that no webhook is about is not checked."""
    replica = await world.start(Webhook(url=receiver.url, rooms=["another"]), seconds=2)
    await world.arrive(2)
    await world.seconds(2)
    keys = room_key(world.name, "notices"), leader_key(world.name, "notifying")
    assert await world.redis.exists(*keys) == 0
    assert replica.counted("delivered", "queue_started") is None


async def test_a_webhook_that_is_gone_is_not_waited_for(world):
    """Messages to a webhook that was removed from the settings are deleted."""
    hook = Webhook(url="http://127.0.0.1:1/x")
    first = await world.start(hook, hook, sends=False, seconds=2)
    await world.arrive(2)
    first.room_detector.enqueue = die
    with pytest.raises(ZeroDivisionError):
        await world.seconds(1)
    assert {len(each["webhooks"]) for each in await unsent(world)} == {2}
    await world.start_heir(hook, sends=False)
    assert (await unsent(world), await world.waiting(1)) == ([], [])
    assert len(await world.waiting(0)) == 2


async def test_a_store_that_does_not_answer_is_tried_again(world, tmp_path, receiver):
    """A check raises nothing, and sends the event when Redis is available again."""
    replica = await world.start(Webhook(url=receiver.url, events=["room_full"]), seconds=2)
    await world.arrive(1)
    detector = replica.room_detector
    gone = connect(f"unix://{tmp_path}/none.sock", timeout_s=1)
    detector.redis, real = gone, detector.redis
    with capture_logs() as logs:
        await world.seconds(2)
    assert [line["event"] for line in logs] == ["notify_failed"] * 2
    detector.redis = real
    await world.seconds(1)
    await until(lambda: receiver.events == ["room_full"], "the event")
    await close(gone)


async def test_what_the_store_forgot_is_remembered(world, receiver):
    """The detector has a copy of the latches, so it sends the end of a queue after Redis was
    emptied."""
    await world.start(Webhook(url=receiver.url, events=["queue_started", "queue_empty"]), seconds=2)
    await world.arrive(2)
    await world.seconds(2)
    await world.redis.delete(room_key(world.name, "notices"), leader_key(world.name, "notifying"))
    await world.go(1)
    await world.seconds(12)
    await until(lambda: receiver.events == ["queue_started", "queue_empty"], "beginning and end")


async def test_a_replica_sends_what_its_settings_say(monkeypatch, redis_socket, tmp_path, receiver):
    """A replica whose settings name webhooks sends events and calls. It stops without waiting for a
    receiver that hangs, and logs how many messages wait."""
    monkeypatch.setattr("sidecar.webhooks.detector.CHECK_S", 0.02)
    monkeypatch.setattr("sidecar.webhooks.sender.CHECK_S", 0.02)
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
            f"team-{name}": {"url": receiver.url, "format": "slack"},
            f"mailer-{name}": {"url": receiver.url, "events": ["called"]},
        },
    )
    redis = connect(store, timeout_s=5)
    with capture_logs() as logs:
        async with run_replica(settings, []) as rooms:
            while await redis.exists(room_key(name, "notices"), room_key(name, "calls")) < 2:
                await asyncio.sleep(0.01)
            first, second = new_visitor(), new_visitor()
            for visitor in (first, second):
                await rooms.get(name).store.enter(visitor)
            await until(lambda: len(receiver.came) == 2, "two events")
            receiver.answers = [None]
            await rooms.get(name).store.leave(first, why="unseen")
            await until(lambda: len(receiver.came) == 3, "the call")
    assert sorted(receiver.events) == ["called", "queue_started", "room_full"]
    bodies = [body for headers, body in receiver.came if headers["X-Waitroom-Event"] != "called"]
    assert all(body["text"].startswith(f"Waitroom {name}: ") for body in bodies)
    (called,) = [body for body in (body for _, body in receiver.came) if "calls" in body]
    assert [call["visitor"] for call in called["calls"]] == [second]
    (left,) = [line for line in logs if line["event"] == "webhooks_undelivered"]
    assert (left["webhook"], left["count"]) == (f"mailer-{name}", 1)
    await close(redis)
