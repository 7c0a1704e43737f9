"""The measurement of an adaptive room, at a small size: the shop, its visitors and the goals."""

import pytest

from loadtest.adaptive import (
    PAGES,
    REPORTED,
    TARGET_S,
    WHOLE,
    WITH,
    WITHOUT,
    Costs,
    Run,
    Sample,
    View,
    report,
    run_room,
)


@pytest.mark.slow
def test_half_of_the_shop_serves_half_as_much():
    """Real visitors fill the room; its cap and order hold; the shop's threads are its capacity."""
    run = run_room(120, 16, halved_at=8)
    assert run.problems == []
    assert max(each.inside for each in run.samples) == 120
    assert all(each.is_page for each in run.views if each.at < 16)
    assert run.between(5, 8).goodput > 25
    assert run.between(12, 16).p90_s > TARGET_S > run.between(5, 8).p90_s


def made_run(inside, taken_s, after_s):
    """Make a run with so many inside, whose responses take so long, and longer after a halving."""
    samples = [Sample(at, inside, inside, "healthy", "fine") for at in range(WHOLE.end_s)]
    views = [
        View(at + n / 10, after_s if at >= WHOLE.halved_s else taken_s, is_page=True)
        for at in range(WHOLE.end_s)
        for n in range(10)
    ]
    return Run(inside, WHOLE.end_s, samples, views)


@pytest.mark.parametrize(
    ("inside", "taken_s", "after_s", "reached"),
    [
        (95, 0.3, 0.3, [True, True, True, True]),
        (80, 0.3, 0.3, [False, True, True, True]),
        (95, 1.1 * TARGET_S, 0.3, [True, False, True, True]),
        (95, 1.2 * TARGET_S, 2.0, [True, False, False, False]),
    ],
)
def test_the_report_judges_the_goals(inside, taken_s, after_s, reached):
    """Against the best fixed cap; what was not reached is said, with what the room said."""
    fixed = {cap: made_run(cap, taken, taken) for cap, taken in ((33, 0.3), (300, 9.0))}
    fixed[100] = made_run(100, 0.3, 0.3)
    fixed[100].views *= 2
    run = made_run(inside, taken_s, after_s)
    run.views *= 2
    costs = Costs(1, loads=[0.1])
    for name, us in ((WITHOUT, 40.0), (WITH, 44.0), (REPORTED, 20.0)):
        costs.add(name, us)
    made = report(WHOLE, 100, fixed, run, costs)
    assert [goal.is_reached for goal in made.targets] == reached
    text = " ".join(made.text().split())
    assert text.count("**Not reached:") == reached.count(False)
    assert f"with visits of {PAGES * (3 + taken_s):.0f} s" in text
    assert "44.0 µs with it and the default sampling, a quarter (+10%)" in text
