"""An opening with 100,000 visitors in the pre-queue: how long scripts block Redis, and how soon all
visitors know their places (docs/benchmark.md).

Replicas refresh and sweep, and everybody polls. The rooms' code is the product's, from
rooms/service.py on; HTTP is left out. Redis' time stands still until the opening, and then runs.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import uvloop
from redis.asyncio import Redis

from loadtest import redis_server
from loadtest.amount import option
from loadtest.callers import ask_each
from loadtest.redis_server import room_store
from loadtest.report import Report
from loadtest.rounds import Rounds
from sidecar.kit.clock import StoreClock
from sidecar.lottery.commitment import sort_by_lot
from sidecar.lottery.service import Draws
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.bearer import Bearer
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.service import WaitingRoom
from sidecar.rooms.settings import RoomSettings
from sidecar.storage.redis.driver_errors import text
from sidecar.storage.redis.lua_source import library
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import Ticket, VisitorState
from sidecar.visitors.tokens import Tokens
from sidecar.visitors.verdict_lifetime import REFRESH_MS

NAME = "sale"
OPENS_MS = 1_800_000_000_000
#: The longest time that a script may block Redis.
GOAL_MS = 10
#: Shorter commands are not logged, because logging would take longer than the commands.
LOGGED_US = 100
#: More entries than Redis logs in a part of a measurement.
_LOG_LENGTH = 1_000_000
_KEYS = ["k" * 32]
#: Number of concurrent calls, as from that many browsers.
_AT_ONCE = 2000
#: Time between the last poll of visitors in the pre-queue and the opening.
_LAST_POLL_MS = 20_000
_CLASSES = ("", "member", "partner")

#: Durations in ms by name of script or command.
Durations = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Amount:
    visitors: int = option(100_000, "another number than 100,000")
    #: Number of visitors of all classes who join while those of the pre-queue poll.
    latecomers: int = 5_000
    replicas: int = 4
    rounds: int = 5


WHOLE = Amount()
QUICK = Amount(visitors=20_000, latecomers=1_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Opening:
    """The results of a round."""

    #: Time in which all visitors joined.
    joined_s: float
    #: Time from the opening until the first and the last visitor got a response.
    first_s: float
    answered_s: float
    #: Number of visitors who were called at once.
    called: int
    #: Durations before the opening, and from the opening on.
    before: Durations
    after: Durations
    visitors: int
    problems: list[str] = field(default_factory=list)

    @property
    def longest_ms(self) -> float:
        """Return the longest time that a script blocked Redis after the opening."""
        return max(max(ms) for name, ms in self.after.items() if name.endswith(".lua"))

    @property
    def first_ms(self) -> float:
        return 1000 * self.first_s

    @property
    def polls_per_s(self) -> float:
        return self.visitors / self.answered_s

    @property
    def joins_per_s(self) -> float:
        return self.visitors / self.joined_s


def measure_reports(amount: Amount) -> Iterator[Report]:
    openings = Rounds[str, Opening](amount.rounds)
    for [name] in openings.turns([NAME]):
        openings.add(name, uvloop.run(measure_opening(amount)))
    yield report(openings, amount)


# One opening --------------------------------------------------------------------------------------


def settings_of(amount: Amount) -> RoomSettings:
    """Return the settings of a big sale, with the most expensive features: sub-queues and classes.

    One visitor in fifty is admitted at once.
    """
    event = {"name": NAME, "prequeue_from": OPENS_MS - 3_600_000, "opens_at": OPENS_MS}
    return RoomSettings.model_validate({
        "total_active_users": max(1, amount.visitors // 50),
        "events": [event],
        "lines": [{"name": "partners", "weight": 1}, {"name": "ordinary", "weight": 9}],
        "classes": {"partner": {"line": "partners"}, "member": {"head_start": "5m"}},
    })  # fmt: skip


class Clock:
    """Redis' time, which does not change until `go` is called."""

    def __init__(self, now_ms: int) -> None:
        self.still_ms = now_ms
        self._since: float | None = None

    def __call__(self) -> int:
        run_s = 0.0 if self._since is None else time.monotonic() - self._since
        return self.still_ms + int(run_s * 1000)

    def go(self) -> None:
        self._since = time.monotonic()


def make_replica(redis: Redis, settings: RoomSettings, clock: Clock, number: int) -> WaitingRoom:
    own = StoreClock()
    store = room_store(redis, NAME, settings, clock=own, now_ms=clock, replica=f"replica-{number}")
    draws = Draws(NAME, _KEYS, DrawsStore(redis, NAME, timeout_s=60))
    return WaitingRoom(NAME, settings, Tokens(NAME, _KEYS, own), store, own, draws=draws)


async def measure_opening(amount: Amount) -> Opening:
    """Measure a round, with a new server."""
    async with redis_server.start() as server:
        redis, clock = server.redis, Clock(OPENS_MS - _LAST_POLL_MS)
        settings = settings_of(amount)
        rooms = [make_replica(redis, settings, clock, n) for n in range(amount.replicas)]
        await asyncio.gather(*(room.refresh() for room in rooms))
        await redis.config_set("slowlog-log-slower-than", LOGGED_US)
        await redis.config_set("slowlog-max-len", _LOG_LENGTH)
        await redis.slowlog_reset()
        began = time.perf_counter()
        answers = await ask_each(lambda _: _join(rooms[0]), range(amount.visitors), _AT_ONCE)
        joined_s = time.perf_counter() - began
        tickets = [answer.token for answer in answers if isinstance(answer.token, Ticket)]
        await ask_each(lambda ticket: _poll(rooms[0], ticket), tickets, _AT_ONCE)
        before = await _take_durations(redis)
        random.Random(1).shuffle(tickets)
        clock.still_ms = OPENS_MS
        clock.go()
        first_s, last_s, called, problems = await _open(rooms, tickets, amount)
        after = await _take_durations(redis)
        problems += await _find_misplaced(redis, rooms[0], tickets, amount)
    return Opening(joined_s, first_s, last_s, called, before, after, amount.visitors, problems)


async def _take_durations(redis: Redis) -> Durations:
    """Return the durations in Redis' slow log, and clear the log."""
    names = {function: f"{verb}.lua" for verb, function in library("rooms").functions.items()}
    durations: Durations = {}
    entries: list[dict[str, Any]] = await redis.slowlog_get(_LOG_LENGTH)
    for entry in entries:
        verb, _, rest = entry["command"].decode(errors="replace").partition(" ")
        name = names.get(rest.partition(" ")[0], verb) if verb == "FCALL" else verb
        if verb not in ("SLOWLOG", "SCRIPT", "CONFIG"):
            durations.setdefault(name, []).append(entry["duration"] / 1000)
    await redis.slowlog_reset()
    return durations


async def _open(
    rooms: list[WaitingRoom], tickets: list[Ticket], amount: Amount
) -> tuple[float, float, int, list[str]]:
    """Poll once for each visitor through one replica, while latecomers join and replicas refresh.

    Return the times of the first and the last response in seconds, the number of called visitors,
    and problems.
    """
    began = time.perf_counter()
    others = [asyncio.create_task(_repeat(room.refresh)) for room in rooms]
    # Real replicas sweep far less often.
    others.append(asyncio.create_task(_repeat(rooms[-1].store.sweep)))
    late = asyncio.create_task(ask_each(
        lambda n: _join(rooms[1 % len(rooms)], _CLASSES[n % 3]), range(amount.latecomers), 200
    ))  # fmt: skip
    answered_s: list[float] = []

    async def ask(ticket: Ticket) -> Answer:
        answer = await _poll(rooms[0], ticket)
        answered_s.append(time.perf_counter() - began)
        return answer

    answers = await ask_each(ask, tickets, _AT_ONCE)
    latecomers = await late
    for task in others:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    states = [answer.state for answer in answers]
    called = states.count(VisitorState.ADMITTED)
    problems = []
    if called + states.count(VisitorState.WAITING) < amount.visitors:
        problems.append(f"{amount.visitors} joined: {called} were called, "
                        f"{states.count(VisitorState.WAITING)} wait")  # fmt: skip
    if {answer.state for answer in latecomers} - {VisitorState.WAITING}:
        problems.append("latecomers were let in before the pre-queue")
    return answered_s[0], answered_s[-1], called, problems


async def _find_misplaced(
    redis: Redis, room: WaitingRoom, tickets: list[Ticket], amount: Amount
) -> list[str]:
    """Return a problem unless all visitors are in the order of the draw."""
    if not isinstance(room.draws, Draws):
        return ["nothing is drawn"]
    drawn: list[Any] = await redis.zrange(room_key(NAME, "drawn"), 0, -1)
    secret = room.draws.get_secret(room.settings.events[0])
    by_lots = sort_by_lot(secret, (ticket.visitor for ticket in tickets))
    if [text(visitor) for visitor in drawn] != by_lots or len(by_lots) != amount.visitors:
        return [f"{len(drawn)} of {amount.visitors} stand in the list, or not by their lots"]
    return []


async def _join(room: WaitingRoom, class_name: str = "") -> Answer:
    bearer = Bearer(class_name=class_name, has_waited=True)
    return await room.check(None, may_join=True, from_page=True, bearer=bearer)


async def _poll(room: WaitingRoom, ticket: Ticket) -> Answer:
    return await room.check(ticket, may_join=False)


async def _repeat(call: Callable[[], Awaitable[object]]) -> None:
    while True:
        await call()
        await asyncio.sleep(REFRESH_MS / 1000)


def report(openings: Rounds[str, Opening], amount: Amount) -> Report:
    made = openings.of(NAME)
    problems = list(openings.problems)
    longest_ms = openings.median(NAME, "longest_ms")
    if longest_ms > GOAL_MS:
        problems.append(f"a script held Redis for {longest_ms:.1f} ms, more than {GOAL_MS}")
    figures = {"amount": amount, "goal_ms": GOAL_MS, "rounds": made}
    values = {
        "amount": amount, "cap": settings_of(amount).total_active_users, "openings": openings,
        "after": _rank([each.after for each in made]),
        "before": _rank([each.before for each in made]),
        "value": lambda name: openings.values(NAME, name),
    }  # fmt: skip
    return Report("opening", values, figures, problems=problems)


def _rank(rounds: Sequence[Durations]) -> dict[str, list[list[float]]]:
    """Return the durations of each round by command: scripts first, and then the longest first."""
    held: dict[str, list[list[float]]] = {}
    for durations in rounds:
        for name, some in durations.items():
            held.setdefault(name, []).append(some)
    longest = {name: max(map(max, some)) for name, some in held.items()}
    names = sorted(held, key=lambda name: (not name.endswith(".lua"), -longest[name]))
    return {name: held[name] for name in names}
