"""What all systems share, and the one without a waiting room.

All stand before the same origin lines with one nginx worker, the same backlog and the same
keepalive connections to the origin.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Self, TypeVar

from loadtest.bench.runs import Load, Reply, Request, Room
from tests.support.processes import Process, free_port, wait_until
from tests.support.site import TEMPORARY, TO_ORIGIN, nginx_binary

_T = TypeVar("_T")

MARK = "the site itself"
BODY = f"<!doctype html><title>Shop</title><p>{MARK}</p>".ljust(1024, ".")
#: The site: a small page that costs next to nothing, and says who asked (requests.lua).
ORIGIN = (
    "location / { default_type text/html; add_header X-Visitor $http_x_visitor; "
    f"return 200 '{BODY}'; }}"
)

#: Who admitted visitors are, in all systems alike.
VISITORS = 2_000
PICTURES = 20
WAITING = 40_000
MIX_WAITING = 16_000
DEEP = 100_000
DEEP_POLLED = 40_000
RUSH_CAP = 500
OPEN_CAP = 1_000_000

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
    """A browser asks for a page."""
    cookies = (("Cookie", cookie),) if cookie else ()
    return Request("GET", path, (*_BROWSER, *cookies), serves)


def pictures(path: str) -> tuple[Request, ...]:
    """What a page is made of, as the browser asks for it next."""
    headers = (*_PICTURE, ("Sec-Fetch-Mode", "no-cors"), _BROWSER[-1])
    return tuple(Request("GET", f"{path}{n}.webp", headers) for n in range(PICTURES))


def poll(path: str, cookie: str) -> Request:
    """The waiting page asks how things stand."""
    return Request("GET", path, (("Accept", "application/json"), ("Cookie", cookie)), ("status",))


def is_site(reply: Reply) -> bool:
    return reply.status == 200 and MARK.encode() in reply.body


def spread(items: list[_T], number: int) -> list[_T]:
    """So many of them, evenly from all."""
    return [items[i * len(items) // number] for i in range(number)]


@contextmanager
def in_memory() -> Iterator[bool]:
    """Temporary folders are made in memory; whether they are.

    nginx keeps verdicts in memory as delivered.
    On a disk a verdict costs nginx many times more.
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


class Plain(AbstractContextManager["Plain"]):
    """nginx that hands every request on."""

    name = "plain"

    def __init__(self, origin_port: int, origin: Process) -> None:
        self._origin_port, self._origin = origin_port, origin
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="wr-plain-"))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self.folder.chmod(0o755)
        (self.folder / "tmp").mkdir(mode=0o777)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = self.folder / "nginx.conf"
        config.write_text(
            _PLAIN.format(
                user="user root;" if os.geteuid() == 0 else "", folder=self.folder,
                temporary=TEMPORARY.format(folder=self.folder), port=self.port,
                origin=self._origin_port, lines="\n".join(TO_ORIGIN),
            )
        )  # fmt: skip
        command = [nginx_binary(), "-p", str(self.folder), "-c", str(config)]
        self._nginx = self._stack.enter_context(Process(command, log=self.folder / "log"))
        wait_until((self.folder / "nginx.pid").exists, f"nginx: {self._nginx.output}")

    @property
    def pids(self) -> dict[str, list[int]]:
        return {"nginx": [self._nginx.pid], "origin": [self._origin.pid]}

    def prepare(self, workload: str) -> Load | None:
        page = [visit("/admitted/", "site")]
        if workload == "admitted":
            return Load(page * VISITORS, pictures=pictures("/admitted/"))
        return Load(page) if workload == "kept" else None

    def room(self, workload: str) -> Room | None:  # noqa: ARG002 - there is none
        return None

    def served(self, reply: Reply) -> str:
        return "site" if is_site(reply) else f"status {reply.status}"


def mixed(passes: Iterable[Request], polls: Iterable[Request], arrival: Request) -> list[Request]:
    """70 % requests of admitted visitors, 25 % polls, 5 % arrivals; always the same order."""
    inside, waiting = list(passes), list(polls)
    total = len(waiting) * 4
    requests = [inside[i % len(inside)] for i in range(total * 70 // 100)]
    requests += waiting
    requests += [arrival] * (total * 5 // 100)
    random.Random(7).shuffle(requests)
    return requests


_PLAIN = """\
{user}
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    {temporary}
    upstream origin {{ server 127.0.0.1:{origin}; keepalive 512; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            {lines}
            proxy_pass http://origin;
        }}
    }}
}}
"""
