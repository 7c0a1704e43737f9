"""The range of an estimate, and the scripts' estimate in rooms of known history."""

import asyncio
import math
import random

import pytest

from sidecar.visitors.estimate import estimate, round_range
from sidecar.visitors.model import QueueOutcome, Standing, Ticket
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS
from tests.support.visitors import beat_all, call_in_batches, pass_of, queue

HOLD_S = RELEASE_HOLD_MS / 1000


def standing(wait_ms: int | None, *, ahead: int = 100, spread: float = 0.1) -> Standing:
    return Standing(QueueOutcome.WAITING, 0, ahead=ahead, wait_ms=wait_ms, spread=spread)


def test_what_cannot_be_known_is_none():
    """No number is made up where the scripts gave none, or nothing but the settings' guess."""
    assert estimate(standing(None)) is None
    assert not standing(None, spread=1).is_measuring
    assert estimate(standing(600_000, spread=1)) is None
    assert standing(600_000, spread=1).is_measuring


@pytest.mark.parametrize("middle", [*range(5, 3600, 37), *range(3600, 60_000, 1111)])
@pytest.mark.parametrize("side", [1.01, 1.3, 1.6, 2, 5])
def test_what_is_shown_is_short_and_holds_the_estimate(middle, side):
    """Shown are a range of less than 3:1 that holds the true one, or one figure near the middle;
    "less than" is said of short waits only."""
    low, high = round_range(middle / side, middle, middle * side)
    if 0 < low < high:
        assert 60 * low <= middle / side < middle * side <= 60 * high < 180 * low
    elif low:
        assert 0.75 * middle <= 60 * low <= 1.35 * middle
    else:
        assert middle * side <= 60 * high < 15 * 60


@pytest.mark.parametrize("ahead", [0, 1, 4, 50, 10_000])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("wait_ms", [0, 1, 1499, 60_000, 86_400_000])
def test_the_range_holds_the_estimate_and_is_never_negative(wait_ms, ahead, spread):
    wait = estimate(standing(wait_ms, ahead=ahead, spread=spread))
    assert 0 <= wait.low <= wait.seconds <= wait.high


def test_a_better_known_rate_makes_a_narrower_range():
    sure, unsure = (estimate(standing(600_000, spread=s)) for s in (0.05, 0.4))
    assert unsure.low < sure.low < sure.high < unsure.high


@pytest.mark.parametrize("ahead", [0, 1, 9, 99])
def test_the_range_holds_four_random_waits_in_five(ahead):
    """At a known rate, the wait for k calls at random moments is gamma distributed."""
    rng = random.Random(ahead)
    waits = [rng.gammavariate(ahead + 1, 600 / (ahead + 1)) for _ in range(4000)]
    wait = estimate(standing(600_000, ahead=ahead, spread=0))
    held = sum(wait.low <= w <= wait.high for w in waits) / len(waits)
    assert 0.78 <= held <= 0.84


# ---- The scripts' own number


async def line_up(store, people: int) -> list[Ticket]:
    """So many newcomers who have to wait; they have polled once, as told."""
    tickets = await queue(store, people)
    await beat_all(store, tickets)
    return tickets


async def fill(store, slots: int) -> list[str]:
    names = [f"inside{number:016d}" for number in range(slots)]
    standings = await call_in_batches(store.enter, names)
    assert {standing.outcome for standing in standings} <= {QueueOutcome.ADMITTED}
    await call_in_batches(store.renew, list(map(pass_of, names, standings)))
    return names


async def test_before_anything_was_measured_the_settings_speak(make_room_store):
    """total_active_users / session_duration calls a second."""
    store = make_room_store(total_active_users=10, session_duration=100)
    await fill(store, 10)
    last = (await line_up(store, 20))[-1]
    told = await store.beat(last)
    assert (told.ahead, told.wait_ms) == (19, 200_000)
    assert told.spread > 0.4


@pytest.mark.parametrize("settings", [{"queue_all": True}, {"total_active_users": 0}])
async def test_a_room_that_calls_nobody_promises_nothing(make_room_store, settings):
    store = make_room_store(**settings)
    told = await store.enter("v" * 22)
    assert told.outcome is QueueOutcome.WAITING
    assert told.wait_ms is None
    assert (await store.snapshot()).wait_ms is None


@pytest.mark.parametrize(("cap", "inside"), [(1, 0), (2, 0), (2, 1), (9, 5)])
@pytest.mark.parametrize("limit", [None, 60])
async def test_a_free_slot_and_nobody_waiting_is_no_wait(make_room_store, turn, cap, inside, limit):
    """The next newcomer is let in at once, however long a slot is held."""
    store = make_room_store(total_active_users=cap, new_users_per_minute=limit)
    for number in range(inside):
        turn.forward(1)
        await store.enter(f"inside{number:016d}")
    turn.forward(1)
    assert (await store.snapshot()).wait_ms == 0


async def test_a_free_slot_that_the_rate_limit_keeps_is_a_short_wait(make_room_store, turn):
    """The next one is let in when the limit allows it, in seven of ten seconds."""
    store = make_room_store(total_active_users=9, new_users_per_minute=6)
    await fill(store, 1)
    turn.forward(3)
    assert (await store.snapshot()).wait_ms == pytest.approx(7000, abs=1)
    told = await store.enter("v" * 22)
    assert (told.outcome, told.wait_ms) == (QueueOutcome.WAITING, pytest.approx(7000, abs=1))


async def test_in_one_batch_who_comes_after_the_last_free_slot_waits(make_room_store):
    """An earlier estimate in the batch, for a refused visitor, does not count for the next one."""
    store = make_room_store(session_duration=300, max_places_per_address=1)
    await store.enter("a" * 22, address="a")
    await store.configure({"total_active_users": 2})
    names = {"b" * 22: "a", "c" * 22: "c", "d" * 22: "d"}
    told = await asyncio.gather(*(store.enter(name, address=at) for name, at in names.items()))
    outcomes = [QueueOutcome.FULL, QueueOutcome.ADMITTED, QueueOutcome.WAITING]
    assert [standing.outcome for standing in told] == outcomes
    assert told[-1].wait_ms == 150_000


@pytest.mark.slow
async def test_slots_that_are_free_already_shorten_the_wait(make_room_store, turn):
    """A script calls so many at a time; those who are next do not wait for others to leave."""
    store = make_room_store(total_active_users=0, session_duration=300)
    tickets = await line_up(store, 450)
    await store.configure({"total_active_users": 1000})
    turn.forward(1)
    snapshot = await store.snapshot()
    assert (snapshot.waiting > 0, snapshot.wait_ms) == (True, 0)
    assert (await store.beat(tickets[-1])).outcome is QueueOutcome.ADMITTED


async def test_further_back_waits_longer(make_room_store):
    store = make_room_store(total_active_users=3)
    await fill(store, 3)
    waits = [(await store.beat(ticket)).wait_ms for ticket in await line_up(store, 30)]
    assert waits == sorted(set(waits))
    assert waits[0] > 0


async def serve(store, turn, inside: list[str], tickets: list[Ticket], stay_s: float):
    """Everybody in turn, each for so long; what the last in line is told each time."""
    told = []
    while len(tickets) > 1:
        turn.forward(stay_s - HOLD_S)
        await store.leave(inside.pop(0), why="released")
        turn.forward(HOLD_S)
        for ticket in list(tickets):
            now = await store.beat(ticket)
            if now.outcome is QueueOutcome.ADMITTED:
                inside.append(ticket.visitor)
                tickets.remove(ticket)
        told.append(now)
    return told


@pytest.mark.slow
@pytest.mark.parametrize("cap", [1, 2, 5])
async def test_a_small_room_learns_how_long_people_really_stay(make_room_store, turn, cap):
    """session_duration is far from the truth; after a few dozen ends the room knows."""
    store = make_room_store(total_active_users=cap, session_duration=300)
    inside = await fill(store, cap)
    told = await serve(store, turn, inside, await line_up(store, 40), 30)
    first, late = told[0], told[-9]
    assert first.wait_ms > 1.5 * (first.ahead + 1) * 30_000
    assert late.wait_ms == pytest.approx((late.ahead + 1) * 30_000, rel=0.25)
    assert late.spread < 0.3
    measuring = [standing.is_measuring for standing in told]
    assert measuring == sorted(measuring, reverse=True)
    assert 8 <= measuring.count(True) <= 16  # some ten


async def test_those_who_leave_shorten_the_wait(make_room_store, turn):
    """The share of visitors who give up is measured, and expected of the others."""
    store = make_room_store(total_active_users=2, session_duration=60, heartbeat_timeout=3600)
    await fill(store, 2)
    tickets = await line_up(store, 60)
    for ticket in tickets[:20]:
        turn.forward(30)
        await store.leave(ticket.visitor)
    told = await store.beat(tickets[-1])
    assert told.ahead < 40
    assert told.wait_ms < 0.9 * (told.ahead + 1) * 30_000


async def test_the_silent_are_not_counted_as_ahead(make_room_store, turn):
    """Nobody swept yet, but the one who still polls does not wait for the others."""
    store = make_room_store(session_duration=600)
    await fill(store, 1)
    *_, last = await line_up(store, 10)
    for _ in range(16):
        turn.forward(20)
        told = await store.beat(last)
    assert told.ahead == 9
    assert told.wait_ms < 2 * 600_000


async def test_the_rate_limit_bounds_the_rate(make_room_store):
    """new_users_per_minute lets in 6 a minute, however many slots would come free."""
    store = make_room_store(total_active_users=1000, session_duration=10, new_users_per_minute=6)
    while (await store.enter(f"{random.random():.20f}")).outcome is QueueOutcome.ADMITTED:
        pass
    last = (await line_up(store, 59))[-1]
    told = await store.beat(last)
    assert told.wait_ms == (told.ahead + 1) * 10_000
    assert not told.is_measuring  # the limit is the rate


async def test_free_slots_are_filled_at_the_limit_then_at_the_rooms_pace(make_room_store):
    """100 slots at 60 a minute; once they are full, one comes free every 6 seconds."""
    store = make_room_store(total_active_users=100, session_duration=600, new_users_per_minute=60)
    while (await store.enter(f"{random.random():.20f}")).outcome is QueueOutcome.ADMITTED:
        pass
    tickets = await line_up(store, 200)
    early, late = await store.beat(tickets[49]), await store.beat(tickets[-1])
    assert early.wait_ms == pytest.approx((early.ahead + 1) * 1000, rel=0.05)
    assert late.wait_ms == pytest.approx(107_000 + 95 * 6000, rel=0.1)


async def test_a_lowered_cap_has_to_empty_first(make_room_store):
    """Of 100 inside, 50 go before anybody is called: ln 2 stays."""
    store = make_room_store(total_active_users=100, session_duration=100)
    await fill(store, 100)
    (ticket,) = await line_up(store, 1)
    await store.configure({"total_active_users": 50})
    told = await store.beat(ticket)
    assert told.wait_ms == pytest.approx(100_000 * math.log(2) + 2000, rel=0.02)


# ---- When to come back


@pytest.mark.parametrize(
    ("people", "settings", "least", "most"),
    [
        (1, {}, 2000, 2500),  # near the door
        (30, {"total_active_users": 10, "session_duration": 100}, 30_000, 37_500),
        (30, {"session_duration": 3600}, 48_000, 60_000),  # a minute at most
        (30, {"heartbeat_interval": 7}, 7000, 7000),
        (30, {"session_duration": 3600, "heartbeat_timeout": 30}, 15_000, 15_000),
        (30, {"queue_all": True}, 48_000, 60_000),
    ],
)
async def test_the_next_poll_is_a_tenth_of_the_wait_away(
    make_room_store, people, settings, least, most
):
    store = make_room_store(**settings)
    if not settings.get("queue_all"):
        await fill(store, settings.get("total_active_users", 1))
    last = (await line_up(store, people))[-1]
    told = await store.beat(last)
    assert least <= told.refresh_ms <= most
