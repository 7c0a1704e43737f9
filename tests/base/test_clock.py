"""The store's clock, carried on by the replica's own between two replies."""

from __future__ import annotations

import time

import pytest

from sidecar.base.clock import StoreClock


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


def test_before_the_first_reply_it_is_the_machines_clock(machine):
    """A replica that has not met its store yet says the machine's time."""
    clock = StoreClock()
    assert clock.now_ms() == 1_700_000_000_000
    machine.running_s += 1.5
    assert clock.now_ms() == 1_700_000_001_500


def test_a_reply_sets_it(machine):
    """After a reply it says the store's time, however far the machine's is off."""
    clock = StoreClock()
    clock.observe(1_900_000_000_123)
    assert clock.now_ms() == 1_900_000_000_123
    machine.running_s += 0.25
    assert clock.now_ms() == 1_900_000_000_373


def test_setting_the_machines_clock_changes_nothing(machine):
    """Between replies it follows the monotonic clock: a corrected wall clock does not show."""
    clock = StoreClock()
    clock.observe(1_900_000_000_000)
    machine.wall_s -= 86_400
    machine.running_s += 2
    assert clock.now_ms() == 1_900_000_002_000


def test_the_last_reply_counts(machine):
    """It can go back: a store that failed over may have an earlier clock, and it rules."""
    clock = StoreClock()
    clock.observe(1_900_000_000_000)
    machine.running_s += 10
    clock.observe(1_900_000_005_000)
    assert clock.now_ms() == 1_900_000_005_000


def test_it_is_never_early(machine):
    """Fractions of a millisecond are cut off, so no reply is later than this clock's store."""
    clock = StoreClock()
    clock.observe(1_900_000_000_000)
    machine.running_s += 0.0019
    assert clock.now_ms() == 1_900_000_000_001
