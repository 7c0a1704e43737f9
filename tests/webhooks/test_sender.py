"""The sender of a webhook, with replicas that are killed at the worst moments."""

import asyncio
import time
from base64 import b64encode
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from sidecar.storage.redis.connect import connect
from sidecar.storage.redis.leader_lease import LeaderLease
from sidecar.webhooks import deliveries as kept
from sidecar.webhooks.deliveries import STORED_S, Delivery, QueueHead
from sidecar.webhooks.model import CalledVisitor, CallNotice, Notice, create_test_notice
from sidecar.webhooks.redaction import redact_response
from sidecar.webhooks.redis_keys import webhook_key
from sidecar.webhooks.retry import EXPIRY_S, SCHEDULE
from sidecar.webhooks.sender import send_notice
from sidecar.webhooks.settings import Webhook
from tests.support.processes import free_port
from tests.support.receiver import Receiver, run_flood, until

#: Secrets of Standard Webhooks: the base64 of 24 to 64 bytes.
NEW, OLD = ("whsec_" + b64encode(byte * 32).decode() for byte in (b"n", b"o"))
NOW_MS = create_test_notice("shop", 1).at_ms


@pytest.fixture(autouse=True)
def now(turn):
    """Set the test's time to that of Redis, by which scripts delete old messages."""
    turn.now_ms = NOW_MS


@pytest.fixture
def store(world):
    return world.deliveries()


@pytest.fixture
async def quick():
    quick = await Receiver().start()
    yield quick
    await quick.stop()


def hook(receiver) -> Webhook:
    return Webhook(url=receiver.url, secret="secret-that-nobody-sees")


def notice(id_: str | int = 1, at_ms: int = NOW_MS) -> Notice:
    id_ = f"n{id_}" if isinstance(id_, int) else id_
    return Notice(id_, "room_full", "shop", at_ms, waiting=1, active=1, cap=1)


async def enqueue(store, *numbers: int) -> None:
    for number in numbers:
        await store.enqueue(notice(number))


async def settle(store, each, state="failed", **more) -> None:
    """Store a result as the sender does."""
    delivery = Delivery(each, 8, **more)
    await store.enqueue(each)
    await store.settle(QueueHead(each.id, delivery, "", 0), delivery, state)


async def fail(store, *ids: str) -> None:
    for id_ in ids:
        await settle(store, notice(id_), reason="HTTP 503", status=503)


async def one(store, id_: str = "n1") -> Delivery:
    return (await store.find([id_]))[id_]


async def until_attempted(store) -> None:
    while (await one(store)).attempts == 0:
        await asyncio.sleep(0.005)


async def requests(world) -> list[str]:
    """Return the operators whose requests are not finished."""
    values = await world.redis.hvals(webhook_key(world.hook(), "resends"))
    return [value.decode().partition(" ")[2] for value in values]


async def send_first(replica, receiver) -> None:
    """Send until the receiver has one message."""
    await replica.send()
    await until(lambda: len(receiver.came) == 1, "the message")


async def finish(replica) -> None:
    """Send all messages that are due, also those that leave their queue meanwhile."""
    for _ in range(2):
        await replica.send()
        await replica.settled()


# The queue.


@pytest.mark.parametrize(
    ("secret", "shared"),
    [(NEW, NEW), ("sixteen letters!", "whsec_" + b64encode(b"sixteen letters!").decode())],
)
async def test_the_library_of_standard_webhooks_accepts_each_try(
    world, store, receiver, secret, shared
):
    """With a secret of that standard, and with any other as whsec_ and its base64. The id stays."""
    receiver.answers = [500, 502]
    world.hurries = True
    await enqueue(store, 1, 2)
    await finish(world.replica(Webhook(url=receiver.url, secret=secret)))
    assert receiver.ids == ["n1"] * 3 + ["n2"]
    assert [headers["webhook-id"] for headers, _ in receiver.came] == receiver.ids
    assert receiver.find_genuine(shared) == [True] * 4
    assert receiver.find_genuine(OLD) == [False] * 4


async def test_two_secrets_sign_during_a_rotation(world, store, receiver):
    """A receiver that has the old secret accepts a message, and so does one that has the new."""
    await enqueue(store, 1)
    settings = Webhook(url=receiver.url, secret=NEW, previous_secret=OLD)
    await finish(world.replica(settings))
    assert receiver.find_genuine(NEW) == receiver.find_genuine(OLD) == [True]
    assert receiver.find_genuine("whsec_" + b64encode(b"x" * 32).decode()) == [False]


async def test_it_is_tried_again_with_growing_pauses(world, store, receiver):
    """The messages stay in order until the first has failed three times. The receiver can ask for a
    longer pause."""
    receiver.answers = [500, 502, (429, {"Retry-After": "77"}), 200]
    world.hurries = True
    replica = world.replica(hook(receiver))
    await enqueue(store, 1, 2)
    with capture_logs() as logs:
        await finish(replica)
    assert receiver.ids == ["n1"] * 3 + ["n2", "n1"]
    pauses = [line["in_s"] for line in logs if line["event"] == "webhook_retried"]
    assert 0.8 <= pauses[0] <= 1
    assert 3.2 <= pauses[1] <= 4
    assert pauses[2:] == [77]
    assert sum(pauses) - 0.2 <= (world.turn.now_ms - NOW_MS) / 1000 <= sum(pauses) + 1
    assert await world.states() == {"n1": "delivered", "n2": "delivered"}
    assert ((await one(store)).attempts, (await one(store)).status) == (4, 200)


async def test_one_that_is_never_taken_holds_the_others_up_for_three_attempts(
    world, store, receiver
):
    """The others are sent between its attempts, in order, and it has all of its attempts."""
    receiver.answers = [503] * 3 + [200] * 2 + [503] * 9
    world.hurries = True
    replica = world.replica(hook(receiver))
    await enqueue(store, 1, 2, 3)
    await finish(replica)
    assert receiver.ids == ["n1"] * 3 + ["n2", "n3"] + ["n1"] * 5
    assert await world.states() == {"n1": "failed", "n2": "delivered", "n3": "delivered"}
    assert (await one(store)).attempts == SCHEDULE.attempts


async def test_a_receiver_that_takes_nothing_is_asked_less_often(world, store, receiver):
    """The first message that steps aside is followed by one that is tried once a minute, so that
    not all of them use up their attempts while the receiver is down."""
    receiver.answers = [503] * 99
    world.hurries = True
    replica = world.replica(hook(receiver))
    await enqueue(store, 1, 2, 3)
    with capture_logs() as logs:
        await replica.send()
        await until(lambda: len(receiver.came) >= 6, "the attempts of the second")
        replica.die()
    retried = [(line["id"], line["in_s"]) for line in logs if line["event"] == "webhook_retried"]
    pauses = [in_s for id_, in_s in retried if id_ == "n2"]
    assert [round(in_s) for id_, in_s in retried if id_ == "n1"][:3] <= [1, 4, 16]
    assert all(51 <= in_s <= 64 for in_s in pauses), retried
    assert len(pauses) >= 2


async def test_one_that_waits_for_its_fourth_attempt_is_there_once(world, store, receiver, quick):
    """It is not lost when its replica dies, is not enqueued again, and can be answered late."""
    receiver.answers = [None]
    slow = world.replica(hook(receiver))
    await enqueue(store, 1)
    await send_first(slow, receiver)
    await world.leases_run_out()
    quick.answers = [503] * 3
    world.hurries = True
    heir = world.replica(hook(quick))
    await heir.send()
    await until(lambda: len(quick.came) == 3, "its third attempt")
    world.hurries = False
    while await world.redis.zcard(webhook_key(world.hook(), "retries")) == 0:
        await asyncio.sleep(0.005)
    heir.die()
    await enqueue(store, 1)
    assert await world.states() == {"n1": "waiting"}
    assert await world.redis.zcard(webhook_key(world.hook(), "events")) == 0
    # The first replica has lost its lease, and its attempt succeeds after all.
    receiver.let_go()
    await slow.settled()
    assert await world.states() == {"n1": "delivered"}
    await world.leases_run_out()
    await finish(world.replica(hook(quick)))
    assert (receiver.ids, quick.ids) == (["n1"], ["n1"] * 3)


async def test_a_webhook_says_since_when_nothing_is_delivered(world, store, receiver):
    """After three failed attempts in a row, of whichever messages, and until one is delivered."""
    receiver.answers = [503, 503, 200, 503, 503, 503, 200]
    world.hurries = True
    replica = world.replica(hook(receiver))
    webhook, states = replica.senders[0].webhook, []
    labels = {"webhook": webhook.name}

    async def read() -> tuple[str, float]:
        """Return the state, and by the metrics since when nothing is delivered."""
        replica.senders[0]._checks = 0  # the metrics are updated now
        await finish(replica)
        value = replica.metrics.registry.get_sample_value
        since = value("waitroom_webhook_failing_since_timestamp_seconds", labels)
        return (await webhook.read_health()).state, since

    real = webhook.deliveries.settle

    async def settle_and_look(*result) -> None:
        await real(*result)
        states.append((await webhook.read_health()).state)

    assert await read() == ("unused", 0)
    object.__setattr__(webhook.deliveries, "settle", settle_and_look)
    began_ms = time.time() * 1000
    await enqueue(store, 1)
    await finish(replica)
    assert states == ["retrying", "retrying", "delivers"]
    await enqueue(store, 2, 3)
    await replica.send()
    await until(lambda: len(states) >= 6, "three failed attempts")
    assert states[3:6] == ["retrying", "retrying", "failing"]
    await finish(replica)
    assert await read() == ("delivers", 0)
    # What is given up at once is not delivered either.
    receiver.answers = [404]
    await enqueue(store, 4)
    await finish(replica)
    found = await webhook.read_health()
    assert found.state == "failing"
    assert began_ms <= found.failing_since_ms <= time.time() * 1000


async def test_the_metrics_name_a_webhook_that_delivers_nothing(world, store, receiver):
    """With the age of the oldest message that waits. What an operator resends is not late."""
    receiver.answers = [503] * 99
    replica = world.replica(hook(receiver))
    (sender,) = replica.senders
    await store.enqueue(notice(1, NOW_MS - 90_000))
    world.hurries = True
    await replica.send()
    while (await one(store)).attempts < 3:
        await asyncio.sleep(0.005)
    await settle(store, notice(9, NOW_MS - 86_400_000))
    await store.resend(["n9"], by="Ann")
    sender._checks = 0
    await sender.check_queues()
    value = replica.metrics.registry.get_sample_value
    labels = {"webhook": world.hook()}
    assert 90 <= value("waitroom_webhook_lag_seconds", labels) < 300
    since_s = value("waitroom_webhook_failing_since_timestamp_seconds", labels)
    assert NOW_MS / 1000 - 1 <= since_s <= time.time()


@pytest.mark.parametrize("answer", [400, 404, 410, (307, {"Location": "/elsewhere"})])
async def test_what_is_refused_is_not_tried_again(world, store, receiver, answer):
    """A redirect is not followed, and the next message is sent."""
    receiver.answers = [answer]
    replica = world.replica(hook(receiver))
    await enqueue(store, 1, 2)
    await finish(replica)
    assert await world.states() == {"n1": "failed", "n2": "delivered"}
    assert len(receiver.came) == 2


async def test_it_gives_up(world, store, receiver):
    """A message fails after eight attempts, which take a quarter of an hour. The last result is
    stored, and attempts before a crash count."""
    receiver.answers = [503] * SCHEDULE.attempts
    replica = world.replica(hook(receiver))
    await enqueue(store, 1)
    await send_first(replica, receiver)
    await until_attempted(store)
    replica.die()
    await world.leases_run_out()
    world.hurries = True
    await finish(world.replica(hook(receiver)))
    assert len(receiver.came) == SCHEDULE.attempts == 8
    assert 600_000 < world.turn.now_ms - NOW_MS < 1_000_000
    assert await world.states() == {"n1": "failed"}
    found = await one(store)
    assert (found.attempts, found.status, found.reason) == (8, 503, "HTTP 503")


async def test_what_is_old_is_not_sent(world, store, receiver):
    """A message expires after an hour. A retry after this time is not waited for."""
    receiver.answers = [(503, {"Retry-After": "7200"})]
    replica = world.replica(hook(receiver))
    for number, age_s in enumerate((0, EXPIRY_S, EXPIRY_S - 10), start=1):
        await store.enqueue(notice(number, NOW_MS - age_s * 1000))
    await finish(replica)
    assert await world.states() == {"n1": "failed", "n2": "failed", "n3": "delivered"}
    assert receiver.ids == ["n1", "n3"]
    assert (await one(store, "n2")).reason == "too old"


async def test_too_many_drop_the_oldest(monkeypatch, world, store, receiver):
    """The message that is being sent stays. The oldest behind it is dropped and counted."""
    monkeypatch.setattr(kept, "QUEUE_LIMIT", 3)
    receiver.answers = [None]
    replica = world.replica(hook(receiver))
    (sender,) = replica.senders
    await sender.webhook.enqueue(notice(0))
    await send_first(replica, receiver)
    with capture_logs() as logs:
        for number in range(1, 6):
            await sender.webhook.enqueue(notice(number))
    dropped = [(line["id"], line["reason"]) for line in logs if line["event"] == "webhook_dropped"]
    assert dropped == [("n1", "too many wait"), ("n2", "too many wait")]
    labels = {"room": "shop", "event": "room_full", "result": "dropped"}
    assert replica.metrics.registry.get_sample_value("waitroom_webhooks_total", labels) == 2
    receiver.let_go()
    await replica.settled()
    assert receiver.ids == ["n0", "n3", "n4", "n5"]
    assert {i for i, state in (await world.states()).items() if state == "failed"} == {"n1", "n2"}


async def test_interim_responses_without_end(world, store):
    """Are a failure of the message, said in words, and no wait for the time limit."""
    with run_flood(b"HTTP/1.1 103 Early Hints\r\n\r\n") as url:
        replica = world.replica(Webhook(url=url))
        await enqueue(store, 1)
        await replica.send()
        await until_attempted(store)
    assert "interim responses" in (await one(store)).reason
    replica.die()


async def test_one_that_hangs_delays_no_other(world, receiver, quick):
    """A receiver that hangs delays neither other receivers nor its own calls and resent
    messages."""
    receiver.answers = [None]
    replica = world.replica(hook(receiver), hook(quick))
    for number in (0, 1):
        for id_ in (1, 2):
            await world.deliveries(number).enqueue(notice(id_))
    await replica.send()
    await until(lambda: len(receiver.came) == 1, "one that is not answered")
    await until(lambda: quick.ids == ["n1", "n2"], "both of the other")
    test = create_test_notice("shop", 1)
    await world.deliveries().add(test, by="Ann")
    await replica.send()
    await until(lambda: receiver.ids == ["n1", test.id], "the test")


async def test_what_is_enqueued_twice_is_sent_once(world, store, receiver):
    """This holds while the message waits, after its result, and while an operator resends it."""
    replica = world.replica(hook(receiver))
    for _ in range(2):
        await enqueue(store, 1)
    await finish(replica)
    await fail(store, "n2")
    await store.resend(["n2"], by="Ann")
    await enqueue(store, 1, 2)
    await finish(replica)
    assert receiver.ids == ["n1", "n2"]
    await fail(store, "n3")
    await enqueue(store, 3)
    await finish(replica)
    assert receiver.ids == ["n1", "n2"]


async def test_what_cannot_be_settled_is_settled_later(world, store, tmp_path, receiver):
    """The message is sent and counted once."""
    receiver.answers = [None]
    replica = world.replica(hook(receiver))
    (sender,) = replica.senders
    await enqueue(store, 1)
    await send_first(replica, receiver)
    gone = connect(f"unix://{tmp_path}/none.sock", timeout_s=1)
    deliveries = sender.webhook.deliveries
    deliveries._redis, real = gone, deliveries._redis
    with capture_logs() as logs:
        receiver.let_go()
        await until(lambda: "deliveries_not_saved" in str(logs), "the failure")
    assert {line["event"] for line in logs} == {"webhook_delivered", "deliveries_not_saved"}
    assert await world.states() == {"n1": "waiting"}
    deliveries._redis = real
    await replica.settled()
    await finish(replica)
    assert (await world.states(), (await one(store)).attempts) == ({"n1": "delivered"}, 1)
    assert len(receiver.came) == 1


async def test_a_replica_that_lost_its_lease_settles_nothing_twice(world, store, receiver, quick):
    """The next replica sends the message again with the same id. The first replica sends no other
    message, and its late result is ignored."""
    receiver.answers = [None, 200]
    slow = world.replica(hook(receiver))
    await enqueue(store, 1, 2)
    await send_first(slow, receiver)
    await world.leases_run_out()
    heir = world.replica(hook(quick))
    await finish(heir)
    assert quick.ids == ["n1", "n2"]
    assert set((await world.states()).values()) == {"delivered"}
    await enqueue(store, 3)
    receiver.let_go()
    await slow.settled()
    await finish(slow)
    assert receiver.ids == ["n1"]
    assert (await one(store)).attempts == 1


async def test_what_another_version_wrote_stops_nothing(world, store, receiver):
    """A message that cannot be read is deleted. A waiting message that is in no queue fails after a
    time."""
    await enqueue(store, 1, 2)
    await world.redis.hset(webhook_key(world.hook(), "deliveries"), "n1", '{"notice": 1}')
    long_ago = notice(3, NOW_MS - 3 * 3_600_000)
    keys = [webhook_key(world.hook(), name) for name in ("deliveries", "waiting")]
    await world.redis.hset(keys[0], "n3", Delivery(long_ago).to_json())
    await world.redis.zadd(keys[1], {"n3": long_ago.at_ms})
    await finish(world.replica(hook(receiver)))
    assert receiver.ids == ["n2"]
    assert await world.states() == {"n2": "delivered", "n3": "failed"}


# What an operator sends again.


async def test_two_operators_who_press_together_send_one(world, store, receiver):
    """A request has no effect while the message waits, or if the operator saw an older result."""
    await fail(store, "n1")
    replies = await asyncio.gather(
        store.resend(["n1"], by="Ann", attempts=8), store.resend(["n1"], by="Ben", attempts=8)
    )
    assert sorted(each[0] for each in replies) == ["queued", "waiting"]
    receiver.answers = [None]
    replica = world.replica(hook(receiver))
    await send_first(replica, receiver)
    assert await store.resend(["n1"], by="Eve") == ["waiting"]
    receiver.let_go()
    await replica.settled()
    assert await store.resend(["n1"], by="Eve", attempts=8) == ["changed"]
    await finish(replica)
    assert receiver.ids == ["n1"]
    found = await one(store)
    assert (await world.states(), found.attempts, found.status) == ({"n1": "delivered"}, 9, 200)
    assert found.resent_by in {"Ann", "Ben"}
    # Who has seen that it was delivered may want it once more all the same.
    assert await store.resend(["n1"], by="Eve", attempts=9) == ["queued"]
    await finish(replica)
    assert receiver.ids == ["n1", "n1"]


async def test_two_replicas_send_one(world, store, receiver):
    """The replica with the leader lease sends, the oldest message first."""
    first, second = world.replica(hook(receiver)), world.replica(hook(receiver))
    ids = [f"n{number}" for number in range(10, 22)]
    for number, id_ in enumerate(ids):
        await settle(store, notice(id_, NOW_MS + number))
    await store.resend(await store.list_failed(), by="Ann")
    for replica in (first, second):
        await replica.send()
    for replica in (first, second):
        await replica.settled()
    assert receiver.ids == ids
    assert set((await world.states()).values()) == {"delivered"}


@pytest.mark.parametrize("is_sent", [False, True])
async def test_a_crash_between_sending_and_settling_loses_nothing(world, store, receiver, is_sent):
    """The next replica sends the message once more, with the same id."""
    await fail(store, "n1")
    await store.resend(["n1"], by="Ann")
    first = world.replica(hook(receiver))
    receiver.answers = [None] * is_sent
    if is_sent:
        await send_first(first, receiver)
    else:
        await first.senders[0]._lease.hold(milliseconds=600_000)
    first.die()
    heir = world.replica(hook(receiver))
    await finish(heir)
    assert receiver.ids == ["n1"] * is_sent
    await world.leases_run_out()
    for _ in range(3):
        await finish(heir)
    assert await world.states() == {"n1": "delivered"}
    assert receiver.ids == ["n1"] * (1 + is_sent)


async def test_a_slow_replica_ends_no_later_request(world, store):
    """A replica that lost its lease ends the request that it had, and no later request."""
    await fail(store, "n1")
    await store.resend(["n1"], by="Ann")
    lease = LeaderLease(
        store._redis, webhook_key(world.hook(), "resending"), owner="a", timeout_s=5
    )
    await lease.hold(milliseconds=600_000)
    head = await store.read_head("resends", owner="a")
    await store.settle(head, head.delivery, "delivered")
    await store.resend(["n1"], by="Ben")
    await store.settle(head, head.delivery, "delivered")
    # Nor does what the queue's sender had to say.
    await store.settle(replace(head, resend_request=""), head.delivery, "failed")
    assert (await requests(world), await world.states()) == (["Ben"], {"n1": "waiting"})


async def test_it_is_one_attempt_whose_answer_is_kept(world, store, receiver):
    """The message has the same id. It is not retried, so that the operator sees the result."""
    receiver.answers = [503]
    await fail(store, "n1")
    await store.resend(["n1"], by="Ann")
    await finish(world.replica(hook(receiver)))
    found = await one(store)
    assert (await world.states(), found.attempts, receiver.ids) == ({"n1": "failed"}, 9, ["n1"])
    assert (found.status, found.reason, found.resent_by) == (503, "HTTP 503", "Ann")


async def test_calls_that_are_over_are_not_sent_again(world, store, receiver):
    """The message fails with a reason."""
    replica = world.replica(hook(receiver))
    await replica.check()
    called = CallNotice("c1", world.name, NOW_MS, (CalledVisitor("v" * 22, 1, 2),))
    await settle(store, called)
    await store.resend(["c1"], by="Ann")
    await finish(replica)
    assert (await world.states(), receiver.came) == ({"c1": "failed"}, [])
    assert (await one(store, "c1")).reason.startswith("not sent: its calls are over")


async def test_calls_are_sent_again_to_those_who_may_still_come(world, store, receiver):
    """The message has a new link, which is not stored."""
    replica = world.replica(hook(receiver))
    (gone,) = await world.arrive()
    (here,) = await world.arrive()
    await world.store.leave(gone)
    world.turn.forward(6)  # the slot is free
    await world.store.sweep()
    await replica.room.refresh()
    calls = (CalledVisitor(here, NOW_MS, 2), CalledVisitor(gone, 1, 2))
    await settle(store, CallNotice("c1", world.name, NOW_MS, calls))
    await store.resend(["c1"], by="Ann")
    await finish(replica)
    (call,) = receiver.came[0][1]["calls"]
    assert call["visitor"] == here
    assert call["claim_url"].startswith(f"/_waitroom/{world.name}/claim?token=")
    assert "claim?token" not in (await one(store, "c1")).to_json()


# What is kept.


async def test_bounds(monkeypatch, world, store):
    """The oldest failed and the oldest delivered messages are deleted, and after a week all."""
    monkeypatch.setattr(kept, "DELIVERED_LIMIT", 3)
    monkeypatch.setattr(kept, "FAILED_LIMIT", 5)
    for number in range(20):
        state, id_ = "failed" if number % 2 else "delivered", f"n{number:02}"
        await settle(store, notice(id_, NOW_MS + number), state)
    latest = ["n19", "n18", "n17", "n16", "n15", "n14", "n13", "n11"]
    assert [*await world.states()] == latest
    assert await world.redis.hlen(webhook_key(world.hook(), "deliveries")) == len(latest)
    page = await store.read_page(("failed",), start=1, limit=2)
    assert [found.notice.id for _, found in page] == ["n17", "n15"]
    await settle(store, notice("old", NOW_MS - 8 * 86_400_000))
    assert "old" not in await world.states()
    for name in ("deliveries", "failed"):
        assert 0 < await world.redis.ttl(webhook_key(world.hook(), name)) <= STORED_S


def test_what_a_receiver_says_shows_no_secret():
    """The response is stored as one line of limited length."""
    url = "https://user:pass-word@chat.test/hook/T0KEN-a%2Fb?key=qu%C3%A9ry&x=1#frag"
    hook = Webhook(url=url, secret="s" * 16)
    said = f"Cannot POST {url}\n/hook/T0KEN-a%2Fb T0KEN-a/b quéry {'s' * 16} <b>no</b>\x00"
    text = redact_response(hook, said.encode() + b"\xff" + b"x" * 4000)
    assert not any(word in text for word in ("T0KEN", "qu", "pass-word", "ssss", "\n", "\x00"))
    assert text.startswith("Cannot POST …")
    assert "<b>no</b>" in text
    assert len(text) == 500


async def test_the_log_shows_no_address(world, receiver):
    """The log has the name and host of a webhook. Paths and queries of chats are secret."""
    receiver.answers = [404]
    closed = Webhook(url=f"http://127.0.0.1:{free_port()}/token-that-nobody-sees")
    replica = world.replica(closed, hook(receiver))
    world.hurries = True
    with capture_logs() as logs:
        for number in (0, 1):
            await world.deliveries(number).enqueue(notice())
        await finish(replica)
    retried = next(line for line in logs if line["event"] == "webhook_retried")
    assert (retried["webhook"], retried["host"]) == (world.hook(0), "127.0.0.1")
    assert retried["reason"].startswith("ClientConnectorError: ")
    failed = {line["webhook"]: line for line in logs if line["event"] == "webhook_failed"}
    assert failed[world.hook(1)]["reason"] == "HTTP 404"
    assert failed.keys() == {world.hook(0), world.hook(1)}
    assert "nobody-sees" not in str(logs)


@pytest.mark.parametrize("sent", [b"no http\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_garbage_is_an_answer_like_any(world, sent):
    """A response that is not HTTP causes a retry, and raises nothing."""

    async def talk(reader, writer):
        await reader.read(100)
        writer.write(sent)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hook = Webhook(url=f"http://127.0.0.1:{port}/token-that-nobody-sees")
    answer = await send_notice(world.session, hook, notice())
    assert (answer.is_taken, answer.may_retry) == (False, True)
    assert "nobody-sees" not in answer.reason
    server.close()
    await server.wait_closed()


async def test_a_host_that_cannot_be_one_is_no_crash(world):
    """The attempt fails with a reason."""
    for url in ("http://" + "a" * 64 + ".test/x", "http://a..b/x"):
        answer = await send_notice(world.session, Webhook(url=url), notice())
        assert not answer.is_taken
        assert answer.reason
