"""Rates and curves of what a live view has seen."""

from collections import defaultdict, deque

import pytest

from sidecar.cli.rooms.watch import RATE_S, add_sample, calculate_rates, draw_curve


def sampled(*looks):
    """The samples of looks: seconds and counters."""
    samples = defaultdict(deque)
    for at_s, counters in looks:
        room = {"room": "shop", "waiting": 0, "active": 0, "wait_seconds": None}
        add_sample(samples, {**room, "counters": counters}, at_s)
    return samples["shop"]


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, {"admitted": 5})], {}),
        ([(0, {}), (30, {"admitted": 5})], {"in/min": 10}),
        ([(0, {}), (1, {"admitted": 900}), (1 + RATE_S, {"admitted": 907})], {"in/min": 7}),
        # Redis was emptied: counters begin again.
        ([(0, {"admitted": 900}), (60, {"admitted": 3})], {"in/min": 3}),
        (
            [(0, {}), (60, {"expired_session": 1, "left_session": 2, "expired_swept": 4,
                            "left_waiting": 8})],
            {"in/min": 0, "out/min": 3, "gave up": 12},
        ),
    ],
)  # fmt: skip
def test_rates_are_of_the_last_minute(looks, expected):
    """Scaled to a minute if the samples span less; unknown at the first look."""
    found = calculate_rates(sampled(*looks))
    assert {name: found[name] for name in expected} == expected
    assert bool(found) is bool(expected)


@pytest.mark.parametrize(
    ("values", "width", "top", "blocks"),
    [
        ((), 5, 1, ""), ((0, 0), 5, 1, "▁▁"), ((0, 1, 700), 5, 1, "▁▂█"), ((0, 1, 1), 5, 2, "▁▅▅"),
        ((3,), 5, 3, "█"), ((0, 0, 0, 7, 7, 7, 7), 4, 7, "▁▁██"), ((0, 7), 1, 7, "█"),
        ((0, 7), 0, 7, ""), ((0, 0), 5, 0, "▁▁"),
    ],
)  # fmt: skip
def test_a_curve_is_of_blocks(values, width, top, blocks):
    """The last one is what is now; hardly anybody is more than nobody."""
    assert draw_curve(tuple(enumerate(values)), width, top=top) == blocks
