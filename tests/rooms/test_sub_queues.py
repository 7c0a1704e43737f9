"""Several lines that feed one room: their shares of the calls, and that nobody starves."""

import asyncio
from fractions import Fraction
from random import Random

import pytest

from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.tokens import new_visitor
from tests.support.joiners import claim, find_last_called, join, list_called
from tests.support.visitors import beat_all, go_in

#: A class for each line but the last.
NAMES = ("a", "b", "c")


@pytest.fixture
def store_url(redis_socket):
    """Use only redis-server, because the model checks the memory store."""
    return f"unix://{redis_socket}"


def lines_of(weights):
    """Return the settings of a room with these sub-queues, the first for class a and so on. None
    means no weights."""
    names = [*NAMES[: len(weights) - 1], "rest"]
    return {
        "lines": tuple({"name": n, "weight": w} for n, w in zip(names, weights, strict=True)),
        "classes": {name: {"line": name} for name in names[:-1]},
    }


class Lines:
    """A room with sub-queues, whose visitors are called one by one."""

    def __init__(self, redis, make, weights, **settings):
        self.redis, self.weights = redis, weights
        self.store = make(**lines_of(weights), **{"total_active_users": 0, **settings})
        self.line_of: dict[str, int] = {}
        self._cap = 0

    async def join(self, line, number=1):
        """Their tickets."""
        name = NAMES[line] if line < len(self.weights) - 1 else ""
        tickets = await asyncio.gather(*(join(self.store, name) for _ in range(number)))
        self.line_of |= {ticket.visitor: line for ticket in tickets}
        return tickets

    async def fill(self, calls):
        """So many to each line that all have people for that many calls."""
        total = sum(self.weights)
        for line, weight in enumerate(self.weights):
            await self.join(line, calls * weight // total + 3)

    async def calls(self):
        """Return the sub-queues of all called visitors, in order."""
        return [self.line_of[visitor] for visitor in await list_called(self.redis, self.store)]

    async def call(self, number):
        """Make so many calls, as many at a time as one script can. Return the sub-queues of the
        called visitors."""
        before = len(await self.calls())
        self._cap += number
        await self.store.configure({"total_active_users": self._cap})
        assert len(await self.calls()) - before == min(number, 150)
        while (await self.store.snapshot()).active < self._cap:
            pass
        return (await self.calls())[before:]


def errors(calls, weights):
    """Return the largest difference between a sub-queue's calls and its exact share, from the first
    call on and within any stretch."""
    total, busy = sum(weights), {line for line, weight in enumerate(weights) if weight}
    first = window = Fraction(0)
    for line in busy:
        off = [Fraction(0)]
        for each in calls:
            off.append(off[-1] + (each == line) - Fraction(weights[line], total))
        first = max(first, *map(abs, off))
        window = max(window, max(off) - min(off))
    return first, window


# Shares ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(7, 2, 1), (1, 2, 7), (5, 3), (1, 1, 1)], ids=str)
async def test_each_line_has_its_share_in_any_window_of_calls(redis, make_room_store, weights):
    """In any stretch of calls the share is exact within one call, and exact for as many calls as
    the weights add up to."""
    room = Lines(redis, make_room_store, weights)
    await room.fill(300)
    calls = await room.call(300)
    first, window = errors(calls, weights)
    assert first < 1
    assert window <= 1
    for round_ in zip(*[iter(calls)] * sum(weights), strict=False):
        assert [round_.count(line) for line in range(len(weights))] == list(weights)


async def test_it_makes_no_difference_how_many_a_script_calls(redis, make_room_store):
    """One, three or a hundred calls in a script give the same order."""
    sequences = []
    for number in (1, 3, 60):
        room = Lines(redis, make_room_store, (7, 2, 1))
        await room.fill(60)
        sequences.append([line for _ in range(60 // number) for line in await room.call(number)])
    assert sequences[0] == sequences[1] == sequences[2]


async def test_who_came_first_in_a_line_is_called_first_there(redis, make_room_store):
    room = Lines(redis, make_room_store, (3, 1, 2))
    for line in (0, 1, 2, 2, 1, 0) * 5:
        await room.join(line)
    await room.call(30)
    order = await list_called(redis, room.store)
    for line in range(3):
        assert [v for v in order if room.line_of[v] == line] == [
            v for v, of in room.line_of.items() if of == line
        ]


async def test_lines_that_are_empty_leave_their_share_to_the_others(redis, make_room_store):
    """The others share it by their weights. A sub-queue that fills again has its share at once,
    without credit or debt."""
    room = Lines(redis, make_room_store, (7, 2, 1))
    for present in [(7, 2, 1), (7, 2, 0), (0, 2, 1), (7, 0, 0), (7, 2, 1), (7, 0, 1), (7, 2, 1)]:
        tickets = []
        for line, weight in enumerate(present):
            if weight:
                tickets += await room.join(line, 60)
        calls = await room.call(54)
        assert set(calls) == {line for line, weight in enumerate(present) if weight}
        first, window = errors(calls, present)
        assert first < 2
        assert window < 2
        left = {ticket.visitor for ticket in tickets}.difference(
            await list_called(redis, room.store)
        )
        await asyncio.gather(*map(room.store.leave, left))


async def test_a_line_saves_nothing_while_nobody_is_in_it(redis, make_room_store):
    """A visitor who joins a sub-queue that was empty for long is not called out of turn."""
    room = Lines(redis, make_room_store, (9, 1))
    await room.join(0, 40)
    [ticket] = await room.join(1)
    assert await room.call(4) == [0] * 4
    await room.store.leave(ticket.visitor)
    await room.call(20)
    await room.join(1)
    calls = await room.call(10)
    assert calls.count(1) == 1
    assert calls.index(1) >= 3


# Nobody starves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [0, 1, 3])
async def test_nobody_starves_beside_full_lines(redis, make_room_store, absent):
    """The one visitor of a sub-queue with a small weight is called within one round of calls."""
    weights = (1, 7, 2, 5)
    single, flickers = 0, 2
    room = Lines(redis, make_room_store, weights, total_active_users=1)
    holder = (await go_in(room.store)).visitor
    await room.join(1, 200)
    await room.join(3, 140)
    gaps, since, back_in = [], 0, 0
    waiting = {single: 0, flickers: 0}
    for _ in range(300):
        back_in -= 1
        for line in (single, flickers):
            if not waiting[line] and (line == single or back_in < 0):
                await room.join(line)
                waiting[line] = 1
        assert await room.store.leave(holder, why="unseen")  # its slot is free at once
        holder = await find_last_called(redis, room.store)
        line = room.line_of[holder]
        waiting[line] = 0
        since += 1
        if line == flickers:
            back_in = absent
        if line == single:
            gaps.append(since)
            since = 0
    bound = sum(weights) / weights[single] + len(weights)
    assert max(*gaps, since) <= bound
    assert len(gaps) >= 300 * weights[single] // sum(weights) - 1


async def test_silent_heads_do_not_use_up_a_lines_call(redis, make_room_store, turn):
    """Skipped visitors do not cost their sub-queue a call."""
    room = Lines(redis, make_room_store, (7, 2, 1), claim_window=30, heartbeat_timeout=120)
    gone = Random(4)
    alive = []
    for line, number in enumerate((140, 100, 60)):
        share = (0.1, 0.5, 0.7)[line]
        alive += [t for t in await room.join(line, number) if gone.random() > share]
    turn.forward(25)
    await beat_all(room.store, alive)
    turn.forward(25)
    first, window = errors(await room.call(70), (7, 2, 1))
    assert first < 1
    assert window <= 1
    assert set(await list_called(redis, room.store)) <= {ticket.visitor for ticket in alive}
    assert (await room.store.snapshot()).counters["expired_unused"] > 20


# Strict lines, cap, rate, what is told ------------------------------------------------------------


async def test_without_weights_a_line_is_called_only_while_those_before_are_empty(
    redis, make_room_store
):
    room = Lines(redis, make_room_store, (None, None, None))
    for line in (2, 1, 0, 2, 1, 0, 2, 2, 2):
        await room.join(line)
    assert await room.call(5) == [0, 0, 1, 1, 2]
    await room.join(1)
    await room.join(0)
    assert await room.call(4) == [0, 1, 2, 2]


async def test_the_cap_and_the_rate_hold_with_lines(redis, make_room_store, turn):
    """The rate limits the calls, and the weights choose the visitors."""
    room = Lines(redis, make_room_store, (7, 2, 1), new_users_per_minute=60, claim_window=60)
    await room.fill(40)
    await room.store.configure({"total_active_users": 30})
    for second in range(40):
        assert (await room.store.snapshot()).active == min(30, second + 2)
        turn.forward(0.5)
        await room.store.snapshot()
        turn.forward(0.5)
    first, window = errors(await room.calls(), (7, 2, 1))
    assert first < 1
    assert window <= 1


async def test_each_line_has_its_own_positions(redis, make_room_store):
    """Positions begin at 1 in each sub-queue. Expected calls go by the weights and the lengths of
    the others."""
    room = Lines(redis, make_room_store, (7, 2, 1), display="order")
    await room.join(0, 20)
    second = await room.join(1, 10)
    [*_, last] = await room.join(2, 5)
    standings = await beat_all(room.store, [second[0], second[4], last])
    told = [(s.ahead, s.line, s.line_waiting, s.calls, s.waiting) for s in standings]
    assert told == [(0, 1, 10, 0, 35), (4, 1, 10, 4 + 14 + 2, 35), (4, 2, 5, 4 + 20 + 8, 35)]
    await room.call(20)
    [standing] = await beat_all(room.store, [last])
    assert (standing.ahead, standing.line_waiting) == (2, 3)
    snapshot = await room.store.snapshot()
    assert [people for people, _ in snapshot.lines] == [6, 6, 3]
    assert None not in [wait for _, wait in snapshot.lines]
    assert sum(people for people, _ in snapshot.lines) == snapshot.waiting


async def test_a_newcomer_is_told_the_place_in_the_own_line(redis, make_room_store):
    """The reply of the batch that gives the place has the position in the sub-queue."""
    room = Lines(redis, make_room_store, (None, None))
    await room.join(1, 3)
    batch = [("a", 0), ("", 3), ("a", 1), ("", 4)]
    standings = await asyncio.gather(
        *(room.store.enter(new_visitor(), claim=claim(name)) for name, _ in batch)
    )
    for standing, (name, ahead) in zip(standings, batch, strict=True):
        assert standing.outcome is QueueOutcome.WAITING
        assert (standing.ahead, standing.line) == (ahead, 0 if name else 1)
    assert [s.calls for s in standings] == [0, 4, 1, 6]
    assert [s.line_waiting for s in standings] == [1, 4, 2, 5]
