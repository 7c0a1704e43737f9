"""What an operator sees: steps of time, and percentiles of waits."""

from dataclasses import replace

import pytest

from sidecar.rooms.settings import RoomSettings
from sidecar.rooms.statistics import (
    HOUR_MS,
    MINUTE_MS,
    compute_growth,
    compute_steps,
    compute_wait_percentiles,
    name_state,
)
from sidecar.rooms.store.replies import Snapshot
from sidecar.visitors.model import Phase

#: A room of two slots in which one visitor is.
SNAPSHOT = Snapshot(*(1_000, 0, 1, 0, 0, 0, None, {}, {}, {}, 0, 0, 0, 0, 0, 1))


def sample(minute, *, waiting=0, wait_ms=-1, **totals):
    return {
        "minute": minute,
        "waiting": waiting,
        "active": 1,
        "cap": 2,
        "wait_ms": wait_ms,
        "totals": totals,
    }


@pytest.mark.parametrize(
    ("settings", "snapshot", "state"),
    [
        ({}, {}, "running"),
        ({}, {"active": 2}, "at_cap"),
        ({}, {"active": 3, "waiting": 9}, "at_cap"),
        ({"total_active_users": 0}, {"active": 3}, "cap_0"),
        ({}, {"active": 2, "phase": Phase.PREQUEUE}, "prequeue"),
        ({"total_active_users": 0}, {"phase": Phase.CLOSED}, "closed"),
        ({"max_waiting": 0}, {"phase": Phase.CLOSED}, "draining"),
        ({"queue_all": True, "max_waiting": 0}, {}, "paused"),
        ({"suspended": True, "queue_all": True}, {"active": 2}, "off"),
        ({"suspended": True}, {"recovery_stage": 2}, "recovering"),
        ({"queue_all": True}, {"recovery_stage": 1}, "paused"),
        ({"queue_all": True}, None, "no_redis"),
    ],
)
def test_a_room_has_one_state(settings, snapshot, state):
    """What an operator has set goes before the events, and both before whether a slot is free."""
    found = None if snapshot is None else replace(SNAPSHOT, **snapshot)
    assert name_state(RoomSettings(**{"total_active_users": 2, **settings}), found) == state


def test_a_minute_is_the_difference_of_two_samples():
    """Steps are sorted oldest first, and all kinds of giving up are counted."""
    latest_first = [
        sample(12, waiting=3, wait_ms=2500, joined=9, admitted=4, expired_swept=2, left_waiting=1),
        sample(11, joined=5, admitted=4, expired_swept=1),
        sample(10, joined=5, admitted=1),
    ]
    first, second = compute_steps(latest_first, 0, HOUR_MS)
    assert (first.joined, first.admitted, first.abandoned, first.wait_half) == (0, 3, 1, None)
    assert (second.joined, second.admitted, second.abandoned) == (4, 0, 2)
    assert (second.from_ms, second.ends_ms) == (660_000, 720_000)
    assert second.waiting == 3
    assert compute_steps(latest_first, 11 * MINUTE_MS, HOUR_MS) == [second]
    assert compute_steps(latest_first, 0, 11 * MINUTE_MS) == [first]
    assert compute_steps([], 0, HOUR_MS) == compute_steps([sample(1)], 0, HOUR_MS) == []


def test_steps_end_where_the_clock_does():
    """The last step is shorter. The sum of all steps is the growth of the counters, also if minutes
    are missing."""
    known = [sample(n, admitted=n * n, wait_4=n) for n in range(23, 2, -1) if n not in {7, 10}]
    found = compute_steps(known, 0, HOUR_MS, 5 * MINUTE_MS)
    ends = [(each.from_ms // MINUTE_MS, each.ends_ms // MINUTE_MS) for each in found]
    assert ends == [(3, 5), (5, 11), (11, 15), (15, 20), (20, 23)]
    assert sum(each.admitted for each in found) == 23 * 23 - 3 * 3
    assert all(4 <= each.wait_half <= each.wait_most <= 4 * 2**0.5 for each in found)
    assert compute_steps(known[:1], 0, HOUR_MS, 5 * MINUTE_MS) == []


def test_a_counter_that_went_down_began_anew():
    """Redis was emptied in between."""
    assert compute_growth({"joined": 3, "left": 7}, {"joined": 10, "left": 5}) == {
        "joined": 3,
        "left": 2,
    }


def test_percentiles_are_read_from_half_octaves():
    """With a hundred waits of 8 to 11 s and one of an hour, the median is among the hundred."""
    new = {"wait_6": 110, "wait_23": 1, "wait_ms": 5, "waited_ms": 99, "joined": 200}
    waits = compute_wait_percentiles(new, {"wait_6": 10}, (0.5, 0.9, 1.0))
    assert 8 <= waits[0.5] <= 8 * 2**0.5
    assert waits[0.5] < waits[0.9] <= 8 * 2**0.5
    assert 2**11.5 <= waits[1.0] <= 2**12


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_nobody_waited(share):
    """Without waits there is no percentile, rather than 0."""
    assert compute_wait_percentiles({"joined": 3}, {}, (share,)) == {share: None}
