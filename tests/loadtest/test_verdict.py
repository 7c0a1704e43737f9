"""The verdict itself: that it finds what it is there to find."""

import random

import pytest

from loadtest.verdict import CLOCK_MS, Evidence, Stay, judge, overtakings, peak_inside, peak_overlap

ENOUGH = [Stay(0, 900, 1000), Stay(100, 1900, 2000), Stay(200, 2500)]


@pytest.mark.parametrize(
    ("seen", "is_kept"),
    [
        pytest.param({"stays": ENOUGH, "sessions": [(3, 3), (2, 3)], "inside": 3}, True, id="kept"),
        pytest.param({"errors": {"pass: unexpected status 500": 1}}, False, id="an error"),
        pytest.param({"requests": 0}, False, id="no request"),
        pytest.param({"sessions": [(3, 3)]}, True, id="a full room"),
        pytest.param({"sessions": [(3, 3), (4, 3), (3, 3)]}, False, id="a session too many"),
        pytest.param({"sessions": [(3, 3)], "cap": 2}, False, id="above the cap of the option"),
        pytest.param({"sessions": []}, False, id="an ops listener that never answers"),
        pytest.param({"sessions": [(3, 3)], "inside": 4}, False, id="one too many at the origin"),
        pytest.param({"inside": 4, "cap": 3}, False, id="one above the option at the origin"),
        pytest.param(
            {"stays": [Stay(0, 2000, 2500), Stay(100, 900, 1000)]}, False, id="overtaking"
        ),
    ],
)
def test_a_run_is_judged_by_requests_cap_and_order(seen, is_kept):
    findings = judge(Evidence(**{"requests": 100, **seen}))
    assert all(finding.kept for finding in findings) == is_kept


DIRECT = Stay(1000, admitted=1001, direct=True)


@pytest.mark.parametrize(
    ("stays", "count"),
    [
        # The earlier visitor was told to wait before the later one was admitted.
        ([Stay(0, 999, 5000), Stay(100, 900, 1000)], 0),
        # Visitors who join at once have no order.
        ([Stay(0, 2000, 2500), Stay(40, 900, 1000)], 0),
        # A visitor who is never admitted is overtaken too.
        ([Stay(0, 2000), Stay(100, 900, 1000), Stay(200, 900, 1100)], 2),
        # A newcomer who is admitted at once overtakes; the worker's clock is a guess.
        ([Stay(0, 2000), DIRECT], 1),
        ([Stay(0, 1001 + CLOCK_MS), DIRECT], 0),
        ([Stay(900, 5000), DIRECT], 0),
    ],
)
def test_overtaking_is_a_later_join_before_the_end_of_an_earlier_wait(stays, count):
    assert len(overtakings(stays)) == count


def test_overtaking_is_found_as_by_comparing_everybody_with_everybody():
    rng = random.Random(7)
    for _ in range(200):
        stays = []
        for _ in range(rng.randint(0, 12)):
            joined = rng.randint(0, 500)
            waiting = rng.choice([None, joined + rng.randint(0, 500)])
            admitted = rng.choice([None, joined + rng.randint(0, 500)])
            stays.append(Stay(joined, waiting, admitted, direct=rng.random() < 0.2))
        expected = 0
        for late in stays:
            unsure = CLOCK_MS if late.direct else 0
            expected += late.admitted is not None and any(
                early.joined < late.joined - 50 - unsure
                and early.waiting is not None
                and early.waiting > late.admitted + unsure
                for early in stays
            )
        assert len(overtakings(stays)) == expected


@pytest.mark.parametrize(
    ("intervals", "peak"),
    [
        ([], 0),
        ([(1, 1)], 1),
        ([(1, 2), (3, 4)], 1),
        ([(1, 2), (2, 3)], 2),
        ([(1, 9), (2, 3), (4, 5), (4, 6)], 3),
    ],
)
def test_peak_overlap(intervals, peak):
    assert peak_overlap(intervals) == peak


def test_the_origins_log():
    lines = ["10.1 a\n", "10.2 b\n", "10.3 a\n", "11.0 c\n", "10.5 -\n", "12.0 b\n", "12.", "x y"]
    assert peak_inside(lines) == 2
