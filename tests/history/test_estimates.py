"""The record of the wait estimate: what a room promised, and how long visitors then waited."""

import time

import pytest

from sidecar.history.model import Period, Promise
from sidecar.history.report import compute_estimate_steps, compute_record, make_report
from sidecar.visitors.estimate import Wait
from sidecar.visitors.model import QueueOutcome
from sidecar.visitors.verdict_lifetime import RELEASE_HOLD_MS
from tests.support.visitors import go_in, queue

STAY_S, HOUR = 30, 3_600_000


@pytest.fixture
async def sold(record, database, turn):
    """Record a sale: one slot, 40 visitors who wait and stay half a minute, and a snapshot after
    each. The settings say five minutes. One visitor is moved by an operator."""
    it = await record(database.url, session_duration=300, heartbeat_timeout=3600)
    store, inside = it.room.store, (await go_in(it.room.store)).visitor
    tickets = await queue(store, 40)
    it.entered, it.moved = {}, tickets[-1].visitor
    await store.move(it.moved, position=1, by="night shift")
    while inside:
        turn.forward(STAY_S - RELEASE_HOLD_MS / 1000)
        await store.leave(inside, why="released")
        turn.forward(RELEASE_HOLD_MS / 1000)
        inside = None
        for ticket in tickets:
            if ticket.visitor not in it.entered:
                standing = await store.beat(ticket)
                if standing.outcome is QueueOutcome.ADMITTED:
                    inside = ticket.visitor
                    it.entered[inside] = standing.now_ms
        await store.snapshot()
    await it.record()
    # Events are numbered by the server's own clock, which the test does not set.
    it.period = Period(0, max(turn(), time.time_ns() // 1_000_000) + 1)
    return it


async def test_the_record_of_a_sale(sold):
    """Once a minute the promises to four visitors are recorded, but none while the room measures;
    each is compared with the wait of that visitor."""
    promises = await sold.history.find_promises(sold.room.name, sold.period)
    assert len({promise.at_ms for promise in promises}) >= 10
    assert promises[0].at_ms - min(sold.entered.values()) >= 10 * STAY_S * 1000
    entries = set(sold.entered.values())
    assert {round(one.at_ms + 1000 * one.waited_s) for one in promises} < entries
    assert sold.entered[sold.moved] == min(entries)
    assert len(await sold.history.find_promises(sold.room.name, sold.period, limit=3)) == 3
    report = await make_report(sold.history, sold.room.name, sold.period)
    assert (report.estimates, report.estimates_held) == (len(promises), 1)
    assert report.estimate_error_p50 < 0.3
    later = Period(sold.period.to_ms, sold.period.to_ms + HOUR)
    report = await make_report(sold.history, sold.room.name, later)
    assert (report.estimates, report.estimates_held, report.estimate_error_p50) == (0, None, None)


def test_what_the_record_says():
    """A range holds its ends; errors are shares of the real wait; steps have medians."""
    wait = Wait(100, 80, 140)
    promises = [Promise(at, wait, waited) for at, waited in ((1, 80), (2, 50), (60_000, 141))]
    assert compute_record(promises) == {
        "estimates": 3, "estimates_held": 0.3333, "estimate_error_p50": 0.2908,
    }  # fmt: skip
    first, second = compute_estimate_steps(promises, 60_000)
    assert (first.estimates, first.held, first.waited, first.promised_low) == (2, 0.5, 65, 80)
    assert (second.at, second.held) == ("1970-01-01T00:01:00.000+00:00", 0)
