"""What webhooks are told: over sequences of snapshots, in words, signed."""

import base64
import hashlib
import hmac
import itertools
import json
import re
import time
from pathlib import Path

import pytest

from sidecar.kit.http_post import judge
from sidecar.kit.retry import parse_retry_after
from sidecar.rooms.store.replies import Snapshot
from sidecar.webhooks.messages import compose, read_dingtalk, sentence
from sidecar.webhooks.model import Notice
from sidecar.webhooks.room_events import Memory, Unsent, detect
from sidecar.webhooks.settings import EVENTS, Webhook

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "webhooks.md").read_text()
START_MS = 1_800_000_000_000
CAP = 10
NOW_S = 1_800_000_000.5


def snapshot(second: float, *, waiting: int = 0, active: int = 0, stage: int = 0) -> Snapshot:
    return Snapshot(
        now_ms=START_MS + round(second * 1000), waiting=waiting, active=active, provisional=0,
        epoch=0, revision=0, wait_ms=90_000 if waiting else None, overrides={}, counters={},
        revoked={}, shield_until_ms=0, born_ms=0, recovery_ms=0, recovers_until_ms=0,
        recovery_stage=stage, replicas=1,
    )  # fmt: skip


class Watch:
    """Looks at a room whose numbers the test says; what was told, by second."""

    def __init__(self, *, above: int | None = None, cap: int = CAP) -> None:
        self.above, self.cap = above, cap
        self.memory = None
        self.second = 0
        self.told: list[tuple[int, str]] = []
        self.notices: list[Notice] = []
        self.see(1)

    def see(self, seconds: int, **numbers: int) -> list[str]:
        """These numbers for so many seconds; what was told meanwhile."""
        before = len(self.told)
        for _ in range(seconds):
            found = snapshot(self.second, **numbers)
            self.memory, notices = detect(
                self.memory, "shop", found, cap=self.cap, above=self.above
            )
            # It goes through the store every second.
            if self.memory is not None:
                assert Memory.read(self.memory.text()) == self.memory
            self.told += [(self.second, notice.event) for notice in notices]
            self.notices += notices
            self.second += 1
        return [event for _, event in self.told[before:]]


# When.


def test_a_queue_begins_and_ends_once():
    """It has begun when somebody waits, and is over when nobody did for ten seconds."""
    watch = Watch()
    assert watch.see(5) == []
    assert watch.see(60, waiting=3) == ["queue_started"]
    assert watch.see(10) == []
    assert watch.see(1) == ["queue_empty"]
    assert watch.see(100) == []
    assert watch.told[0] == (6, "queue_started")


def test_a_gap_of_some_seconds_is_no_end():
    """Somebody who comes again within ten seconds goes on with the same queue."""
    watch = Watch()
    watch.see(1, waiting=1)
    for _ in range(20):
        assert watch.see(9) == []
        assert watch.see(1, waiting=1) == []


def test_short_queues_are_told_once_a_minute():
    """One that begins within a minute of the last is told when the minute is over, if it lasts."""
    watch = Watch()
    for _ in range(10):
        watch.see(1, waiting=1)
        watch.see(19)
    began = [second for second, event in watch.told if event == "queue_started"]
    assert len(began) == 4
    assert min(later - sooner for sooner, later in itertools.pairwise(began)) >= 60
    watch = Watch()
    assert watch.see(1, waiting=1) + watch.see(11) == ["queue_started", "queue_empty"]
    assert watch.see(100, waiting=1) == ["queue_started"]
    assert watch.told[-1][0] == 1 + 60


def test_more_than_n_is_told_once_until_it_was_clearly_fewer():
    """Above n once; again after fewer than 80 % of n, and never twice in a minute."""
    watch = Watch(above=100)
    assert watch.see(10, waiting=100) == ["queue_started"]
    assert watch.see(1, waiting=101) == ["queue_over"]
    for _ in range(50):
        assert watch.see(5, waiting=80) == []
        assert watch.see(5, waiting=150) == []
    assert watch.see(1, waiting=79) == []
    assert watch.see(1, waiting=101) == ["queue_over"]
    # I expect nothing within the minute, and then what still holds.
    assert watch.see(1, waiting=10) + watch.see(58, waiting=500) == []
    assert watch.see(1, waiting=500) == ["queue_over"]
    assert watch.notices[-1].threshold == 100
    assert watch.notices[0].threshold is None


def test_n_can_change_while_it_runs():
    """A lower n is told at once, a higher one when it is passed, and none is never told."""
    watch = Watch()
    assert watch.see(100, waiting=500) == ["queue_started"]
    watch.above = 400
    assert watch.see(100, waiting=500) == ["queue_over"]
    watch.above = 1000
    assert watch.see(100, waiting=500) == []
    assert watch.see(1, waiting=1001) == ["queue_over"]
    watch.above = None
    assert watch.see(100, waiting=5000) == []


def test_n_of_one():
    """The least n is told when two wait, and again after nobody did."""
    watch = Watch(above=1)
    assert watch.see(1, waiting=1) == ["queue_started"]
    assert watch.see(60, waiting=2) == ["queue_over"]
    assert watch.see(60, waiting=1) == []
    assert watch.see(5, waiting=0) + watch.see(1, waiting=2) == ["queue_over"]


def test_a_full_room_is_told_once_until_it_had_room_for_a_minute():
    """A slot that comes free and is taken again is no news."""
    watch = Watch()
    assert watch.see(30, active=CAP - 1) == []
    assert watch.see(30, active=CAP) == ["room_full"]
    for _ in range(20):
        assert watch.see(59, active=CAP - 1) == []
        assert watch.see(1, active=CAP) == []
    assert watch.see(61, active=CAP - 1) == []
    assert watch.see(1, active=CAP + 1) == ["room_full"]


def test_a_room_of_no_slots_is_never_full():
    """A cap of 0 is an operator's word, not a rush."""
    assert Watch(cap=0).see(100) == []


def test_what_holds_at_the_first_look_is_no_news():
    """A queue that was there before anybody looked has not just begun; its end is told."""
    watch = Watch.__new__(Watch)
    watch.above, watch.cap, watch.memory, watch.second = 5, CAP, None, 0
    watch.told, watch.notices = [], []
    assert watch.see(100, waiting=9, active=CAP) == []
    assert watch.see(20) == ["queue_empty"]


def test_a_room_that_recovers_is_not_looked_at():
    """While people are on their way back after the store was emptied nothing is told."""
    watch = Watch()
    assert watch.see(100, waiting=9, active=CAP) == ["room_full", "queue_started"]
    assert watch.see(100, stage=2) + watch.see(60, waiting=3, stage=1) == []
    assert watch.see(100, waiting=9, active=CAP) == []
    watch.memory = None
    assert watch.see(30, stage=2) == []
    assert watch.memory is None


def test_ids_are_of_the_memory():
    """Two that tell the same from the same memory give it one id; no id comes twice."""
    watch = Watch()
    memory = watch.memory
    for second in (5, 6):
        _, (notice,) = detect(memory, "shop", snapshot(second, waiting=1), cap=CAP, above=None)
        assert notice.id == f"shop-{START_MS}-1-queue_started"
    watch.see(1, waiting=1, active=CAP)
    watch.see(100)
    watch.see(1, waiting=1, active=CAP)
    assert len({notice.id for notice in watch.notices}) == len(watch.notices) == 5


def test_a_memory_that_cannot_be_read_is_none():
    """What another version wrote is begun anew; what is on its way is in what can be read."""
    for text in ("", "[]", "{", '{"began_ms": "soon"}', '{"began_ms": 1, "queue": 3}'):
        assert Memory.read(text) is None
    watch = Watch()
    watch.see(1, waiting=1)
    (notice,) = watch.notices
    kept = watch.memory.__class__(1, unsent=(Unsent(notice, ("team", "pager")),))
    assert Memory.read(kept.text()) == kept


# How it is written.


def notice(event: str = "queue_over", **numbers) -> Notice:
    values = {"waiting": 1204, "active": 300, "cap": 300, "wait_seconds": 840, **numbers}
    return Notice("shop-1-2", event, "shop", START_MS, threshold=1000, **values)


def hook(kind: str = "generic", *, url: str = "https://chat.test/x", secret: str = "") -> Webhook:
    return Webhook(url=url, format=kind, secret=secret)


def test_the_generic_body_has_every_number():
    """The keys are a contract."""
    message = compose(hook(), notice(), now_s=NOW_S)
    assert json.loads(message.body) == {
        "id": "shop-1-2", "event": "queue_over", "room": "shop",
        "at": "2027-01-15T08:00:00.000+00:00", "waiting": 1204, "active": 300, "cap": 300,
        "wait_seconds": 840, "threshold": 1000,
    }  # fmt: skip
    assert message.headers["X-Waitroom-Event"] == "queue_over"
    assert message.headers["X-Waitroom-Delivery"] == "shop-1-2"
    assert "X-Waitroom-Signature" not in message.headers


def test_the_docs_show_the_body():
    """The page's example has the keys that are sent, and its table the events that there are."""
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert list(example) == list(json.loads(compose(hook(), notice(), now_s=1).body))
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [*EVENTS]


def test_the_docs_show_how_to_verify():
    """The page's function takes what is sent, and nothing that was changed or is old."""
    namespace = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], namespace)
    is_genuine = namespace["is_genuine"]
    secret, now_s = "k" * 16, time.time()
    new, old = (compose(hook(secret=secret), notice(), now_s=at) for at in (now_s, now_s - 400))
    header = new.headers["X-Waitroom-Signature"]
    assert is_genuine(secret, header, new.body)
    assert not is_genuine(secret, header, new.body + b" ")
    assert not is_genuine("j" * 16, header, new.body)
    assert not is_genuine(secret, header.replace("t=1", "t=2"), new.body)
    assert not is_genuine(secret, old.headers["X-Waitroom-Signature"], old.body)


def test_the_signature_is_of_time_and_body():
    """HMAC-SHA256 of time, point and body, by the shared secret; made anew for each try."""
    secret = "k" * 16
    first, second = (compose(hook(secret=secret), notice(), now_s=at) for at in (NOW_S, NOW_S + 9))
    stamp, _, mac = first.headers["X-Waitroom-Signature"].partition(",v1=")
    assert stamp == "t=1800000000"
    signed = b"1800000000." + first.body
    assert mac == hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert first.body == second.body
    assert "t=1800000009," in second.headers["X-Waitroom-Signature"]


@pytest.mark.parametrize("event", [*EVENTS, "test"])
def test_chats_get_a_sentence(event):
    """Slack and DingTalk get a sentence in their own shape, which begins with Waitroom."""
    said = sentence(notice(event))
    assert said.startswith("Waitroom shop: ")
    assert json.loads(compose(hook("slack"), notice(event), now_s=1).body) == {"text": said}
    assert json.loads(compose(hook("dingtalk"), notice(event), now_s=1).body) == {
        "msgtype": "text", "text": {"content": said},
    }  # fmt: skip


def test_sentences_say_how_it_stands():
    """Numbers can be read, and a wait that nobody knows is left out."""
    assert sentence(notice()) == (
        "Waitroom shop: more than 1,000 people wait. 1,204 waiting, 300 of 300 inside, "
        "wait about 14 min."
    )
    assert sentence(notice("queue_empty", waiting=0)) == (
        "Waitroom shop: the queue is empty. 0 waiting, 300 of 300 inside."
    )
    assert sentence(notice("room_full", wait_seconds=None)) == (
        "Waitroom shop: the room is full. 1,204 waiting, 300 of 300 inside."
    )
    assert "wait about 90 s" in sentence(notice("queue_started", wait_seconds=90))


def test_dingtalk_has_a_signature_of_its_own():
    """The time in ms and its HMAC go into the query, beside the token that is there."""
    url = "https://chat.test/robot/send?access_token=a%2Bb"
    message = compose(hook("dingtalk", url=url, secret="SEC" + "0" * 64), notice(), now_s=NOW_S)
    signed = b"1800000000500\nSEC" + b"0" * 64
    digest = hmac.new(b"SEC" + b"0" * 64, signed, hashlib.sha256).digest()
    assert dict(message.url.query) == {
        "access_token": "a+b",
        "timestamp": "1800000000500",
        "sign": base64.b64encode(digest).decode(),
    }
    assert "+" not in message.url.raw_query_string
    assert str(compose(hook("dingtalk", url=url), notice(), now_s=NOW_S).url) == url


# What an answer means.


@pytest.mark.parametrize(
    ("status", "taken", "later"),
    [
        (200, True, False), (204, True, False), (302, False, False), (400, False, False),
        (401, False, False), (404, False, False), (408, False, True), (410, False, False),
        (429, False, True), (500, False, True), (503, False, True),
    ],
)  # fmt: skip
def test_what_a_status_means(status, taken, later):
    """2xx is taken; busy and broken may take it later; what else is refused stays refused."""
    answer = judge(status, "7")
    assert (answer.is_taken, answer.may_retry) == (taken, later)
    assert answer.after_s == (7 if later else 0)


@pytest.mark.parametrize(
    ("body", "taken", "later"),
    [
        (b'{"errcode":0,"errmsg":"ok"}', True, False),
        (b'{"errcode":310000,"errmsg":"sign not match"}', False, False),
        (b'{"errcode":130101,"errmsg":"send too fast"}', False, True),
        (b'{"errcode":-1,"errmsg":"busy"}', False, True),
        (b'{"errcode":null}', False, False),
        (b'{"errcode":1e999}', False, False),
        (b"[" * 4000, False, False),
        (b"<html>", False, False),
        (b"[0]", False, False),
        (b"\xff", False, False),
    ],
)
def test_dingtalk_says_no_with_200(body, taken, later):
    """It is its errcode that counts."""
    answer = read_dingtalk(body)
    assert (answer.is_taken, answer.may_retry) == (taken, later)
    assert taken or answer.reason


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120), (" 7 ", 7), ("0", 0), ("", 0), ("-5", 0), ("soon", 0), ("1.5", 0),
        ("Fri, 15 Jan 2027 08:02:00 GMT", 120), ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
        ("9" * 400, 999_999_999), ("²", 0),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_retry_after(text, seconds):
    """Seconds or a date; whatever else it is, it is no reason to wait."""
    assert parse_retry_after(text, START_MS / 1000) == seconds
