"""Parts of all measured systems, and the systems without a waiting room.

All systems have the same site behind them, one nginx worker, the same backlog and the same
keep-alive connections to the site.
"""

import os
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import redis

from loadtest.bench.runs import MARK, Load, Request, System
from tests.support.processes import Process, free_port, wait_until
from tests.support.site import (
    ROOT,
    TO_ORIGIN,
    Site,
    answers,
    build_nginx_config,
    fill_placeholders,
    make_folder,
    nginx_binary,
)

_T = TypeVar("_T")

BODY = f"<!doctype html><title>Shop</title><p>{MARK}</p>".ljust(1024, ".")
#: nginx lines of the site: a small page that names the visitor (requests.lua).
ORIGIN = (
    "location / { default_type text/html; add_header X-Visitor $http_x_visitor; "
    f"return 200 '{BODY}'; }}"
)

REPLICAS = 2
#: Number of admitted visitors in all systems.
VISITORS = 2_000
PICTURES = 20
WAITING = 40_000
MIX_WAITING = 16_000
DEEP = 100_000
DEEP_POLLED = 40_000
#: The caps of the rooms by workload. With that of "deep", a queue moves as fast as a big site's.
CAPS = {
    "admitted": VISITORS,
    "kept": VISITORS,
    "newcomers": 1_000_000,
    "full": 1,
    "flood": 1,
    "polls": 1,
    "mix": VISITORS,
    "deep": 5_000,
    "rush": 500,
}

_BROWSER = (
    ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8"),
    ("Accept-Language", "en"),
    ("Sec-Fetch-Mode", "navigate"),
    ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
)
_PICTURE = (
    ("Accept", "image/avif,image/webp,*/*;q=0.8"),
    ("Accept-Language", "en"),
    ("Sec-Fetch-Dest", "image"),
)


def visit(path: str, *serves: str, cookie: str = "") -> Request:
    """Create a browser's request for a page."""
    cookies = (("Cookie", cookie),) if cookie else ()
    return Request("GET", path, (*_BROWSER, *cookies), serves)


def pictures(path: str) -> tuple[Request, ...]:
    """Create the requests for the pictures of a page."""
    headers = (*_PICTURE, ("Sec-Fetch-Mode", "no-cors"), _BROWSER[-1])
    return tuple(Request("GET", f"{path}{n}.webp", headers) for n in range(PICTURES))


def poll(path: str, cookie: str) -> Request:
    """Create a poll of the waiting page."""
    return Request("GET", path, (("Accept", "application/json"), ("Cookie", cookie)), ("status",))


def spread(items: list[_T], number: int) -> list[_T]:
    """Return `number` evenly spaced items."""
    return [items[i * len(items) // number] for i in range(number)]


@contextmanager
def in_memory() -> Iterator[bool]:
    """Create temporary folders in memory. Yield False if there is no file system in memory.

    By default nginx caches verdicts in memory. On a disk they cost many times more.
    """
    memory = Path("/dev/shm")
    before = tempfile.tempdir
    is_there = memory.is_dir() and os.access(memory, os.W_OK)
    if is_there:
        tempfile.tempdir = str(memory)
    try:
        yield is_there
    finally:
        tempfile.tempdir = before


class PlainSite(Site):
    """nginx that passes all requests to the site of another system."""

    def __init__(self, other: Site) -> None:
        super().__init__(replicas=0)
        self.origin, self.origin_port = other.origin, other.origin_port

    def _start(self) -> None:
        self.folder, self.port = make_folder(self._stack), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        text = fill_placeholders(
            _PLAIN, port=self.port, origin=self.origin_port, lines="\n".join(TO_ORIGIN)
        )
        config = self.folder / "nginx.conf"
        config.write_text(build_nginx_config(self.folder, text))
        self.nginx = self.run("nginx", [nginx_binary(), "-p", str(self.folder), "-c", str(config)])
        wait_until(lambda: answers(f"{self.url}/"), "nginx", of=self.nginx)


class Plain(System):
    """nginx without a waiting room."""

    name = "plain"

    def __init__(self, other: Site) -> None:
        super().__init__()
        self._other = other

    def _start(self) -> None:
        self.site = self._stack.enter_context(PlainSite(self._other))

    def _admitted(self) -> Load:
        return Load([visit("/admitted/", "site")] * VISITORS, pictures=pictures("/admitted/"))

    def _kept(self) -> Load:
        return Load([visit("/admitted/", "site")])


class Bare(System):
    """nginx with the includes, and bare aiohttp handlers in place of replicas."""

    name = "bare"

    def _start(self) -> None:
        folder = make_folder(self._stack)
        handlers = []
        for number in range(REPLICAS):
            socket = folder / f"handler-{number}.sock"
            command = [sys.executable, "-m", "loadtest.bench.handler", str(socket)]
            handler = Process(command, log=socket.with_suffix(".log"), cwd=ROOT)
            handlers.append(self._stack.enter_context(handler))
            wait_until(socket.exists, "a handler", of=handler)
        edges = tuple(f"unix:{folder}/handler-{number}.sock" for number in range(REPLICAS))
        self.site = self._stack.enter_context(Site(replicas=0, edges=edges, origin=ORIGIN))
        self._handlers = handlers

    @property
    def pids(self) -> dict[str, list[int]]:
        pids = super().pids
        del pids["redis"]
        return {**pids, "replicas": [handler.pid for handler in self._handlers]}

    def _polls(self) -> Load:
        """Create polls with different cookies, each as long as a ticket."""
        tickets = (
            f"waitroom_polls=t~{n:022}~{n:016}~{n:013}~0.{n:06}.{n:043}" for n in range(WAITING)
        )
        return Load([poll("/_waitroom/polls/status", each) for each in tickets], apart=True)


class QueueingSystem(System):
    """A system with a waiting room. Subclasses create visitors of the rooms."""

    site: Site

    def _connect(self) -> None:
        """Open a connection to the Redis of `site`."""
        self._redis: Any = redis.Redis(unix_socket_path=str(self.site.redis_socket))
        self._stack.callback(self._redis.close)

    #: Whether nginx may cache responses to polls, and whether all requests of a flood take places.
    caches_polls: ClassVar[bool]
    floods_take_places: ClassVar[bool]

    def path(self, workload: str) -> str:
        """Return the path of the page of a workload."""
        raise NotImplementedError

    def _admit(self, workload: str, number: int) -> list[Request]:
        """Admit visitors to the empty room of a workload. Return their requests for the page."""
        raise NotImplementedError

    def _wait(self, workload: str, number: int) -> list[Request]:
        """Let visitors wait in the queue of a workload. Return their polls."""
        return self._wait_in_line(workload, number, number)

    def _wait_in_line(self, workload: str, number: int, polled: int) -> list[Request]:
        """Write a queue of `number` visitors into Redis, which is faster than joining. Return the
        polls of `polled` evenly spaced visitors."""
        raise NotImplementedError

    def _polls_per_minute(self, requests: list[Request]) -> float:
        """Return how often a waiting visitor polls."""
        raise NotImplementedError

    def _arrival(self, workload: str) -> list[Request]:
        """Return the requests of a newcomer who has to wait."""
        return [visit(self.path(workload), "place")]

    def _admitted(self) -> Load:
        passes = self._admit("admitted", VISITORS)
        return Load(passes, pictures=pictures(self.path("admitted")))

    def _kept(self) -> Load:
        return Load(self._admit("kept", VISITORS))

    def _newcomers(self) -> Load:
        self._admit("newcomers", 0)
        return Load([visit(self.path("newcomers"), "site")], joins=True)

    def _full(self) -> Load:
        self._admit("full", 1)
        requests = self._arrival("full")
        return Load(requests, each=len(requests), joins=True)

    def _flood(self) -> Load:
        self._admit("flood", 1)
        serves = ("place",) if self.floods_take_places else ("page", "place")
        return Load([visit(self.path("flood"), *serves)], joins=self.floods_take_places)

    def _polls(self) -> Load:
        self._admit("polls", 1)
        return Load(self._wait("polls", WAITING), apart=True, distinct=self.caches_polls)

    def _mix(self) -> Load:
        passes, path = self._admit("mix", VISITORS), self.path("mix")
        requests = mixed(passes, self._wait("mix", MIX_WAITING), visit(path, "place"))
        return Load(requests, pictures=pictures(path), pages=passes)

    def _deep(self) -> Load:
        self._admit("deep", CAPS["deep"])
        requests = self._wait_in_line("deep", DEEP, DEEP_POLLED)
        return Load(
            requests, apart=True, distinct=self.caches_polls,
            polls_per_minute=self._polls_per_minute(requests),
        )  # fmt: skip

    def _rush(self) -> Load:
        self._admit("rush", 0)
        requests = [visit(self.path("rush"), "site", "place")]
        return Load(requests, joins=True, connections=256)


def mixed(passes: Iterable[Request], polls: Iterable[Request], arrival: Request) -> list[Request]:
    """Return 70 % requests of visitors inside, 25 % polls and 5 % arrivals, in a fixed order."""
    inside, waiting = list(passes), list(polls)
    total = len(waiting) * 4
    requests = [inside[i % len(inside)] for i in range(total * 70 // 100)]
    requests += waiting
    requests += [arrival] * (total * 5 // 100)
    random.Random(7).shuffle(requests)
    return requests


_PLAIN = """\
access_log off;
upstream origin { server 127.0.0.1:@origin@; keepalive 512; }
server {
    listen 127.0.0.1:@port@ backlog=4096;
    location / {
        @lines@
        proxy_pass http://origin;
    }
}
"""
