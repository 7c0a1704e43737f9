"""The event of a target whose queue is long: by sequences of checks, and by replicas that run."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from sidecar.kit.http_post import Message
from sidecar.webhooks.messages import compose_message, write_sentence
from sidecar.webhooks.model import Notice
from sidecar.webhooks.settings import Webhook
from sidecar.webhooks.target_events import TargetLatch, TargetQueue, detect_target_events
from tests.support.processes import wait_until
from tests.support.receiver import Receiver
from tests.support.site import ADMIN_TOKEN, call
from tests.support.works import JobSystem

START_MS = 1_800_000_000_000


class Watch:
    """Checks a target once a second, with the numbers that a test gives."""

    def __init__(self, above: int | None = 100) -> None:
        self.queue = TargetQueue("images", START_MS, 0, 3, 10, 90.4, above)
        self.latch: TargetLatch | None = None

    def check(self, seconds: int, waiting: int, **changes: int | None) -> list[Notice]:
        """Return the messages that these numbers cause in so many seconds."""
        notices = []
        for _ in range(seconds):
            now_ms = self.queue.now_ms + 1000
            self.queue = replace(self.queue, now_ms=now_ms, waiting=waiting, **changes)
            self.latch, found = detect_target_events(self.latch, self.queue)
            # Redis stores the latch.
            assert TargetLatch.read(self.latch.to_json()) == self.latch
            notices += found
        return notices


def test_a_queue_that_grows_is_told_once():
    """And again only after it was short, at most once a minute."""
    watch = Watch()
    assert watch.check(5, 100) == []
    [first] = watch.check(30, 101)
    assert (first.event, first.target, first.waiting) == ("target_queue_over", "images", 101)
    assert (first.threshold, first.active, first.cap, first.wait_seconds) == (100, 3, 10, 90)
    # I expect nothing while the number goes up and down around the threshold.
    assert [watch.check(1, waiting) for waiting in (100, 101, 80, 5000, 99, 101) * 20] == [[]] * 120
    assert watch.check(1, 79) == []
    [second] = watch.check(5, 101)
    assert second.id != first.id
    # It was long a moment ago: the next message comes a minute after the last one.
    assert watch.check(1, 0) == watch.check(50, 101) == []
    assert len(watch.check(20, 101)) == 1


def test_the_first_check_tells_nothing():
    """The queue may have been long for hours."""
    watch = Watch()
    assert watch.check(100, 500) == []
    assert watch.check(1, 0) == []
    assert len(watch.check(1, 500)) == 1


def test_a_threshold_that_changes_counts_from_then_on():
    watch = Watch(above=None)
    assert watch.check(10, 500) == []
    assert len(watch.check(10, 500, above=100)) == 1
    assert watch.check(100, 500, above=None) == []
    assert len(watch.check(10, 500, above=499)) == 1


def test_two_replicas_give_an_event_the_same_id():
    one, other = Watch(), Watch()
    one.check(1, 0)
    other.latch, other.queue = one.latch, one.queue
    assert one.check(1, 200) == other.check(1, 200) != []


def compose(notice: Notice, **settings: str) -> Message:
    webhook = Webhook(url="https://hooks.example/x", **settings)
    return compose_message(webhook, notice, now_s=START_MS / 1000)


def test_the_message_names_the_target():
    watch = Watch()
    watch.check(1, 0)
    [notice] = watch.check(1, 1204)
    assert json.loads(compose(notice).body) == {
        "id": notice.id, "event": "target_queue_over", "target": "images",
        "at": "2027-01-15T08:00:02.000+00:00", "waiting": 1204, "active": 3, "cap": 10,
        "wait_seconds": 90, "threshold": 100,
    }  # fmt: skip
    sentence = write_sentence(notice)
    assert sentence == (
        "Waitroom images: more than 100 jobs wait. 1,204 waiting, 3 of 10 called, wait about 90 s."
    )
    assert json.loads(compose(notice, format="slack").body) == {"text": sentence}


async def test_replicas_tell_of_a_long_queue_once():
    """Two of them, of a target that is paused. A target without a threshold is not told of, nor is
    a webhook that does not name the event."""
    receiver = await Receiver().start()
    try:
        listed = await asyncio.to_thread(submit_many, receiver)
    finally:
        await receiver.stop()
    [delivery] = listed["team"]["deliveries"]
    assert (delivery["event"], delivery["target"]) == ("target_queue_over", "held")
    assert (delivery["room"], listed["other"]["deliveries"]) == ("", [])
    [(headers, document)] = receiver.came
    assert headers["X-Waitroom-Event"] == "target_queue_over"
    assert (document["target"], document["threshold"]) == ("held", 3)
    assert 3 < document["waiting"] <= 9


def submit_many(receiver: Receiver) -> dict[str, Any]:
    """Submit jobs to targets with and without a threshold. Return the deliveries by webhook."""
    more = "\n".join(
        f'[webhooks.{name}]\nurl = "{receiver.url}"\n{events}'
        for name, events in (("team", 'events = ["target_queue_over"]'), ("other", ""))
    )
    targets = {"held": {"paused": True, "notify_above": 3}, "free": {"paused": True}}
    with JobSystem(targets, replicas=2, runners=0, more=more) as works:
        shop, key = works.caller("shop"), "waitroom:{webhook-targets}:notices"
        sent = [shop.submit(target="held", path="ok/1").id for _ in range(3)]
        wait_until(lambda: works.redis_cli("HLEN", key).strip() == "2", "the first checks")
        for name in ("held", "free"):
            sent += [shop.submit(target=name, path="ok/1").id for _ in range(6)]
        wait_until(lambda: bool(receiver.came), "the message")
        # I expect no second message: the queue stays around the threshold.
        for _ in range(2):
            shop.call("DELETE", f"/jobs/{sent.pop(0)}")
            shop.submit(target="held", path="ok/1")
        return {
            name: call("GET", f"{works.urls[1]}/admin/webhooks/{name}/deliveries", ADMIN_TOKEN)
            for name in ("team", "other")
        }
