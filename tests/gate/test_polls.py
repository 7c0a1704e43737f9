"""Which polls repeat the one before."""

import pytest

from sidecar.gate.polls import REPEAT_S, RecentPolls


@pytest.mark.parametrize("began_s", [100.0, 100.7, 101.9])
def test_a_repeat_is_one_within_a_moment(began_s):
    """A second poll within a moment is a repeat, wherever in a period the first one fell."""
    polls = RecentPolls()
    polls.is_repeated("somebody", 100.0)
    assert not polls.is_repeated("v", began_s)
    assert polls.is_repeated("v", began_s)
    assert polls.is_repeated("v", began_s + REPEAT_S - 0.01)
    assert not polls.is_repeated("other", began_s + REPEAT_S - 0.01)
    assert not polls.is_repeated("v", began_s + 2 * REPEAT_S)


def test_who_asks_as_told_is_no_repeat():
    polls = RecentPolls()
    assert not any(polls.is_repeated("v", 100 + n * REPEAT_S) for n in range(10))


def test_visitors_are_forgotten():
    polls = RecentPolls()
    for number in range(1000):
        polls.is_repeated(str(number), 100 + number)
    assert len(polls._new_polls) + len(polls._old_polls) <= 2 * REPEAT_S
