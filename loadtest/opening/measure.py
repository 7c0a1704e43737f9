"""An opening: a full pre-queue, replicas that refresh and sweep, everybody's first poll after it.

The room's code is the product's, from rooms/service.py on; HTTP is left out. The store's time is
turned by hand until the opening, and from then on runs.
"""

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.asyncio import Redis

from loadtest.opening import held
from loadtest.redis_server import redis_server
from sidecar.kit.clock import StoreClock
from sidecar.lottery.commitment import by_lot
from sidecar.lottery.service import Draws
from sidecar.lottery.store import DrawsStore
from sidecar.rooms.bearer import Bearer
from sidecar.rooms.redis_keys import room_key
from sidecar.rooms.service import Room
from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.store.scripts import RoomStore
from sidecar.storage.redis.driver_errors import text
from sidecar.visitors.answer import Answer
from sidecar.visitors.model import State, Ticket
from sidecar.visitors.tokens import Tokens
from sidecar.visitors.verdict_lifetime import REFRESH_MS

NAME = "sale"
OPENS_MS = 1_800_000_000_000
_KEYS = ["k" * 32]
#: Calls that wait for their replies at the same time, as of so many browsers.
_AT_ONCE = 2000
#: Polls of those in the pre-queue come last so long before the opening.
_LAST_POLL_MS = 20_000
_CLASSES = ("", "member", "partner")

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Amount:
    visitors: int = 100_000
    #: Who come while those of the pre-queue look for their places; of all classes.
    latecomers: int = 5_000
    replicas: int = 4
    rounds: int = 5


WHOLE = Amount()
QUICK = Amount(visitors=20_000, latecomers=1_000, rounds=1)


@dataclass(frozen=True, slots=True)
class Opening:
    """One round. Times of commands are ms, by name."""

    #: How long joining took, s, for all of them.
    joined_s: float
    #: From the opening until the first and until the last of them was answered, s.
    first_s: float
    answered_s: float
    #: Of them, who was called at once.
    called: int
    #: While they came and waited, and from the opening on.
    before: dict[str, list[float]]
    after: dict[str, list[float]]
    load: float
    problems: list[str] = field(default_factory=list)


def settings_of(amount: Amount) -> RoomSettings:
    """A big sale: one in fifty comes in at once; lines and classes, as they cost most."""
    event = {"name": NAME, "prequeue_from": OPENS_MS - 3_600_000, "opens_at": OPENS_MS}
    return RoomSettings.model_validate({
        "total_active_users": max(1, amount.visitors // 50),
        "events": [event],
        "lines": [{"name": "partners", "weight": 1}, {"name": "ordinary", "weight": 9}],
        "classes": {"partner": {"line": "partners"}, "member": {"head_start": "5m"}},
    })  # fmt: skip


class Clock:
    """The store's time: still, until it is set going."""

    def __init__(self, now_ms: int) -> None:
        self.still_ms = now_ms
        self._since: float | None = None

    def __call__(self) -> int:
        run_s = 0.0 if self._since is None else time.monotonic() - self._since
        return self.still_ms + int(run_s * 1000)

    def go(self) -> None:
        self._since = time.monotonic()


def make_replica(redis: Redis, settings: RoomSettings, clock: Clock, number: int) -> Room:
    own = StoreClock()
    store = RoomStore(
        redis, NAME, settings=settings.for_scripts(), clock=own, now_ms=clock, timeout_s=60,
        replica=f"replica-{number}",
    )  # fmt: skip
    draws = Draws(NAME, _KEYS, DrawsStore(redis, NAME, timeout_s=60))
    return Room(NAME, settings, Tokens(NAME, _KEYS, own), store, own, draws=draws)


async def measure(amount: Amount) -> Opening:
    """One round, with a server of its own."""
    load = os.getloadavg()[0]
    async with redis_server() as server:
        redis, clock = server.redis, Clock(OPENS_MS - _LAST_POLL_MS)
        settings = settings_of(amount)
        rooms = [make_replica(redis, settings, clock, n) for n in range(amount.replicas)]
        await asyncio.gather(*(room.refresh() for room in rooms))
        await held.watch(redis)
        began = time.perf_counter()
        answers = await _ask(lambda _: _join(rooms[0]), range(amount.visitors))
        joined_s = time.perf_counter() - began
        tickets = [answer.token for answer in answers if isinstance(answer.token, Ticket)]
        await _ask(lambda ticket: _poll(rooms[0], ticket), tickets)
        before = await held.take(redis)
        random.Random(1).shuffle(tickets)
        clock.still_ms = OPENS_MS
        clock.go()
        answered = await _open(rooms, tickets, amount)
        after = await held.take(redis)
        problems = [*answered.problems, *await _problems(redis, rooms[0], tickets, amount)]
    return Opening(
        joined_s, answered.first_s, answered.last_s, answered.called, before, after, load, problems
    )


@dataclass(frozen=True, slots=True)
class _Answered:
    first_s: float
    last_s: float
    called: int
    problems: list[str]


async def _open(rooms: list[Room], tickets: list[Ticket], amount: Amount) -> _Answered:
    """Everybody's first poll after the opening, by one replica, while latecomers come and all
    replicas do what they do every second."""
    began = time.perf_counter()
    others = [asyncio.create_task(_keep_refreshing(room)) for room in rooms]
    others.append(asyncio.create_task(_keep_sweeping(rooms[-1])))
    late = asyncio.create_task(_ask(lambda n: _join(rooms[1 % len(rooms)], _CLASSES[n % 3]),
                                    range(amount.latecomers), at_once=200))  # fmt: skip
    answered_s: list[float] = []

    async def ask(ticket: Ticket) -> Answer:
        answer = await _poll(rooms[0], ticket)
        answered_s.append(time.perf_counter() - began)
        return answer

    answers = await _ask(ask, tickets)
    came = await late
    for task in others:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    states = [answer.state for answer in answers]
    called = states.count(State.ADMITTED)
    problems = []
    if called + states.count(State.WAITING) < amount.visitors:
        problems.append(f"{amount.visitors} joined: {called} were called, "
                        f"{states.count(State.WAITING)} wait")  # fmt: skip
    if {answer.state for answer in came} - {State.WAITING}:
        problems.append("latecomers were let in before the pre-queue")
    return _Answered(answered_s[0], answered_s[-1], called, problems)


async def _problems(redis: Redis, room: Room, tickets: list[Ticket], amount: Amount) -> list[str]:
    """Whether all stand where their lots say."""
    if not isinstance(room.draws, Draws):
        return ["nothing is drawn"]
    drawn: list[Any] = await redis.zrange(room_key(NAME, "drawn"), 0, -1)
    secret = room.draws.secret(room.settings.events[0])
    by_lots = by_lot(secret, (ticket.visitor for ticket in tickets))
    if [text(visitor) for visitor in drawn] != by_lots or len(by_lots) != amount.visitors:
        return [f"{len(drawn)} of {amount.visitors} stand in the list, or not by their lots"]
    return []


async def _ask(
    ask: Callable[[_Item], Awaitable[Answer]], items: Iterable[_Item], at_once: int = _AT_ONCE
) -> list[Answer]:
    """An answer for each item, so many of them at the same time."""
    answers: list[Answer] = []
    left = iter(items)

    async def work() -> None:
        answers.extend([await ask(item) for item in left])

    await asyncio.gather(*(work() for _ in range(at_once)))
    return answers


async def _join(room: Room, class_name: str = "") -> Answer:
    bearer = Bearer(class_name=class_name, has_waited=True)
    return await room.check(None, may_join=True, from_page=True, bearer=bearer)


async def _poll(room: Room, ticket: Ticket) -> Answer:
    return await room.check(ticket, may_join=False)


async def _keep_refreshing(room: Room) -> None:
    while True:
        await room.refresh()
        await asyncio.sleep(REFRESH_MS / 1000)


async def _keep_sweeping(room: Room) -> None:
    """Far more often than replicas do."""
    while True:
        await room.store.sweep()
        await asyncio.sleep(REFRESH_MS / 1000)
