"""The users: a shopper, an API client, a flood without cookies, a storm of reloads; and for
measurements, those who poll or join without a pause.

One Locust user plays one visitor after another. Each begins without cookies.
"""

import itertools
import json
import random
from typing import Any

import gevent
from locust import FastHttpUser, task
from locust.env import Environment

from loadtest.ledger import LEDGER
from loadtest.options import options_of
from loadtest.wire import FastWire, LeanWire, Reply

PAGE = "text/html,application/xhtml+xml"
JSON = "application/json"
#: A visitor who polls this much later than advised may have been skipped, seconds.
LATE_S = 5.0
#: The numbers of the users of this process.
_users = itertools.count()


class Visitor(FastHttpUser):
    abstract = True
    #: The name in --waitroom-mix.
    journey = ""
    accept = PAGE
    agent = "Mozilla/5.0 (load test)"

    def __init__(self, environment: Environment) -> None:
        self.set = options_of(environment)
        if self.set.waitroom_hosts:
            hosts = self.set.waitroom_hosts.split(",")
            self.host = hosts[next(_users) % len(hosts)]
        super().__init__(environment)
        lean = self.set.waitroom_client == "lean"
        self.wire = LeanWire(self) if lean else FastWire(self)
        self.endpoints = f"/_waitroom/{self.set.waitroom_room}/"
        self.headers = {"Accept": self.accept, "User-Agent": self.agent}
        self.is_new = True
        self.last = Reply(0)

    def become_new(self) -> None:
        self.wire.forget()
        self.is_new = True
        self.begin_stay()

    def begin_stay(self) -> None:
        """Take a new name, so that the origin sees each stay inside as a separate interval."""
        self.headers["X-Load-Visitor"] = LEDGER.next_name()

    def is_denied(self, reply: Reply) -> bool:
        """Return True for a response of the waiting room, False for one of the site."""
        if reply.status in {302, 303}:
            return reply.header("Location").startswith("/_waitroom/")
        if reply.status not in {self.set.waitroom_denied_status, 503}:
            return False
        return bool(reply.header("Retry-After")) and "no-store" in reply.header("Cache-Control")

    def open(self) -> bool | None:
        """Request the page. Return whether the site responded, or None for other responses."""
        reply = self.wire.send("GET", self.set.waitroom_path, self.headers, self.judge_page)
        self.is_new = False
        self.last = reply
        if self.is_denied(reply):
            return False
        return True if 200 <= reply.status < 400 else None

    def judge_page(self, reply: Reply) -> tuple[str, str | None]:
        denied = self.is_denied(reply)
        name = "arrival" if denied or self.is_new else "pass"
        fine = denied or 200 <= reply.status < 400
        return name, None if fine else _complain(reply)

    def judge_any(self, reply: Reply) -> tuple[str, str | None]:
        """Judge a request that may be refused by a rate limit."""
        fine = self.is_denied(reply) or 200 <= reply.status < 400 or reply.status == 429
        return self.journey, None if fine else _complain(reply)

    def call(self, endpoint: str, at: str | None = None) -> dict[str, Any] | None:
        """Poll, join or leave. Return the document, if any. `at` is an address from the last
        document."""
        name = "poll" if endpoint == "status" else endpoint

        def judge(reply: Reply) -> tuple[str, str | None]:
            return name, None if reply.status == 200 else _complain(reply)

        method = "GET" if endpoint == "status" else "POST"
        headers = {**self.headers, "Accept": JSON}
        reply = self.wire.send(method, at or self.endpoints + endpoint, headers, judge)
        self.last = reply
        if reply.status != 200:
            gevent.sleep(float(reply.header("Retry-After") or 5))
            return None
        document: dict[str, Any] = json.loads(reply.content)
        return document


class Shopper(Visitor):
    """A visitor who waits as advised, visits pages and finishes. Some give up or disappear."""

    journey = "shopper"

    @task
    def visit(self) -> None:
        self.become_new()
        inside = self.open()
        if inside:
            LEDGER.record_direct_admission(self.last)
            inside = self.browse()
        while inside is False:
            if not self.wait_in_line():
                return
            inside = self.browse()
        if inside is None:
            gevent.sleep(1)

    def browse(self) -> bool | None:
        """Visit pages and end the visit. Return False if the session ended before."""
        wanted = self.set
        for _ in range(max(1, round(random.uniform(0.5, 1.5) * wanted.waitroom_stay))):
            gevent.sleep(random.uniform(0.5, 1.5) * wanted.waitroom_think)
            inside = self.open()
            if not inside:
                self.begin_stay()
                return inside
        if random.random() >= wanted.waitroom_silent:
            self.leave()
        return True

    def leave(self) -> None:
        done = self.set.waitroom_done_path
        if done:
            self.wire.send("GET", done, self.headers, _judge_leave)
        else:
            self.call("leave")

    def wait_in_line(self) -> bool:
        """Wait in the queue. Return True if the visitor was admitted, False after giving up."""
        wanted = self.set
        fate = random.random()
        patience = random.randint(1, 4)
        endpoint, at = "status", None
        stay = None
        due = 0.0
        while True:
            document = self.call(endpoint, at)
            endpoint, at = "status", None
            if document is None:
                continue
            state = document["state"]
            pause = float(document["refresh_after_seconds"])
            if not document.get("paused"):
                late = bool(due) and self.last.sent > due + LATE_S * 1000
                stay = LEDGER.record_status(stay, document, self.last, late=late)
            if state == "admitted":
                return True
            if state == "not_queued":
                # Random pauses prevent a second rush of newcomers.
                endpoint, at = "join", document.get("join_url")
                gevent.sleep(random.uniform(2 if at else 0, pause))
                continue
            patience -= 1
            if patience == 0 and fate < wanted.waitroom_silent:
                return False
            if patience == 0 and fate < wanted.waitroom_silent + wanted.waitroom_abandon:
                self.call("leave")
                return False
            due = self.last.received + pause * 1000
            gevent.sleep(pause)


class ApiClient(Shopper):
    """A program that requests JSON, and follows the problem document of status 503."""

    journey = "api"
    accept = JSON
    agent = "load-test-client/1"

    def open(self) -> bool | None:
        inside = super().open()
        if inside is False:
            # The problem document says where to poll and when.
            problem = json.loads(self.last.content)
            self.endpoints = problem["status_url"].removesuffix("status")
            gevent.sleep(min(1.0, problem["retry_after_seconds"]))
        return inside

    def judge_page(self, reply: Reply) -> tuple[str, str | None]:
        name, complaint = super().judge_page(reply)
        if complaint is None and self.is_denied(reply):
            complaint = _find_missing(reply.content)
        return name, complaint


class Flood(Visitor):
    """A client without cookies, so that each request is that of a newcomer."""

    journey = "flood"

    @task
    def hit(self) -> None:
        self.become_new()
        self.wire.send("GET", self.set.waitroom_path, self.headers, self.judge_any)
        gevent.sleep(random.uniform(0.5, 1.5) * self.set.waitroom_think)


class Storm(Visitor):
    """A client that reloads and polls several times a second, and ignores advice."""

    journey = "storm"

    @task
    def visit(self) -> None:
        self.become_new()
        for _ in range(round(self.set.waitroom_stay)):
            self.wire.send("GET", self.set.waitroom_path, self.headers, self.judge_any)
            gevent.sleep(random.uniform(0.05, 0.2))
            polls = {**self.headers, "Accept": JSON}
            self.wire.send("GET", self.endpoints + "status", polls, self.judge_any)
            gevent.sleep(random.uniform(0.05, 0.2))


class Poller(Visitor):
    """A visitor who joins once, and then polls without a pause."""

    journey = "polls"

    @task
    def poll(self) -> None:
        self.call("join" if self.is_new else "status")
        self.is_new = False


class Joiner(Visitor):
    """Newcomers who join without a pause, one after the other, over one connection."""

    journey = "joins"

    @task
    def join(self) -> None:
        self.wire.forget(keep_connection=True)
        self.call("join")


def _judge_leave(reply: Reply) -> tuple[str, str | None]:
    return "leave", None if 200 <= reply.status < 400 else _complain(reply)


def _find_missing(content: bytes) -> str | None:
    try:
        problem = json.loads(content)
    except ValueError:
        return "the problem document is not JSON"
    missing = {"status_url", "retry_after_seconds"} - set(problem)
    return f"the problem document lacks {sorted(missing)}" if missing else None


def _complain(reply: Reply) -> str:
    if reply.error is not None:
        return f"{type(reply.error).__name__}: {reply.error}"
    return f"unexpected status {reply.status}"
