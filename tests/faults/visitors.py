"""Simulated visitors, who behave as a browser does with the script of the waiting page."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.faults.diary import PASS, TICKET, Diary, Entry, read_token
from tests.faults.wire import Reply, Wire

#: The range of the pause after a failed poll. The real page waits 2 to 60 s, which is too long for
#: a short run.
RETRY_S = 0.5, 2.0
_BROWSER = ("User-Agent", "Mozilla/5.0 (harness)")
_PAGE = (_BROWSER, ("Accept", "text/html,*/*;q=0.8"), ("Sec-Fetch-Mode", "navigate"))
_SCRIPT = (_BROWSER, ("Accept", "application/json"), ("Sec-Fetch-Mode", "cors"))


@dataclass(frozen=True, slots=True)
class Plan:
    """How a visitor behaves. Times are ranges in seconds."""

    #: How long the visitor stays inside. None means until the end of the run.
    stay_s: tuple[float, float] | None = None
    #: The pause between two pages.
    think_s: tuple[float, float] = (0.2, 1.0)
    #: The probability that the visitor leaves at the end. Otherwise the session expires.
    says_goodbye: float = 0.8
    #: Whether to back off after a failed poll as static/waiting.js does. Otherwise the visitor
    #: retries after RETRY_S.
    backs_off: bool = False
    path: str = "/page"


STAYS = Plan()
BRIEF = Plan(stay_s=(4, 16))


class Visitor:
    """A visitor whose browser stores the room's cookies until they expire."""

    def __init__(self, url: str, room: str, plan: Plan, diary: Diary, random: Random) -> None:
        self._wire = Wire(url)
        self._room, self._plan, self._random = room, plan, random
        self._own = f"waitroom_{room}"
        #: The value and the expiry of each cookie, by name.
        self._jar: dict[str, tuple[str, float]] = {}
        self._join_url = ""
        self.diary = diary

    async def live(self) -> None:
        """Request pages, wait if told to, and leave in the end."""
        try:
            entry = await self.visit()
            until = None
            while True:
                if entry.state != "admitted" or entry.what != "page":
                    await self._wait()
                    entry = await self.visit()
                    continue
                if until is None:
                    until = self._until()
                if until is not None and time.monotonic() >= until:
                    await self._go()
                    return
                await self._rest(*self._plan.think_s)
                entry = await self.visit()
        finally:
            self._wire.close()

    async def visit(self) -> Entry:
        return await self._send("page", "GET", self._plan.path, _PAGE)

    def _until(self) -> float | None:
        stay = self._plan.stay_s
        return None if stay is None else time.monotonic() + self._random.uniform(*stay)

    async def _go(self) -> None:
        self.diary.gone = time.time()
        if self._random.random() < self._plan.says_goodbye:
            await self._call("leave")

    async def _wait(self) -> None:
        """Poll as the functions `call` and `receive` of static/waiting.js do."""
        what, tried, failures = "status", False, 0
        while True:
            entry = await self._call(what)
            failures = 0 if entry.status == 200 else failures + (entry.status != 429)
            if entry.status != 200:
                await asyncio.sleep(self._back_off_s(entry, failures))
            elif entry.state == "admitted":
                await asyncio.sleep(0.5)
                return
            elif entry.state == "not_queued":
                self._join_url = entry.join_url
                least_s = 2.0 if entry.join_url else 0.0
                await self._rest(*((1.0, 2.0) if tried else (least_s, entry.refresh_s or 1)))
                what, tried = "join", True
            else:
                tried = entry.state == "waiting"
                what = "status" if tried else "join"
                await asyncio.sleep((entry.refresh_s or 5) * self._random.uniform(1, 1.05))

    def _back_off_s(self, entry: Entry, failures: int) -> float:
        if not self._plan.backs_off:
            return self._random.uniform(*RETRY_S)
        if entry.status == 429:
            return (entry.retry_after_s or 10) * self._random.uniform(1, 1.05)
        random_s = self._random.uniform(2, min(60, 2 ** (failures + 1)))
        return max(entry.retry_after_s, random_s)

    async def _call(self, what: str) -> Entry:
        method = "GET" if what == "status" else "POST"
        path = self._join_url if what == "join" else ""
        return await self._send(what, method, path or f"/_waitroom/{self._room}/{what}", _SCRIPT)

    async def _rest(self, low: float, high: float) -> None:
        await asyncio.sleep(self._random.uniform(low, high))

    async def _send(self, what: str, method: str, path: str, headers: Any) -> Entry:
        entry = Entry(what, time.time(), 0.0)
        cookies = [f"{name}={value}" for name in self._jar if (value := self._cookie(name))]
        if cookies:
            headers = (*headers, ("Cookie", "; ".join(cookies)))
        try:
            reply = await self._wire.send(method, path, headers)
        except (OSError, EOFError, ValueError) as error:
            entry.error = repr(error)
        else:
            self._keep_cookies(reply)
            self._read(entry, reply)
        entry.received = time.time()
        own = self._cookie(self._own)
        entry.token = read_token(own) if own else None
        if entry.what == "page" and entry.status == 202:
            has_ticket = entry.token is not None and entry.token.kind == TICKET
            entry.state = "waiting" if has_ticket else "not_queued"
        self.diary.entries.append(entry)
        return entry

    def _cookie(self, name: str) -> str:
        value, ends = self._jar.get(name, ("", 0.0))
        return value if time.monotonic() < ends else ""

    def _keep_cookies(self, reply: Reply) -> None:
        for line in reply.all("set-cookie"):
            name, _, rest = line.partition("=")
            value, *attributes = rest.split(";")
            for attribute in attributes:
                key, _, life_s = attribute.strip().partition("=")
                if key.lower() == "max-age":
                    self._jar[name] = value, time.monotonic() + float(life_s)

    @staticmethod
    def _read(entry: Entry, reply: Reply) -> None:
        entry.status = reply.status
        retry_after = reply.header("retry-after")
        entry.retry_after_s = float(retry_after) if retry_after.isdecimal() else 0
        is_problem = "problem+json" in reply.header("content-type")
        entry.ours = is_problem or b"data-room=" in reply.body
        if entry.what == "page":
            if reply.status == 200 and not entry.ours:
                entry.state = "admitted"
        elif reply.status == 200:
            document = json.loads(reply.body)
            entry.state = document["state"]
            entry.position = document["position"]
            entry.paused = document.get("paused", False)
            entry.refresh_s = document["refresh_after_seconds"]
            entry.join_url = document.get("join_url", "")


class Crowd:
    """All visitors of a run."""

    def __init__(self, url: str, room: str) -> None:
        self._url, self._room = url, room
        self._random = Random(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.diaries: list[Diary] = []
        #: Exceptions in the code of visitors, which are bugs of the harness.
        self.broken: list[BaseException] = []

    def add(self, plan: Plan) -> Diary:
        """Start a visitor. Return the visitor's diary."""
        diary = Diary(f"v{len(self.diaries):04}", stays=plan.stay_s is None)
        self.diaries.append(diary)
        random = Random(self._random.random())
        visitor = Visitor(self._url, self._room, plan, diary, random)
        self._lives[diary.name] = self._start(visitor.live())
        return diary

    def dismiss(self, diaries: Iterable[Diary]) -> None:
        """Stop the visitors with these diaries."""
        for diary in diaries:
            diary.gone = time.time()
            self._lives[diary.name].cancel()

    async def arrive(self, count: int, plan: Plan, per_second: float = 100) -> None:
        """Let `count` visitors arrive at an even rate."""
        began = time.monotonic()
        for number in range(count):
            self.add(plan)
            await asyncio.sleep(max(0.0, began + (number + 1) / per_second - time.monotonic()))

    def keep_coming(self, per_second: float, plan: Plan) -> None:
        """Start to let visitors arrive at an even rate, until the run stops."""
        self._start(self.arrive(1_000_000, plan, per_second))

    def count_holders(self, kind: str) -> int:
        """Count the visitors who have a token of this kind after their last response."""
        held = (d.last.token for d in self.diaries if d.gone is None and d.last)
        return sum(1 for token in held if token and token.kind == kind)

    @property
    def inside(self) -> int:
        return self.count_holders(PASS)

    @property
    def waiting(self) -> int:
        return self.count_holders(TICKET)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        while self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken.append(error)
