"""How events make up stays, and what stays say of a room."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.history.model import Entry, Event
from sidecar.history.report import Tally, inversions, seconds
from sidecar.history.schemas import Report
from sidecar.history.service import fold, positions

_ids = itertools.count()


def event(kind, why, at, **more):
    told = {name: str(value) for name, value in more.items()}
    return Event(at, next(_ids), kind, "v", why, at, told)


def report(entries):
    tally = Tally()
    for entry in entries:
        tally.add(entry)
    return Report(**tally.figures())


def story(*events):
    entry = None
    for one in events:
        entry = fold(entry, one)
    return entry


JOINED = event("joined", "new", 10, order=7, joined=10, position=4)


def test_a_stay_from_end_to_end():
    """Joined, called, admitted, gone: each time is kept, and both positions."""
    entry = story(
        JOINED,
        event("called", "head", 50, position=1),
        event("admitted", "claimed", 60, order=7, joined=10),
        event("expired", "session", 90),
    )
    times = entry.joined_ms, entry.queued_ms, entry.called_ms, entry.admitted_ms, entry.ended_ms
    assert times == (10, 10, 50, 60, 90)
    assert (entry.queue_order, entry.first_position, entry.last_position) == (7, 4, 1)
    assert (entry.end_reason, entry.returns, entry.changed_ms) == ("session", 0, 90)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (event("left", "waiting", 20, position=2), "left"),
        (event("released", "session", 20), "released"),
        (event("released", "unseen", 20), "unseen"),
        (event("expired", "swept", 20, position=3), "swept"),
        (event("expired", "no_show", 20), "no_show"),
    ],
)
def test_how_a_stay_ends(last, reason):
    """Why, and at which position where it was in line."""
    entry = story(JOINED, last)
    assert (entry.ended_ms, entry.end_reason) == (20, reason)
    assert entry.last_position == (last.number("position") or 4)


def test_whoever_comes_back_goes_on():
    """In line since then; the beginning and the first position stay."""
    entry = story(
        JOINED,
        event("called", "head", 20, position=1),
        event("expired", "no_show", 30),
        event("joined", "ticket", 40, order=7, joined=10),
    )
    assert (entry.joined_ms, entry.queued_ms, entry.first_position) == (10, 40, 4)
    assert (entry.called_ms, entry.ended_ms, entry.end_reason, entry.returns) == (
        None,
        None,
        None,
        1,
    )


def test_a_session_that_the_store_lost_comes_back():
    """Restored: inside since the beginning, and not at an end."""
    entry = story(
        event("admitted", "at_once", 5, order=3, joined=5), event("admitted", "restored", 9)
    )
    assert (entry.admitted_ms, entry.queued_ms, entry.returns, entry.ended_ms) == (5, None, 1, None)


def test_a_stay_that_began_before_there_was_a_history():
    """Its claim says when it joined; its end alone leaves the beginning open."""
    entry = story(event("admitted", "claimed", 60, order=7, joined=10))
    assert (entry.joined_ms, entry.queue_order, entry.queued_ms) == (10, 7, 10)
    entry = story(event("admitted", "restored", 60, order=7, joined=10))
    assert (entry.joined_ms, entry.queued_ms, entry.returns) == (10, None, 1)
    entry = story(event("expired", "session", 90))
    assert (entry.joined_ms, entry.ended_ms) == (None, 90)


def waited(joined, called, order=None, **more):
    order = joined if order is None else order
    return Entry(
        "v", queue_order=order, joined_ms=joined, queued_ms=joined, called_ms=called, **more
    )


def test_what_a_report_counts():
    """Every stay is one of: let in at once or after a wait, waiting, given up, no-show, or taken
    out; shares are of those who joined the line."""
    told = report(
        [
            Entry("v", joined_ms=0, admitted_ms=0, ended_ms=7000, end_reason="session"),
            Entry("v", joined_ms=0, admitted_ms=0),
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
    assert (told.stays, told.admitted_at_once, told.admitted_after_wait) == (10, 2, 2)
    assert (told.waiting, told.inside, told.abandoned, told.no_shows) == (1, 2, 2, 1)
    assert (told.reset, told.stuck, told.released, told.moved) == (1, 1, 0, 1)
    assert (told.abandonment, told.no_show_share) == (0.25, 0.125)
    assert (told.wait_p50, told.wait_max, told.gave_up_after_p50) == (2.0, 4.0, 1.0)
    assert (told.inside_p50, told.inside_p90) == (7.0, 7.0)


def test_a_report_of_nobody():
    """Counts are 0, and shares and times are unknown, not 0."""
    told = report([])
    assert (told.stays, told.abandonment, told.wait_p50, told.inversions) == (0, None, None, 0)


def test_percentiles_by_nearest_rank():
    """Of 1 to 100 seconds."""
    values = [1000 * n for n in range(100, 0, -1)]
    assert seconds(values, (0.5, 0.9, 0.99, 1.0)) == [50, 90, 99, 100]


def test_who_is_called_in_order_is_no_inversion():
    """Whoever joined after somebody behind was called neither; those whom an operator moved are
    counted apart."""
    assert report([waited(1, 10), waited(2, 20), waited(3, 20)]).inversions == 0
    assert report([waited(1, 30), waited(2, 20)]).inversions == 1
    late = Entry("v", queue_order=1, joined_ms=1, queued_ms=25, called_ms=30)
    assert report([waited(2, 20), late]).inversions == 0
    assert report([waited(1, 30, moved_ms=5), waited(2, 20)]).inversions == 0
    assert report([waited(1, 30, returns=1), waited(2, 20)]).inversions == 0


CALLS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)), max_size=25)


@given(CALLS)
def test_inversions_are_those_that_looking_at_every_pair_finds(calls):
    """(called, order, in line since): somebody behind was called strictly before, and strictly
    after this one had joined."""
    expected = sum(
        any(queued < at < called and behind > order for at, behind, _ in calls)
        for called, order, queued in calls
    )
    assert inversions(list(calls)) == expected


def test_a_place_over_time():
    """From those ahead: two when it joined, one leaves, one comes back, until it is called."""
    entry = waited(100, 200)
    ahead = [(10, 150), (20, None), (160, None), (5, 90), (300, None)]
    assert positions(entry, ahead) == [(100, 3), (150, 2), (160, 3)]
    assert positions(Entry("v", admitted_ms=5), []) == []
