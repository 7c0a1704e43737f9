"""Simulates sales, with the real scripts of a room and a simulated clock.

Visitors arrive in a burst and then in a trickle, poll when they are advised to, are admitted, stay
for a random time and leave. Some close their browser while they wait. The results have each reply
to a poll, and how long the visitor then really waited.
"""

import asyncio
import heapq
import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from redis.asyncio import Redis

from sidecar.kit.clock import StoreClock
from sidecar.rooms import redis_keys as keys
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store import scripts as rooms
from sidecar.rooms.store.scripts import RoomStore
from sidecar.visitors.estimate import Wait, estimate, round_range
from sidecar.visitors.model import Pass, QueueOutcome, Standing, Ticket
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS, SESSION_GRACE_MS
from tests.support.rooms import new_room_name, without_outages

START_MS = 1_800_000_000_000
#: The range of a tick's length. All requests of a tick reach Redis together, as from a busy
#: replica. A slot that becomes free between two ticks is idle until the second.
TICK_MS = (250, 750)
SWEEP_MS = 120_000
#: The range of the time between two renewals of a pass.
RENEW_MS = (50_000, 80_000)
#: The range of the time until the second request of a visitor who was admitted at once.
SECOND_REQUEST_DELAY_MS = (500, 10_000)
NETWORK_MS = (20, 150)
MINUTE_S = 60
SLEEP_MS = 300_000
#: Estimates of shorter waits do not count.
SHORT_WAIT_S = 30


def exponential(mean_s: float) -> Callable[[random.Random], float]:
    return lambda rng: rng.expovariate(1 / mean_s)


def lognormal(mean_s: float, sigma: float = 0.8) -> Callable[[random.Random], float]:
    return lambda rng: rng.lognormvariate(math.log(mean_s) - sigma**2 / 2, sigma)


@dataclass(frozen=True, slots=True)
class Sale:
    """The parameters of a sale: its visitors, and the settings of its room."""

    stay: Callable[[random.Random], float]
    stay_mean_s: float = 180
    cap: int = 200
    burst: int = 2000
    burst_s: float = 60
    trickle_per_s: float = 0.2
    trickle_s: float = 900
    #: The share of visitors who close their browser while they wait.
    leavers: float = 0.1
    #: The share of visitors whose tab is hidden after its first minute, and its poll interval then.
    hidden: float = 0
    hidden_s: float = 60
    #: The share of visitors whose phone sleeps for five minutes.
    sleepers: float = 0
    #: The share of stays that end without leaving, so that the session expires.
    silent_ends: float = 0.15
    session_duration: float = 300
    new_users_per_minute: int | None = None
    seed: int = 1

    @property
    def settings(self) -> RoomSettings:
        return RoomSettings(
            total_active_users=self.cap,
            session_duration=self.session_duration,
            new_users_per_minute=self.new_users_per_minute,
        )

    @property
    def held_s(self) -> float:
        """The mean time for which a visitor takes a slot, until the slot is free again."""
        runs_out_s = self.session_duration + SESSION_GRACE_MS / 1000 - RENEW_MS[0] / 2000
        held_s = RELEASE_HOLD_MS / 1000
        return self.stay_mean_s + self.silent_ends * runs_out_s + (1 - self.silent_ends) * held_s


@dataclass(frozen=True, slots=True)
class PollReply:
    """The reply to one poll, and how long the visitor then waited. `true_s` is None if the visitor
    was never admitted."""

    at_s: float
    standing: Standing
    wait: Wait | None
    true_s: float | None


@dataclass(slots=True)
class SaleResult:
    """The results of a sale."""

    visitors: int
    told: list[PollReply]
    #: The summed time of all slots while somebody waited. Parts of it are the time in which slots
    #: were free, and the time in which called visitors had not arrived yet.
    slot_ms: int = 0
    free_ms: int = 0
    unclaimed_ms: int = 0
    #: The number of calls that passed over a waiting visitor with a lower order.
    inversions: int = 0
    died: int = 0
    no_shows: int = 0
    #: For each hidden tab, the number of its polls after a visitor behind it, whose tab was not
    #: hidden, had been admitted.
    late_polls: list[int] = field(default_factory=list)
    polls: int = 0
    lasted_s: float = 0

    @property
    def judged(self) -> list[tuple[Wait, float]]:
        """Pairs of a wait estimate and the wait that followed, except for short waits."""
        return [
            (told.wait, told.true_s)
            for told in self.told
            if told.wait is not None and told.true_s is not None and told.true_s > SHORT_WAIT_S
        ]

    @property
    def error(self) -> float:
        """The median relative error of the estimates."""
        return statistics.median(abs(wait.seconds - true) / true for wait, true in self.judged)

    @property
    def coverage(self) -> float:
        """The share of estimates whose true wait was between `low` and `high`."""
        return statistics.fmean(wait.low <= true <= wait.high for wait, true in self.judged)

    @property
    def shown(self) -> list[tuple[int, int, float]]:
        """What the page showed for each judged estimate: the lowest and the highest wait, and the
        wait that followed, in seconds. Both are equal if one figure was shown."""
        return [
            (60 * low, 60 * high, true)
            for wait, true in self.judged
            for low, high in [round_range(wait.low, wait.seconds, wait.high)]
        ]

    @property
    def highest_bound(self) -> float:
        """The highest wait that was shown, as a multiple of the wait that followed. Shorter ones
        than a minute count as a minute, which is the unit on the page."""
        return max(high / max(true, MINUTE_S) for _, high, true in self.shown)

    @property
    def idle(self) -> float:
        return (self.free_ms + self.unclaimed_ms) / self.slot_ms


@dataclass(slots=True)
class _Visitor:
    """A simulated visitor, from arrival to leaving."""

    name: str
    stay_s: float
    ends_silently: bool
    #: The share of the wait after which the visitor leaves.
    leaves_at: float | None
    hidden: bool = False
    phase: float = 0
    sleeps_at: float | None = None
    late_polls: int = 0
    ticket: Ticket | None = None
    pass_: Pass | None = None
    dead: bool = False
    admitted_ms: int | None = None
    ends_ms: int = 0
    told: list[Standing] = field(default_factory=list)


class _Simulation:
    """The simulation of one sale in one room."""

    def __init__(self, redis: Redis, room: str, sale: Sale) -> None:
        self._redis = redis
        self._room = room
        self._sale = sale
        self._rng = random.Random(sale.seed)
        self._now_ms = START_MS
        self._tick_ms = 0
        self._store = RoomStore(
            redis, room, settings=without_outages(sale.settings), clock=StoreClock(),
            now_ms=lambda: self._now_ms, timeout_s=10,
        )  # fmt: skip
        self._agenda: list[tuple[int, int, str, _Visitor | None]] = []
        self._numbers = itertools.count()
        self._visitors: dict[str, _Visitor] = {}
        #: Number of visitors who have not arrived yet.
        self._arrivals = 0
        #: Number of visitors who wait or were called, and have not closed their browser.
        self._alive = 0
        #: The highest order of an admitted visitor whose tab is not hidden.
        self._front = 0
        #: Number of waiting visitors who will not close their browser.
        self._staying = 0
        self._result = SaleResult(visitors=0, told=[])

    async def simulate(self) -> SaleResult:
        self._schedule_arrivals()
        while self._arrivals or self._alive:
            self._tick_ms = self._rng.randint(*TICK_MS)
            self._now_ms += self._tick_ms
            await self._account_before()
            await self._run_tick()
            await self._account_after()
        await self._count_inversions()
        result = self._result
        result.visitors = len(self._visitors)
        result.lasted_s = (self._now_ms - START_MS) / 1000
        for visitor in self._visitors.values():
            for standing in visitor.told:
                at_ms = standing.now_ms
                true_s = visitor.admitted_ms and (visitor.admitted_ms - at_ms) / 1000
                at_s = (at_ms - START_MS) / 1000
                result.told.append(PollReply(at_s, standing, estimate(standing), true_s))
        return result

    def _schedule_arrivals(self) -> None:
        sale, rng = self._sale, self._rng
        arrivals = [rng.uniform(0, sale.burst_s) for _ in range(sale.burst)]
        at_s = sale.burst_s
        while sale.trickle_per_s and at_s < sale.burst_s + sale.trickle_s:
            at_s += rng.expovariate(sale.trickle_per_s)
            arrivals.append(at_s)
        for number, at_s in enumerate(arrivals):
            visitor = _Visitor(
                f"v{number:021d}",
                stay_s=sale.stay(rng),
                ends_silently=rng.random() < sale.silent_ends,
                leaves_at=rng.random() if rng.random() < sale.leavers else None,
            )
            if sale.hidden or sale.sleepers:
                kind = rng.random()
                visitor.hidden, visitor.phase = kind < sale.hidden, rng.random()
                is_sleeper = sale.hidden <= kind < sale.hidden + sale.sleepers
                visitor.sleeps_at = rng.random() * at_s if is_sleeper else None
            self._visitors[visitor.name] = visitor
            self._arrivals += 1
            self._schedule(START_MS + round(at_s * 1000), "enter", visitor)
        self._schedule(START_MS + SWEEP_MS, "sweep", None)

    def _schedule(self, at_ms: float, verb: str, visitor: _Visitor | None) -> None:
        heapq.heappush(self._agenda, (round(at_ms), next(self._numbers), verb, visitor))

    async def _run_tick(self) -> None:
        due: dict[str, list[_Visitor]] = {"leave": [], "renew": [], "beat": [], "enter": []}
        sweep = False
        while self._agenda and self._agenda[0][0] <= self._now_ms:
            _, _, verb, visitor = heapq.heappop(self._agenda)
            if visitor is None:
                sweep = True
            elif verb == "die":
                self._close_browser(visitor)
            else:
                due[verb].append(visitor)
        due["beat"] = [visitor for visitor in due["beat"] if not visitor.dead]
        # One kind of request after the other, so that the same seed always has the same results.
        await asyncio.gather(*(self._store.leave(v.name, why="released") for v in due["leave"]))
        renewed = await asyncio.gather(*(self._store.renew(v.pass_) for v in due["renew"]))
        for visitor, standing in zip(due["renew"], renewed, strict=True):
            self._schedule_next_visit(visitor, standing)
        beaten = await asyncio.gather(*(self._store.beat(v.ticket) for v in due["beat"]))
        for visitor, standing in zip(due["beat"], beaten, strict=True):
            self._result.polls += 1
            self._handle_standing(visitor, standing)
        entered = await asyncio.gather(*(self._store.enter(v.name) for v in due["enter"]))
        for visitor, standing in zip(due["enter"], entered, strict=True):
            self._handle_joined(visitor, standing)
        if sweep:
            await self._store.sweep()
            self._schedule(self._now_ms + SWEEP_MS, "sweep", None)

    def _handle_joined(self, visitor: _Visitor, standing: Standing) -> None:
        visitor.ticket = Ticket(visitor.name, standing.order, self._now_ms, standing.epoch)
        self._arrivals -= 1
        self._alive += 1
        if visitor.leaves_at is None:
            self._staying += 1
        elif standing.outcome is QueueOutcome.WAITING:
            # The expected wait: only visitors who stay take slots.
            wait_s = self._staying * self._sale.held_s / self._sale.cap
            self._schedule(self._now_ms + visitor.leaves_at * wait_s * 1000, "die", visitor)
        self._handle_standing(visitor, standing)

    def _handle_standing(self, visitor: _Visitor, standing: Standing) -> None:
        if standing.outcome is QueueOutcome.WAITING:
            visitor.told.append(standing)
            lag_ms = self._rng.uniform(*NETWORK_MS)
            self._schedule(
                self._now_ms + self._compute_poll_pause_ms(visitor, standing) + lag_ms,
                "beat",
                visitor,
            )
            return
        assert standing.outcome is QueueOutcome.ADMITTED, standing
        visitor.admitted_ms = self._now_ms
        if visitor.hidden:
            late = visitor.ticket.order < self._front
            self._result.late_polls.append(visitor.late_polls + late)
        else:
            self._front = max(self._front, visitor.ticket.order)
        visitor.ends_ms = self._now_ms + round(visitor.stay_s * 1000)
        self._alive -= 1
        self._staying -= visitor.leaves_at is None
        self._schedule_next_visit(visitor, standing)

    def _compute_poll_pause_ms(self, visitor: _Visitor, standing: Standing) -> float:
        """Return the time until the visitor's next poll."""
        waited_s = (self._now_ms - visitor.ticket.joined_ms) / 1000
        if visitor.hidden and waited_s > MINUTE_S:
            visitor.late_polls += visitor.ticket.order < self._front
            # A browser runs the timers of hidden tabs together, at fixed times of its own clock.
            grid_ms = self._sale.hidden_s * 1000
            earliest_ms = self._now_ms + standing.refresh_ms + visitor.phase * grid_ms
            return standing.refresh_ms + -earliest_ms % grid_ms
        if visitor.sleeps_at is not None and waited_s > visitor.sleeps_at:
            visitor.sleeps_at = None
            return SLEEP_MS
        return standing.refresh_ms

    def _schedule_next_visit(self, visitor: _Visitor, standing: Standing) -> None:
        assert standing.outcome is QueueOutcome.ADMITTED, standing
        visitor.pass_ = Pass(
            visitor.name, standing.order, visitor.ticket.joined_ms, standing.epoch,
            standing.started_ms, standing.now_ms, standing.expires_ms,
        )  # fmt: skip
        pause_ms = SECOND_REQUEST_DELAY_MS if visitor.pass_.is_first else RENEW_MS
        renew_ms = self._now_ms + self._rng.uniform(*pause_ms)
        if renew_ms < visitor.ends_ms:
            self._schedule(renew_ms, "renew", visitor)
        elif not visitor.ends_silently:
            self._schedule(visitor.ends_ms, "leave", visitor)

    def _close_browser(self, visitor: _Visitor) -> None:
        if visitor.admitted_ms is None:
            visitor.dead = True
            self._alive -= 1
            self._result.died += 1

    async def _account_before(self) -> None:
        """Count the idle time of slots that became free since the last tick."""
        if not self._alive:
            return
        active = keys.room_key(self._room, "active")
        ended = await self._redis.zrangebyscore(active, "-inf", self._now_ms, withscores=True)
        self._result.free_ms += sum(min(self._tick_ms, self._now_ms - int(at)) for _, at in ended)

    async def _account_after(self) -> None:
        snapshot = await self._store.snapshot(revoked_since_ms=self._now_ms)
        if snapshot.waiting and self._alive > snapshot.provisional:
            self._result.slot_ms += self._tick_ms * self._sale.cap
            self._result.free_ms += self._tick_ms * (self._sale.cap - snapshot.active)
            self._result.unclaimed_ms += self._tick_ms * snapshot.provisional
        self._result.no_shows = int(snapshot.counters.get("expired_no_show", 0))

    async def _count_inversions(self) -> None:
        """Count the calls in the room's events that passed over a waiting visitor."""
        events = await self._redis.xrange(keys.room_key(self._room, "events"))
        line: list[tuple[int, str]] = []
        gone: set[str] = set()
        for _, fields in events:
            event = {name.decode(): value.decode() for name, value in fields.items()}
            visitor = self._visitors[event["visitor"]]
            if event["kind"] == "joined":
                heapq.heappush(line, (visitor.ticket.order, visitor.name))
            elif event["kind"] == "called":
                gone.add(visitor.name)
                while line and line[0][0] < visitor.ticket.order:
                    _, earlier = heapq.heappop(line)
                    if earlier not in gone and not self._visitors[earlier].dead:
                        self._result.inversions += 1


#: The random generator of each sale. Several sales are simulated concurrently.
_generator: ContextVar[random.Random] = ContextVar("generator")


STAY_S = 180
#: Sessions last 300 s by the settings, so the first estimates are wrong by design.
BASE = Sale(stay=exponential(STAY_S), stay_mean_s=STAY_S, cap=200, session_duration=300, burst=1500)
#: The shares of hidden tabs for which sales are simulated.
HIDDEN = (0.1, 0.3, 0.5)
#: The highest share of hidden tabs that may need a third poll, and of slot time that may be idle.
MOST_LATE, MOST_IDLE = 1 / 50, 0.013


def hidden_sale(share: float) -> Sale:
    """Return a sale in which this share of tabs is hidden, and a tenth of phones sleep."""
    return replace(BASE, hidden=share, sleepers=0.1)


async def simulate(redis: Redis, sales: Sequence[Sale]) -> list[SaleResult]:
    """Simulate each sale in a room of its own. The same sale always has the same results."""

    async def simulate_one(sale: Sale) -> SaleResult:
        _generator.set(random.Random(sale.seed))
        return await _Simulation(redis, new_room_name(), sale).simulate()

    with patch.object(rooms, "_random_float", lambda: _generator.get().random()):
        return await asyncio.gather(*(simulate_one(sale) for sale in sales))
