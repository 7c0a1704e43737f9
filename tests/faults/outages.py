"""Simulates outages with two replicas, a redis-server, and pages that poll and back off.

The clock is simulated, so that minutes pass in seconds. All chance has the same seed each time.
"""

import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from sidecar.gate.page import status_document
from sidecar.kit.errors import StoreError, StoreUnavailableError
from sidecar.rooms.bearer import Bearer
from sidecar.rooms.redis_keys import room_key, room_keys
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.breaker import TRIES
from sidecar.visitors.model import Pass, Ticket, VisitorState
from sidecar.visitors.tokens import Tokens
from tests.faults.verdict import Overtaking, count_overtaking, read_call
from tests.support.rooms import FollowingClock, RedisTime, new_room_name

CAP, WAITING = 10, 200
#: A client that the room lets join at once.
WAITED = Bearer(has_waited=True)
#: How long visitors from the queue stay inside, seconds.
STAY_S = 10.0


@dataclass(frozen=True)
class Outage:
    """An outage of Redis, of the replicas, or of both."""

    seconds: float
    #: Whether Redis is unavailable.
    redis: bool = True
    #: Whether Redis loses its data.
    loses_data: bool = False
    #: "up", "restarted" (at the end of the outage), or "down" (for the whole outage).
    replicas: str = "up"
    #: Whether the visitors inside stay until the outage is over.
    insiders_stay: bool = False
    #: session_duration. It must be longer than an outage of the replicas if the visitors stay.
    session_s: float = 30

    @property
    def name(self) -> str:
        what = "Redis stopped" if self.redis else "Redis healthy"
        data = ", its data lost" if self.loses_data else ""
        inside = ", insiders stay" if self.insiders_stay else ""
        return f"{what} {self.seconds:g} s{data}, replicas {self.replicas}{inside}"


#: Outages in which visitors have lost their places in the past, or might.
OUTAGES = (
    Outage(60),
    Outage(150),
    Outage(150, replicas="restarted"),
    Outage(150, replicas="down"),
    Outage(60, redis=False, replicas="down"),
    Outage(45, redis=False, replicas="down", insiders_stay=True, session_s=60),
    Outage(60, insiders_stay=True),
    Outage(150, insiders_stay=True),
    Outage(60, loses_data=True),
    Outage(150, loses_data=True, replicas="down"),
)


class _Store(RoomStore):
    """The room store of a replica that a test can cut off from Redis."""

    is_cut_off = False

    async def _run(self, name: str, args: list[Any], **how: Any) -> Any:
        if self.is_cut_off:
            for _ in range(TRIES):
                self._scripts.breaker.record_failure()
            raise StoreUnavailableError(f"{name}: cut off")
        return await super()._run(name, args, **how)


@dataclass
class Page:
    """A visitor's page, and its state."""

    token: Any = None
    failures: int = 0
    leaves_s: float | None = None
    stays: bool = False
    gone: bool = False


@dataclass
class Scene:
    """A room with its replicas and visitors, on one simulated clock.

    `peak` is the highest number of sessions, and `thrown_out` the number of visitors inside who
    then had to wait.
    """

    redis: Any
    outage: Outage

    def __post_init__(self) -> None:
        self.time, self.random = RedisTime(), Random(1)
        self.began_ms = self.time.now_ms
        self.name = new_room_name()
        self.file = RoomSettings(total_active_users=CAP, session_duration=self.outage.session_s)
        self.replicas = [self._replica() for _ in range(2)]
        self.pages: list[Page] = []
        self.agenda: list[tuple[int, int, Callable[[], Awaitable[None]]]] = []
        self.turns = count()
        self.peak = 0
        self.thrown_out = 0

    def _replica(self) -> WaitingRoom:
        clock = FollowingClock(self.time)
        store = _Store(
            self.redis, self.name, settings=self.file.get_script_settings(), clock=clock,
            now_ms=self.time, timeout_s=5,
        )  # fmt: skip
        return WaitingRoom(self.name, self.file, Tokens(self.name, ["k" * 32], clock), store, clock)

    @property
    def now_s(self) -> float:
        return (self.time.now_ms - self.began_ms) / 1000

    def later(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        """Schedule an action."""
        at = self.time.now_ms + round(seconds * 1000)
        heapq.heappush(self.agenda, (at, next(self.turns), do))

    async def run_until(self, end_s: float) -> None:
        """Run all scheduled actions until a time of the simulation."""
        end_ms = self.began_ms + round(end_s * 1000)
        while self.agenda and self.agenda[0][0] <= end_ms:
            self.time.now_ms, _, do = heapq.heappop(self.agenda)
            await do()
        self.time.now_ms = end_ms

    async def refresh(self) -> None:
        for room in self.replicas:
            try:
                await room.refresh()
                self.peak = max(self.peak, room.snapshot.active if room.snapshot else 0)
            except StoreError:
                continue
        self.later(1, self.refresh)

    async def sweep(self) -> None:
        for room in self.replicas[:1]:
            if not room.store.is_away:
                await room.store.sweep()
        self.later(self.file.sweep_interval, self.sweep)

    def come(self, page: Page, in_s: float = 0) -> Page:
        self.pages.append(page)
        self.later(in_s, lambda: self.poll(page))
        return page

    async def poll(self, page: Page) -> None:
        """Poll as static/waiting.js does. If the visitor is inside, request a page instead."""
        if page.gone:
            return
        if not self.replicas:
            await self._try_later(page)
            return
        room = self.random.choice(self.replicas)
        was_inside = isinstance(page.token, Pass)
        if was_inside and page.leaves_s is not None and self.now_s >= page.leaves_s:
            page.gone = True
            try:
                await room.leave(page.token)
            except StoreError:
                return
            return
        may_join = was_inside or page.token is None
        answer = await room.check(
            page.token, may_join=may_join, from_page=not was_inside, bearer=WAITED
        )
        page.token = answer.token or page.token
        page.failures = 0
        if answer.state is VisitorState.ADMITTED:
            if not was_inside and not page.stays:
                page.leaves_s = self.now_s + STAY_S
            self.later(self.random.uniform(1, 4), lambda: self.poll(page))
        elif answer.store_unavailable and answer.joined_ms is None:
            await self._try_later(page)
        else:
            self.thrown_out += was_inside
            if answer.state is VisitorState.NOT_QUEUED:
                page.token = None
            wait_s = status_document.get_refresh_s(room, answer) * self.random.uniform(1, 1.05)
            self.later(wait_s, lambda: self.poll(page))

    async def _try_later(self, page: Page) -> None:
        if isinstance(page.token, Pass):
            wait_s = self.random.uniform(1, 4)
        else:
            page.failures += 1
            wait_s = self.random.uniform(2, min(60, 2 ** (page.failures + 1)))
        self.later(wait_s, lambda: self.poll(page))

    async def simulate(self) -> Overtaking:
        """Simulate the outage. Return its effect on the visitors who waited before it."""
        await self.refresh()
        self.later(self.file.sweep_interval, self.sweep)
        for n in range(CAP):
            self.come(Page(stays=True), in_s=n / 100)
        await self.run_until(1)
        crowd = [self.come(Page(), in_s=n / 10) for n in range(WAITING)]
        await self.run_until(90)
        begins_s = self.now_s
        before = {p.token.visitor: p for p in crowd if isinstance(p.token, Ticket)}
        if not self.outage.insiders_stay:
            for page in self.pages:
                page.gone = page.gone or page.stays
        await self._break()
        await self.run_until(begins_s + self.outage.seconds)
        await self._mend()
        ended_ms = self.time.now_ms
        for n in range(200):
            self.come(Page(), in_s=1 + n)
        # The visitors inside leave now, because otherwise no slot would become free.
        if self.outage.insiders_stay:
            for n, page in enumerate(self.pages[:CAP]):
                page.leaves_s = self.now_s + 5 + 2 * n
        await self.run_until(self.now_s + 240)
        return await self._judge(before, ended_ms)

    async def _break(self) -> None:
        if self.outage.redis:
            for room in self.replicas:
                room.store.is_cut_off = True
        if self.outage.replicas == "down":
            self.replicas = []

    async def _mend(self) -> None:
        if self.outage.loses_data:
            await self.redis.delete(*room_keys(self.name))
        if self.outage.replicas != "up":
            self.replicas = [self._replica() for _ in range(2)]
        for room in self.replicas:
            room.store.is_cut_off = False

    async def _judge(self, before: dict[str, Page], ended_ms: int) -> Overtaking:
        rows = await self.redis.xrange(room_key(self.name, "events"))
        calls = [call for _, fields in rows if (call := read_call(fields))]
        orders = {visitor: page.token.order for visitor, page in before.items()}
        after = [call for call in calls if call.at >= ended_ms / 1000]
        return count_overtaking(orders, after, ended_ms / 1000)
