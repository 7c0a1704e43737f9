"""Events of a room by sequences of snapshots, and the messages about them."""

import base64
import hashlib
import hmac
import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.kit.http_post import interpret_status
from sidecar.kit.retry import parse_retry_after
from sidecar.rooms.adaptive.controller import Learned
from sidecar.rooms.adaptive.settings import AdaptiveSettings
from sidecar.rooms.store.replies import Snapshot
from sidecar.webhooks.messages import compose_message, read_dingtalk_response, write_sentence
from sidecar.webhooks.model import Notice
from sidecar.webhooks.room_events import Latches, Unsent, detect_events
from sidecar.webhooks.settings import ROOM_EVENT_NAMES, Webhook

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


def learn(state: str) -> dict:
    adaptive = AdaptiveSettings(p90=1.2)
    return {"adaptive": adaptive, "learned": Learned(ceiling=8, p90_s=1.44, state=state)}


class Watch:
    """Checks a room once a second, with the numbers that a test gives."""

    def __init__(self) -> None:
        self.above, self.cap = None, CAP
        self.latches = None
        self.second = 0
        self.notices: list[Notice] = []

    def check(self, seconds: int, **numbers: int) -> list[str]:
        """Return the events that these numbers cause in so many seconds."""
        self.above, self.cap = numbers.pop("n", self.above), numbers.pop("cap", self.cap)
        before = len(self.notices)
        for _ in range(seconds):
            room = snapshot(self.second, **numbers)
            self.latches, notices = detect_events(
                self.latches, "shop", room, cap=self.cap, above=self.above
            )
            # Redis stores the latches every second.
            if self.latches is not None:
                assert Latches.read(self.latches.to_json()) == self.latches
            for each in notices:
                assert each.threshold == (self.above if each.event == "queue_over" else None)
            self.notices += notices
            self.second += 1
        return [notice.event for notice in self.notices[before:]]


# When.


#: By claim: `SECONDS NUMBERS: EVENTS`, one after the other. `n` and `cap` hold until they change.
STORIES = {
    "a queue begins when somebody waits, and is over when nobody did for ten seconds": (
        "5: | 1 waiting=3: queue_started | 59 waiting=3: | 10: | 1: queue_empty | 100:"
    ),
    "somebody who comes again within ten seconds goes on with the same queue": (
        "1 waiting=1: queue_started" + 20 * " | 9: | 1 waiting=1:"
    ),
    "short queues are told once a minute": (
        "0:" + 3 * " | 1 waiting=1: queue_started | 19: queue_empty | 1 waiting=1: | 19:"
        " | 1 waiting=1: | 19:"
    ),
    "a queue within a minute of the last is told when the minute is over, if it lasts": (
        "1 waiting=1: queue_started | 11: queue_empty | 48 waiting=1: | 1 waiting=1: queue_started"
        " | 51 waiting=1:"
    ),
    "more than n is told once, again after fewer than 80 % of n, and never twice in a minute": (
        "10 waiting=100 n=100: queue_started | 1 waiting=101: queue_over"
        + 50 * " | 5 waiting=80: | 5 waiting=150:"
        + " | 1 waiting=79: | 1 waiting=101: queue_over | 1 waiting=10: | 58 waiting=500:"
        " | 1 waiting=500: queue_over"
    ),
    "a lower n is told at once, a higher one when it is passed": (
        "100 waiting=500: queue_started | 100 waiting=500 n=400: queue_over"
        " | 100 waiting=500 n=1000: | 1 waiting=1001: queue_over"
    ),
    "the least n is told when two wait, and again after nobody did": (
        "1 waiting=1 n=1: queue_started | 60 waiting=2: queue_over | 60 waiting=1: | 5:"
        " | 1 waiting=2: queue_over"
    ),
    "a full room is told once until it had a free slot for a minute": (
        "30 active=9: | 30 active=10: room_full" + 20 * " | 59 active=9: | 1 active=10:"
        " | 61 active=9: | 1 active=11: room_full"
    ),
    "a room of no slots is never full": "100 cap=0:",
    "nothing is told while visitors are on their way back after the store was emptied": (
        "100 waiting=9 active=10: room_full queue_started | 100 stage=2: | 60 waiting=3 stage=1:"
        " | 100 waiting=9 active=10:"
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_when_events_are_told(story):
    """Each event is sent at its time in the story, and no other event is sent."""
    watch = Watch()
    watch.check(1)
    for step in story.split(" | "):
        (seconds, *numbers), events = (part.split() for part in step.split(":"))
        values = {name: int(value) for name, value in (each.split("=") for each in numbers)}
        assert (step, watch.check(int(seconds), **values)) == (step, events)


def test_a_change_of_a_sites_state_is_told_once_a_minute():
    """What a new replica sees first is not told, and neither is strain. What lasts comes later."""
    latches, told = None, []
    states = ["overloaded"] * 5 + ["healthy", "strained"] * 35 + ["no signal"] * 35
    for second, state in enumerate(states):
        site = learn(state)
        room = replace(snapshot(second, active=9), learned=site["learned"])
        latches, notices = detect_events(
            latches, "shop", room, cap=8, above=None, adaptive=site["adaptive"]
        )
        assert Latches.read(latches.to_json()) == latches
        told += [(second, each) for each in notices if each.event == "site_state"]
    assert [(second, each.site.previous_state, each.site.state) for second, each in told] == [
        (5, "overloaded", "healthy"),
        (75, "healthy", "no signal"),
    ]
    first, last = (each for _, each in told)
    assert json.loads(compose_message(hook(), first, now_s=NOW_S).body) == {
        "id": first.id, "event": "site_state", "room": "shop",
        "at": "2027-01-15T08:00:05.000+00:00", "waiting": 0, "active": 9, "cap": 8,
        "wait_seconds": None, "threshold": None, "state": "healthy",
        "previous_state": "overloaded", "ceiling": 8,
        "text": "9 inside, 8 advised; p90 1.4 s of 1.2 s",
    }  # fmt: skip
    assert write_sentence(last) == (
        "Waitroom shop: the site's state is now no signal (before: healthy). "
        "Nginx reports too few responses: not growing; 9 inside, 8 advised."
    )


def test_no_n_is_never_told():
    """The event is not sent after n was removed."""
    watch = Watch()
    watch.check(100, waiting=500, n=400)
    assert watch.check(100, waiting=5000, n=None) == []


def test_what_holds_at_the_first_look_is_no_news():
    """A queue before the first check has not just begun, but its end is sent."""
    watch = Watch()
    assert watch.check(100, waiting=9, active=CAP, n=5) == []
    assert watch.check(20) == ["queue_empty"]


def test_a_room_that_recovers_has_no_first_look():
    """The latches are created when the visitors are back."""
    watch = Watch()
    assert watch.check(30, stage=2) == []
    assert watch.latches is None


def test_ids_are_of_the_latches():
    """An event gets the same id twice from the same latches. No two events have the same id."""
    watch = Watch()
    watch.check(1)
    latches = watch.latches
    for second in (5, 6):
        room = snapshot(second, waiting=1)
        _, (notice,) = detect_events(latches, "shop", room, cap=CAP, above=None)
        assert notice.id == f"shop-{START_MS}-1-queue_started"
    watch.check(1, waiting=1, active=CAP)
    watch.check(100)
    watch.check(1, waiting=1, active=CAP)
    assert len({notice.id for notice in watch.notices}) == len(watch.notices) == 5


def test_latches_that_cannot_be_read_are_none():
    """Latches that another version wrote are created anew. Unsent messages are stored with them."""
    for text in ("", "[]", "{", '{"began_ms": "soon"}', '{"began_ms": 1, "queue": 3}'):
        assert Latches.read(text) is None
    kept = Latches(1, unsent=(Unsent(notice(), ("team", "pager")),))
    assert Latches.read(kept.to_json()) == kept


# How it is written.


def notice(event: str = "queue_over", **numbers) -> Notice:
    values = {"waiting": 1204, "active": 300, "cap": 300, "wait_seconds": 840, **numbers}
    return Notice("shop-1-2", event, "shop", START_MS, threshold=1000, **values)


def compose(webhook: Webhook, event: str = "queue_over", *, now_s: float = NOW_S):
    return compose_message(webhook, notice(event), now_s=now_s)


def hook(kind: str = "generic", *, url: str = "https://chat.test/x", secret: str = "") -> Webhook:
    return Webhook(url=url, format=kind, secret=secret)


def test_the_generic_body_has_every_number():
    """Receivers rely on the keys."""
    message = compose(hook())
    assert json.loads(message.body) == {
        "id": "shop-1-2", "event": "queue_over", "room": "shop",
        "at": "2027-01-15T08:00:00.000+00:00", "waiting": 1204, "active": 300, "cap": 300,
        "wait_seconds": 840, "threshold": 1000,
    }  # fmt: skip
    assert message.headers["X-Waitroom-Event"] == "queue_over"
    assert message.headers["X-Waitroom-Delivery"] == "shop-1-2"
    assert "X-Waitroom-Signature" not in message.headers


def test_the_docs_show_the_body():
    """The page's example has the keys of a message, and its table has all events."""
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert list(example) == list(json.loads(compose(hook(), now_s=1).body))
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [*ROOM_EVENT_NAMES]


def run_docs() -> dict:
    """Return the names that the page's blocks of Python define."""
    namespace = {}
    for indent, block in re.findall(r"^( *)```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE):
        if "def " in block:
            exec(re.sub(f"^{indent}", "", block, flags=re.MULTILINE), namespace)
    return namespace


def test_the_docs_show_how_to_verify_by_the_standard():
    """The page's function accepts a message, but neither a changed nor an old one."""
    read_message = run_docs()["read_message"]
    secret, now_s = "whsec_" + base64.b64encode(b"k" * 32).decode(), time.time()
    new, old = (compose(hook(secret=secret), now_s=at) for at in (now_s, now_s - 400))
    assert read_message(secret, new.body, new.headers) == json.loads(new.body)
    assert read_message(secret, new.body + b" ", new.headers) is None
    assert read_message("whsec_" + "A" * 32, new.body, new.headers) is None
    assert read_message(secret, new.body, {**new.headers, "webhook-id": "another"}) is None
    assert read_message(secret, old.body, old.headers) is None


def test_the_docs_show_how_to_verify():
    """The page's function accepts a message, but neither a changed nor an old one."""
    is_genuine = run_docs()["is_genuine"]
    secret, now_s = "k" * 16, time.time()
    new, old = (compose(hook(secret=secret), now_s=at) for at in (now_s, now_s - 400))
    header = new.headers["X-Waitroom-Signature"]
    assert is_genuine(secret, header, new.body)
    assert not is_genuine(secret, header, new.body + b" ")
    assert not is_genuine("j" * 16, header, new.body)
    assert not is_genuine(secret, header.replace("t=1", "t=2"), new.body)
    assert not is_genuine(secret, old.headers["X-Waitroom-Signature"], old.body)


@pytest.mark.parametrize("event", [*ROOM_EVENT_NAMES, "test"])
def test_chats_get_a_sentence(event):
    """Slack and DingTalk get a sentence in their own format, which begins with Waitroom."""
    said = write_sentence(notice(event))
    assert said.startswith("Waitroom shop: ")
    assert json.loads(compose(hook("slack"), event).body) == {"text": said}
    assert json.loads(compose(hook("dingtalk"), event).body) == {
        "msgtype": "text", "text": {"content": said},
    }  # fmt: skip


def test_sentences_say_how_it_stands():
    """Numbers are formatted, and an unknown wait is left out."""
    assert write_sentence(notice()) == (
        "Waitroom shop: more than 1,000 people wait. 1,204 waiting, 300 of 300 inside, "
        "wait about 14 min."
    )
    assert write_sentence(notice("queue_empty", waiting=0)) == (
        "Waitroom shop: the queue is empty. 0 waiting, 300 of 300 inside."
    )
    assert write_sentence(notice("room_full", wait_seconds=None)) == (
        "Waitroom shop: the room is full. 1,204 waiting, 300 of 300 inside."
    )
    assert "wait about 90 s" in write_sentence(notice("queue_started", wait_seconds=90))


def test_dingtalk_has_a_signature_of_its_own():
    """The time in ms and its HMAC are added to the query."""
    url = "https://chat.test/robot/send?access_token=a%2Bb"
    message = compose(hook("dingtalk", url=url, secret="SEC" + "0" * 64), now_s=NOW_S)
    signed = b"1800000000500\nSEC" + b"0" * 64
    digest = hmac.new(b"SEC" + b"0" * 64, signed, hashlib.sha256).digest()
    assert dict(message.url.query) == {
        "access_token": "a+b",
        "timestamp": "1800000000500",
        "sign": base64.b64encode(digest).decode(),
    }
    assert "+" not in message.url.raw_query_string
    assert str(compose(hook("dingtalk", url=url)).url) == url


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
    """Only some statuses allow a retry."""
    answer = interpret_status(status, "7")
    assert (answer.is_taken, answer.may_retry) == (taken, later)
    assert answer.retry_after_s == (7 if later else 0)


@pytest.mark.parametrize(
    ("body", "taken", "later"),
    [
        (b'{"errcode":0,"errmsg":"ok"}', True, False),
        (b'{"errcode":310000,"errmsg":"sign not match"}', False, False),
        (b'{"errcode":130101,"errmsg":"send too fast"}', False, True),
        (b'{"errcode":-1,"errmsg":"busy"}', False, True), (b'{"errcode":null}', False, False),
        (b'{"errcode":1e999}', False, False), (b"[" * 4000, False, False),
        (b"<html>", False, False), (b"[0]", False, False), (b"\xff", False, False),
    ],
)  # fmt: skip
def test_dingtalk_says_no_with_200(body, taken, later):
    """The errcode in the body decides."""
    answer = read_dingtalk_response(body)
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
    """The header is a number of seconds or a date. Anything else is ignored."""
    assert parse_retry_after(text, START_MS / 1000) == seconds
