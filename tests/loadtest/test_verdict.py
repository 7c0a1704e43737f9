"""The verdict itself: that it finds what it is there to find."""

import random

import pytest

from loadtest.verdict import CLOCK_MS, Evidence, Stay, judge, overtakings, peak_inside, peak_overlap


def kept(seen: Evidence) -> dict[str, bool]:
    return {finding.promise: finding.kept for finding in judge(seen)}


def all_kept(**seen) -> bool:
    return all(kept(Evidence(**{"requests": 100, **seen})).values())


def test_a_run_that_kept_everything():
    stays = [Stay(0, 900, 1000), Stay(100, 1900, 2000), Stay(200, 2500)]
    assert all_kept(stays=stays, sessions=[(3, 3), (2, 3)], inside=3)


def test_an_unexpected_answer_fails():
    assert not all_kept(errors={"pass: unexpected status 500": 1})


def test_a_run_without_one_request_fails():
    assert not all_kept(requests=0)


def test_one_session_too_many_fails():
    assert all_kept(sessions=[(3, 3)])
    assert not all_kept(sessions=[(3, 3), (4, 3), (3, 3)])


def test_the_cap_to_hold_can_be_told():
    assert not all_kept(sessions=[(3, 3)], cap=2)


def test_an_ops_listener_that_never_answers_fails():
    assert not all_kept(sessions=[])


def test_one_too_many_at_the_origin_fails():
    assert not all_kept(sessions=[(3, 3)], inside=4)
    assert not all_kept(inside=4, cap=3)


def test_overtaking_fails():
    assert not all_kept(stays=[Stay(0, 2000, 2500), Stay(100, 900, 1000)])


def test_a_slow_poll_is_no_overtaking():
    """The earlier one was told to wait before the later one was let in, and noticed later."""
    assert not overtakings([Stay(0, 999, 5000), Stay(100, 900, 1000)])


def test_those_who_joined_at_once_have_no_order():
    assert not overtakings([Stay(0, 2000, 2500), Stay(40, 900, 1000)])


def test_somebody_who_is_never_let_in_is_overtaken_too():
    assert len(overtakings([Stay(0, 2000), Stay(100, 900, 1000), Stay(200, 900, 1100)])) == 2


def test_a_newcomer_who_passes_at_once_overtakes_those_who_wait():
    late = Stay(1000, admitted=1001, direct=True)
    assert overtakings([Stay(0, 2000), late])
    assert not overtakings([Stay(0, 1001 + CLOCK_MS), late]), "the worker's clock is a guess"
    assert not overtakings([Stay(900, 5000), late])


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
