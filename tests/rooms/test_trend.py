"""Rates and curves of what a live view has seen."""

import pytest

from sidecar.cli.rooms.trend import RATE_S, SPAN_S, Trends, curve, rates


def room(waiting: int = 0, **counters: int):
    return {
        "room": "shop",
        "waiting": waiting,
        "active": 0,
        "wait_seconds": None,
        "counters": counters,
    }


def seen(*looks):
    """The points of looks: seconds and counters."""
    trends = Trends()
    for at_s, counters in looks:
        trends.add(room(**counters), at_s)
    return trends.of("shop")


def test_rates_are_of_the_last_minute():
    """Scaled to a minute where less was seen; unknown at the first look."""
    assert rates(seen((0, {"admitted": 5}))) == {}
    assert rates(seen((0, {}), (30, {"admitted": 5})))["in"] == 10
    looks = [(0, {}), (1, {"admitted": 900}), (1 + RATE_S, {"admitted": 907})]
    assert rates(seen(*looks))["in"] == 7


def test_who_goes_and_who_gives_up_are_counted_apart():
    happened = {"expired_session": 1, "left_session": 2, "expired_swept": 4, "left_waiting": 8}
    assert rates(seen((0, {}), (60, happened))) == {"in": 0, "out": 3, "gave up": 12}


def test_a_store_that_was_emptied_counts_from_nothing():
    assert rates(seen((0, {"admitted": 900}), (60, {"admitted": 3})))["in"] == 3


def test_what_is_too_old_is_forgotten():
    assert [point.at_s for point in seen((0, {}), (9, {}), (SPAN_S + 1, {}))] == [9, SPAN_S + 1]


@pytest.mark.parametrize(
    ("values", "width", "top", "blocks"),
    [
        ((), 5, 1, ""),
        ((0, 0), 5, 1, "▁▁"),
        ((0, 1, 700), 5, 1, "▁▂█"),
        ((0, 1, 1), 5, 2, "▁▅▅"),
        ((3,), 5, 3, "█"),
        ((0, 0, 0, 7, 7, 7, 7), 4, 7, "▁▁██"),
        ((0, 7), 1, 7, "█"),
        ((0, 7), 0, 7, ""),
        ((0, 0), 5, 0, "▁▁"),
    ],
)
def test_a_curve_is_of_blocks(values, width, top, blocks):
    """The last one is what is now; hardly anybody is more than nobody."""
    assert curve(tuple(enumerate(values)), width, top=top) == blocks
