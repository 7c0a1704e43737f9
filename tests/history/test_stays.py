"""How events change a stay, and what a report counts."""

import functools
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.history.model import Stay, StreamEvent
from sidecar.history.report import Tally, compute_percentiles_s, count_inversions
from sidecar.history.schemas import Report
from sidecar.history.stays import apply_event, compute_positions

_ids = itertools.count()


def event(kind, why, at, **more):
    told = {name: str(value) for name, value in more.items()}
    return StreamEvent(at, next(_ids), kind, "v", why, at, told)


def report(entries):
    tally = Tally()
    for entry in entries:
        tally.add(entry)
    return Report(**tally.compute_figures())


JOINED = event("joined", "new", 10, order=7, joined=10, position=4)
CALLED = event("called", "head", 20, position=1)
CLAIMED = event("admitted", "claimed", 60, order=7, joined=10)
AT_ONCE = event("admitted", "at_once", 5, order=3, joined=5)
RESTORED = event("admitted", "restored", 60, order=7, joined=10)

#: By claim: events of a visitor, and what the stay has then.
STAYS = {
    "joined, called, admitted, gone: each time is kept, and both positions": (
        [JOINED, CALLED, CLAIMED, event("expired", "session", 90)],
        {"joined_ms": 10, "queued_ms": 10, "called_ms": 20, "admitted_ms": 60, "ended_ms": 90,
         "queue_order": 7, "first_position": 4, "last_position": 1, "end_reason": "session",
         "returns": 0, "changed_ms": 90},
    ),
    "left, with the position": (
        [JOINED, event("left", "waiting", 20, position=2)],
        {"ended_ms": 20, "end_reason": "left", "last_position": 2},
    ),
    "released by the site": (
        [JOINED, event("released", "session", 20)],
        {"ended_ms": 20, "end_reason": "finished", "last_position": 4},
    ),
    "released by an operator, whose action is the next event": (
        [JOINED, event("released", "session", 20), event("operator", "release", 20)],
        {"ended_ms": 20, "end_reason": "released", "last_position": 4},
    ),
    "unseen": (
        [JOINED, event("released", "unseen", 20)],
        {"ended_ms": 20, "end_reason": "unseen", "last_position": 4},
    ),
    "swept, with the position": (
        [JOINED, event("expired", "swept", 20, position=3)],
        {"ended_ms": 20, "end_reason": "swept", "last_position": 3},
    ),
    "did not come": (
        [JOINED, event("expired", "no_show", 20)],
        {"ended_ms": 20, "end_reason": "no_show", "last_position": 4},
    ),
    "whoever comes back waits since then; the beginning and the first position stay": (
        [JOINED, CALLED, event("expired", "no_show", 30),
         event("joined", "ticket", 40, order=7, joined=10)],
        {"joined_ms": 10, "queued_ms": 40, "first_position": 4, "called_ms": None,
         "ended_ms": None, "end_reason": None, "returns": 1},
    ),
    "a session that the store lost is inside since the beginning": (
        [AT_ONCE, event("admitted", "restored", 9)],
        {"admitted_ms": 5, "queued_ms": None, "returns": 1, "ended_ms": None},
    ),
    "a claim says when a stay before the history joined": (
        [CLAIMED], {"joined_ms": 10, "queue_order": 7, "queued_ms": 10},
    ),
    "a restored session too": ([RESTORED], {"joined_ms": 10, "queued_ms": None, "returns": 1}),
    "an end alone leaves the beginning open": (
        [event("expired", "session", 90)], {"joined_ms": None, "ended_ms": 90},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("events", "expected"), STAYS.values(), ids=STAYS)
def test_what_events_make_of_a_stay(events, expected):
    """The stay has the expected fields after the events."""
    entry = functools.reduce(apply_event, events, None)
    assert {name: getattr(entry, name) for name in expected} == expected


def waited(joined, called, order=None, **more):
    order = joined if order is None else order
    return Stay(
        "v", queue_order=order, joined_ms=joined, queued_ms=joined, called_ms=called, **more
    )


def test_what_a_report_counts():
    """Every stay is counted once: admitted at once or after a wait, waiting, given up, no-show, or
    ended by others. Shares are of the visitors in the queue."""
    told = report(
        [
            Stay("v", joined_ms=0, admitted_ms=0, ended_ms=7000, end_reason="session"),
            Stay("v", joined_ms=0, admitted_ms=0),
            Stay("v", joined_ms=0, admitted_ms=0, ended_ms=7000, end_reason="finished"),
            Stay("v", joined_ms=0, admitted_ms=0, ended_ms=7000, end_reason="released"),
            Stay("v", joined_ms=0, admitted_ms=0, ended_ms=9000, end_reason="unused"),
            waited(0, 1000, admitted_ms=2000, ended_ms=9000, end_reason="left"),
            waited(1000, 2000, admitted_ms=5000),
            waited(2000, 3000, ended_ms=4000, end_reason="no_show"),
            waited(3000, None),
            waited(4000, None, ended_ms=9000, end_reason="swept"),
            waited(5000, None, ended_ms=6000, end_reason="left"),
            waited(6000, None, ended_ms=6001, end_reason="reset", moved_ms=1),
            waited(7000, None, ended_ms=7001, end_reason="stuck"),
        ]
    )
    assert (told.stays, told.admitted_at_once, told.admitted_after_wait) == (13, 5, 2)
    assert (told.finished, told.expired, told.left) == (1, 2, 1)
    assert (told.waiting, told.inside, told.abandoned, told.no_shows) == (1, 2, 2, 1)
    assert (told.reset, told.stuck, told.released, told.moved) == (1, 1, 1, 1)
    assert (told.abandonment, told.no_show_share) == (0.25, 0.125)
    assert (told.wait_p50, told.wait_max, told.gave_up_after_p50) == (2.0, 4.0, 1.0)
    assert (told.inside_p50, told.inside_p90) == (7.0, 7.0)


def test_a_report_of_nobody():
    """Counts are 0. Shares and times are unknown."""
    told = report([])
    assert (told.stays, told.abandonment, told.wait_p50, told.inversions) == (0, None, None, 0)


def test_percentiles_by_nearest_rank():
    """The percentiles of 1 to 100 seconds are whole seconds."""
    values = [1000 * n for n in range(100, 0, -1)]
    assert compute_percentiles_s(values, (0.5, 0.9, 0.99, 1.0)) == [50, 90, 99, 100]


def test_who_is_called_in_order_is_no_inversion():
    """A visitor who joined after the other was called is no inversion. Visitors who were moved or
    returned do not count."""
    assert report([waited(1, 10), waited(2, 20), waited(3, 20)]).inversions == 0
    assert report([waited(1, 30), waited(2, 20)]).inversions == 1
    late = Stay("v", queue_order=1, joined_ms=1, queued_ms=25, called_ms=30)
    assert report([waited(2, 20), late]).inversions == 0
    assert report([waited(1, 30, moved_ms=5), waited(2, 20)]).inversions == 0
    assert report([waited(1, 30, returns=1), waited(2, 20)]).inversions == 0


CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)), max_size=25)


@given(CALLS)
def test_inversions_are_those_that_looking_at_every_pair_finds(calls):
    """A visitor of a higher order was called strictly before, and strictly after this one had
    joined."""
    expected = sum(
        any(queued < at < called and behind > order for at, behind, _ in calls)
        for called, order, queued in calls
    )
    assert count_inversions(list(calls)) == expected


def test_a_place_over_time():
    """Two are ahead at first. One leaves and one returns before the visitor is called."""
    entry = waited(100, 200)
    ahead = [(10, 150), (20, None), (160, None), (5, 90), (300, None)]
    assert compute_positions(entry, ahead) == [(100, 3), (150, 2), (160, 3)]
    assert compute_positions(Stay("v", admitted_ms=5), []) == []
