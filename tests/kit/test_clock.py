"""The store's clock, carried on by the replica's own between two replies."""

import time

import pytest

from sidecar.kit.clock import StoreClock


@pytest.fixture
def machine(monkeypatch):
    """The machine's two clocks, turned by the test."""

    class Machine:
        wall_s = 1_700_000_000.0
        running_s = 5_000.0

    now = Machine()
    monkeypatch.setattr(time, "time", lambda: now.wall_s)
    monkeypatch.setattr(time, "monotonic", lambda: now.running_s)
    return now


@pytest.fixture
def clock(machine):
    return StoreClock()


def test_before_the_first_reply_it_is_the_machines_clock(machine, clock):
    """A replica that has not met its store yet says the machine's time."""
    assert clock.now_ms() == 1_700_000_000_000
    machine.running_s += 1.5
    assert clock.now_ms() == 1_700_000_001_500


def test_a_reply_sets_it(machine, clock):
    """After a reply it says the store's time, however far the machine's is off."""
    clock.observe(1_900_000_000_123)
    assert clock.now_ms() == 1_900_000_000_123
    machine.running_s += 0.25
    assert clock.now_ms() == 1_900_000_000_373


def test_the_last_reply_counts(machine, clock):
    """It can go back: a store that failed over may have an earlier clock, and it rules."""
    clock.observe(1_900_000_000_000)
    machine.running_s += 10
    clock.observe(1_900_000_005_000)
    assert clock.now_ms() == 1_900_000_005_000


def test_it_is_never_early(machine, clock):
    """Fractions of a millisecond are cut off, so no reply is later than this clock's store."""
    clock.observe(1_900_000_000_000)
    machine.running_s += 0.0019
    assert clock.now_ms() == 1_900_000_000_001


def test_the_proxys_time_counts_until_the_store_says_its_own(machine, clock):
    """A replica that started with a wrong clock while Redis is unavailable."""
    clock.set_from_proxy(1_700_003_600_000)
    machine.running_s += 1
    assert (clock.now_ms(), clock.is_known) == (1_700_003_601_000, False)
    clock.observe(1_900_000_000_000)
    clock.set_from_proxy(1_700_003_600_000)
    assert (clock.now_ms(), clock.is_known) == (1_900_000_000_000, True)


@pytest.mark.parametrize(
    ("off_s", "is_doubtful"), [(60, False), (-60, False), (60.001, True), (-60.001, True)]
)
def test_two_clocks_that_differ_by_more_than_a_minute_are_doubtful(
    machine, clock, off_s, is_doubtful
):
    """Until they agree, or the store decides."""
    assert not clock.is_doubtful
    clock.set_from_proxy(1_700_000_000_000 + round(off_s * 1000))
    assert clock.is_doubtful is is_doubtful
    machine.wall_s += off_s
    clock.set_from_proxy(1_700_000_000_000 + round(off_s * 1000))
    assert not clock.is_doubtful
    clock.set_from_proxy(1_600_000_000_000)
    assert clock.is_doubtful
    clock.observe(1_900_000_000_000)
    assert not clock.is_doubtful
