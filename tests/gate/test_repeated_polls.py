"""Who asks again within a moment."""

import pytest

from sidecar.gate.repeated_polls import MOMENT_S, Repeats


@pytest.mark.parametrize("began_s", [100.0, 100.7, 101.9])
def test_a_repeat_is_one_within_a_moment(began_s):
    """A second poll within a moment is a repeat, wherever in a period the first one fell."""
    repeats = Repeats()
    repeats.is_repeated("somebody", 100.0)
    assert not repeats.is_repeated("v", began_s)
    assert repeats.is_repeated("v", began_s)
    assert repeats.is_repeated("v", began_s + MOMENT_S - 0.01)
    assert not repeats.is_repeated("other", began_s + MOMENT_S - 0.01)
    assert not repeats.is_repeated("v", began_s + 2 * MOMENT_S)


def test_who_asks_as_told_is_no_repeat():
    repeats = Repeats()
    assert not any(repeats.is_repeated("v", 100 + n * MOMENT_S) for n in range(10))


def test_visitors_are_forgotten():
    repeats = Repeats()
    for number in range(1000):
        repeats.is_repeated(str(number), 100 + number)
    assert len(repeats) <= 2 * MOMENT_S
