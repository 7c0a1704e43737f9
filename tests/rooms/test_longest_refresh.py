from random import Random

import pytest

from sidecar.rooms.longest_refresh import Refreshes

OLD = 65_000


@pytest.fixture
def refreshes():
    """Return the refreshes of a replica that has run for longer than the longest refresh."""
    made = Refreshes()
    made.find_longest(0)
    return made


def test_a_young_replica_does_not_know():
    """A new replica does not know the refreshes that another replica gave before."""
    refreshes = Refreshes()
    assert refreshes.find_longest(1000) is None
    refreshes.record(2000, 1000)
    assert refreshes.find_longest(1000 + OLD - 1) is None
    assert refreshes.find_longest(1000 + OLD) == 0


def test_the_longest_that_somebody_still_waits_for_counts(refreshes):
    """The refresh counts in whole seconds, until the page, which may be late, has polled."""
    refreshes.record(29_001, OLD)
    refreshes.record(2500, OLD + 10_000)
    assert refreshes.find_longest(OLD + 33_499) == 30_000
    refreshes.record(5000, OLD + 33_499)
    assert refreshes.find_longest(OLD + 33_500) == 5000
    assert refreshes.find_longest(OLD + 33_499 + 7250) == 0


def test_it_remembers_what_a_list_of_all_would_say(refreshes):
    random, told, now = Random(5), [], OLD
    for _ in range(5000):
        now += random.choice([1, 20, 700, 6000])
        refresh = random.choice([1000, 2000, 5000, 20_000, 60_000])
        told.append((now + int(1.05 * refresh) + 2000, refresh))
        refreshes.record(refresh, now)
        told = [(until, r) for until, r in told if until > now]
        assert refreshes.find_longest(now) == max(r for _, r in told)


def test_a_clock_that_was_put_back_makes_it_young_again(refreshes):
    assert refreshes.find_longest(OLD) == 0
    assert refreshes.find_longest(-1) is None
