"""Runs a site with three replicas and simulated visitors, for scenarios that break something."""

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from loadtest.generator import raise_limits
from sidecar.rooms.redis_keys import room_key
from sidecar.storage.redis.connect import close, connect
from tests.faults.verdict import (
    Call,
    Excuse,
    Row,
    failures,
    inversions,
    losses,
    peak_inside,
    read_call,
    recovery,
)
from tests.faults.visitors import BRIEF, STAYS, Crowd
from tests.faults.wire import Wire
from tests.support.site import ADMIN_TOKEN, BY_DEFAULT, Site, gated

ROOM = "shop"
REPLICAS = 3
#: nginx lines that read the visitor's id from the pass in the request or in the new cookie.
_HTTP = """
map "$waitroom_set_cookie;$http_cookie" $faults_visitor {
    default "-";
    "~waitroom_shop=p~([^~;]+)" $1;
}
"""
_LINES = (
    "proxy_http_version 1.1;",
    'proxy_set_header Connection "";',
    "proxy_set_header X-Load-Visitor $faults_visitor;",
)
_ORIGIN = """location / {
    default_type text/html;
    access_log @folder@/origin-access.log load;
    return 200 "inside";
}"""
_LOCATIONS = gated("/", *_LINES) + gated("/open", *_LINES, "set $waitroom_on_failure admit;")


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of a run."""

    quick: bool = False
    #: Number of visitors inside who stay until the end.
    stay: int = 30
    #: Number of visitors inside who stay for seconds.
    pass_by: int = 30
    waiting: int = 150
    newcomers_per_s: float = 4
    before_s: float = 4
    after_s: float = 10

    @property
    def cap(self) -> int:
        return self.stay + self.pass_by


FULL = Scale()
QUICK = Scale(
    quick=True, stay=15, pass_by=15, waiting=60, newcomers_per_s=4, before_s=1.5, after_s=3
)


class World:
    """The run of a scenario: its site, its visitors, and what was observed."""

    def __init__(self, name: str, site: Site, cap: int) -> None:
        self.site, self.cap = site, cap
        self.row = Row(name)
        self.crowd = Crowd(site.url, ROOM)
        self.sessions: list[int] = []
        self.excuses: list[Excuse] = []
        self.broken = self.mended = 0.0
        self._calls: dict[str, Call] = {}
        self._ops = [Wire(url, timeout_s=2) for url in site.ops]
        self._asking = [asyncio.Lock() for _ in site.ops]
        self._began = time.monotonic()
        self._must_call = False

    async def fill(self, scale: Scale) -> None:
        """Fill the room, and then the queue."""
        await self.crowd.arrive(scale.stay, STAYS)
        await self.crowd.arrive(scale.pass_by, BRIEF)
        await self.until(lambda: self.crowd.inside >= scale.cap, "a full room")
        await self.crowd.arrive(scale.waiting, BRIEF, per_second=200)
        if scale.newcomers_per_s:
            self.crowd.keep_coming(scale.newcomers_per_s, BRIEF)
        await asyncio.sleep(scale.before_s)
        # In a short run, no slot may become free.
        self._must_call = not scale.quick

    async def until(self, true: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
        """Wait until `true()` is True. `what` is named in the error message."""
        end = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come within {timeout_s:g} s")
            await asyncio.sleep(0.02)

    def begin_fault(self) -> float:
        """Record that the fault begins now. Unless `end_fault` is called, it also ends now."""
        self.broken = self.mended = time.time()
        return self.broken

    def end_fault(self) -> float:
        """Record that the fault ends now."""
        self.mended = time.time()
        return self.mended

    def must(self, what: str, truth: bool) -> None:
        """Record `what` as a reason why the scenario failed, unless `truth` is True."""
        if not truth:
            self.row.broken.append(what)

    def note(self, text: str) -> None:
        """Add a text to the scenario's notes in the report."""
        self.row.notes.append(text)

    def expect_503(self, *, until: float, **whom: Any) -> None:
        """Excuse responses with status 503 from the beginning of the fault until a time."""
        self.excuses.append(Excuse(self.broken, until, **whom))

    async def stop_replica(self, number: int) -> None:
        await asyncio.to_thread(self.site.replicas[number].stop)

    async def start_replica(self, number: int) -> None:
        self.site.replicas[number].start()
        await self.until_ready([number])

    async def until_ready(self, numbers: Iterable[int] = range(REPLICAS)) -> None:
        for number in numbers:
            end = time.monotonic() + 30
            while (await self._ask(number, "/readyz"))[0] != 200:
                if time.monotonic() > end:
                    raise AssertionError(f"replica {number} is not ready within 30 s")
                await asyncio.sleep(0.05)

    async def until_recovered(self) -> float:
        """Wait until all replicas report that Redis is available, and a recovery stage of at
        most 1, in which visitors are called again. Return the seconds since the fault ended."""
        end = time.monotonic() + 60
        # Replicas update their metrics once a second.
        await asyncio.sleep(1.5)
        while True:
            away = await self.metrics("waitroom_store_away")
            stages = await self.metrics("waitroom_recovery_stage")
            if away == [0] * REPLICAS and max(stages) <= 1:
                return time.time() - self.mended
            if time.monotonic() > end:
                raise AssertionError(
                    f"not recovered within 60 s: store_away {away}, recovery_stage {stages}"
                )
            await asyncio.sleep(0.1)

    async def metrics(self, name: str) -> list[float]:
        """Return the value of a metric about the room from each replica that responds."""
        pattern = re.compile(rf'^{name}{{(?:[^}}]*,)?room="{ROOM}"[^}}]*}} (\S+)$', re.MULTILINE)
        found = []
        for number in range(len(self._ops)):
            status, text = await self._ask(number, "/metrics")
            if status == 200 and (match := pattern.search(text)):
                found.append(float(match[1]))
        return found

    async def requests_at(self, number: int) -> float:
        """Return the number of requests that a replica has answered since its start."""
        _, text = await self._ask(number, "/metrics")
        found = re.findall(r"^waitroom_requests_total{.*} (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    async def room(self) -> dict[str, Any] | None:
        """Return the admin API's description of the room from the first replica that responds."""
        for number in range(len(self._ops)):
            status, text = await self._ask(number, f"/admin/rooms/{ROOM}")
            # Another program may listen on the port of a replica that is down.
            with suppress(ValueError):
                document: dict[str, Any] = json.loads(text if status == 200 else "")
                return document
        return None

    async def _ask(self, number: int, path: str) -> tuple[int, str]:
        headers = [("Authorization", f"Bearer {ADMIN_TOKEN}")]
        wire = self._ops[number]
        async with self._asking[number]:
            with suppress(OSError, EOFError, ValueError):
                reply = await wire.send("GET", path, headers)
                return reply.status, reply.body.decode()
        return 0, ""

    async def watch(self) -> None:
        """Record the room's number of sessions twice a second, until this task is cancelled."""
        while True:
            room = await self.room()
            if room is not None:
                self.sessions.append(room["active"])
            await asyncio.sleep(0.5)

    async def collect_calls(self) -> None:
        """Read the calls of visitors so far from Redis, before a fault deletes them."""
        redis = connect(self.site.store, timeout_s=5)
        try:
            events = await redis.xrange(room_key(ROOM, "events"))
        finally:
            await close(redis)
        for at, fields in events:
            if call := read_call(fields):
                self._calls[f"{at.decode()} {call.visitor}"] = call

    async def finish(self) -> None:
        await self.crowd.stop()
        with suppress(Exception):
            await self.collect_calls()
        for wire in self._ops:
            wire.close()

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def judge(self) -> None:
        """Write into the row what was observed, and the reasons why the scenario failed."""
        row, diaries = self.row, self.crowd.diaries
        failed = [text for diary in diaries for text in failures(diary, self.excuses)]
        lost = [text for diary in diaries for text in losses(diary)]
        overtaken = inversions(diaries, self.calls)
        row.requests = sum(len(diary.entries) for diary in diaries)
        row.failures, row.lost, row.inversions = len(failed), len(lost), len(overtaken)
        peak, sessions = peak_inside(self._origin(), diaries), max(self.sessions, default=0)
        row.peak = f"{peak}/{self.cap}"
        if sessions > self.cap:
            row.peak += f" (store: {sessions})"
        if self.broken:
            row.recover_s = recovery(diaries, broken=self.broken, mended=self.mended)
        for texts in (failed, lost, overtaken):
            if texts:
                row.broken.append(f"{texts[0]} ({len(texts)} in all)")
        self.must("nobody asked for anything", row.requests > 0)
        self.must(f"{peak} inside at once, cap {self.cap}", peak <= self.cap)
        self.must(f"{sessions} sessions, cap {self.cap}", sessions <= self.cap)
        row.broken += [f"the harness broke: {error!r}" for error in self.crowd.broken[:1]]
        if self._must_call:
            after = any(call.at > self.mended for call in self.calls)
            self.must("nobody was called after the fault", after)
        strict = inversions(diaries, self.calls, tolerance=0)
        if len(strict) > row.inversions:
            self.note(f"{len(strict)} overtaken by less than a refresh of theirs")
        for number, replica in enumerate(self.site.replicas):
            self.must(f"a traceback in replica {number}'s log", "Traceback" not in replica.output)
        row.seconds = time.monotonic() - self._began

    def _origin(self) -> list[tuple[float, str]]:
        log = self.site.folder / "origin-access.log"
        pairs = (line.split(" ") for line in log.read_text().splitlines())
        return [(float(p[0]), p[1]) for p in pairs if len(p) == 2 and p[1] != "-"]


@asynccontextmanager
async def world(
    name: str, *, cap: int, store: str = "", settings: dict[str, Any] | None = None
) -> AsyncIterator[World]:
    """Run a site for a scenario, and judge the run at the end.

    Waiting visitors get status 202, so that each 5xx is a failure. If the scenario raises
    AssertionError, it has failed.
    """
    raise_limits()
    room = {"total_active_users": cap, "queueing_status_code": 202, "session_duration": 30}
    site = Site(
        rooms={ROOM: {**room, **(settings or {})}},
        replicas=REPLICAS, locations=_LOCATIONS, http=_HTTP, origin=_ORIGIN, store=store,
        settings={"shutdown_delay": 0.5, **BY_DEFAULT}, stamps=True,
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        await _enter(site, stack)
        found = World(name, site, cap)
        watching = asyncio.create_task(found.watch())
        try:
            yield found
        except AssertionError as error:
            found.row.broken.append(str(error))
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            await found.finish()
        found.judge()
        # All replicas shut down at the same time, and the site then waits for each.
        for replica in site.replicas:
            if replica.running:
                replica.signal(signal.SIGTERM)


#: Sites start one after the other. If they start together, each takes too long.
_STARTS = threading.Lock()


def _start(site: Site) -> None:
    with _STARTS:
        site.__enter__()


async def _enter(site: Site, stack: AsyncExitStack) -> None:
    """Start a site in a thread, because another scenario may be running in this one. `stack` stops
    the site, even if the start is cancelled."""
    stack.push_async_callback(asyncio.to_thread, site.__exit__, None, None, None)
    starting = asyncio.ensure_future(asyncio.to_thread(_start, site))
    try:
        await asyncio.shield(starting)
    except asyncio.CancelledError:
        await starting
        raise
