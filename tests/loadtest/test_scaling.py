"""The measurement of scaling, at a small size: what it asks, counts and says."""

from itertools import product

import pytest

from loadtest.scaling import (
    JOINS,
    KINDS,
    PARTS,
    POLLS,
    THROUGH_NGINX,
    Amount,
    Step,
    Steps,
    measure,
    model,
    report,
)


def test_replicas_and_nginx_are_measured_apart():
    """By real Locust at two real replicas: only joins through nginx cost nginx anything."""
    steps = list(measure(Amount(rounds=1, warm_up_s=1, measured_s=2), replicas=2))
    assert [step.kind for step in steps] == list(KINDS)
    for step in steps:
        assert step.problems == []
        assert all(0 < step.us(part) < 5000 for part in ("replicas", "Redis", "load generator"))
    # A tick of the CPU clock is 10 ms, and idle nginx wakes up now and then.
    assert max(step.cores["nginx"] for step in steps[:2]) <= 0.01 < steps[2].us("nginx")


def test_the_model_is_that_of_what_is_used_up_first():
    assert model(1, serving_us=200, redis_us=20) == 10_000
    assert model(3, serving_us=200, redis_us=20) == 30_000
    assert model(10, serving_us=200, redis_us=20) == 50_000


@pytest.mark.parametrize("problem", ["", "3 x poll: unexpected status 500"])
def test_the_report_says_what_it_shows(problem):
    """Costs, cores and a model that is said to be one; medians over the rounds; errors."""
    cores = dict(zip(PARTS, (0.5, 0.1, 0.0, 0.4), strict=True))
    steps, rates = Steps(3), iter((4000, 5000, 9000))
    for turn in steps.turns(list(product((POLLS, JOINS, THROUGH_NGINX), (1, 2)))):
        rate = next(rates)
        for kind, replicas in turn:
            step = Step(
                kind,
                replicas,
                rate * replicas,
                {**cores, "nginx": 0.2 * (kind == THROUGH_NGINX)},
                [problem] * bool(problem),
            )
            steps.add((kind, replicas), step)
    made = report(steps)
    text = made.text()
    assert "| 1 | polls, replicas alone | 5,000 | 100 | 20 | 0 | 80 | 0.50 |" in text
    assert "This is a model, not a measurement" in text
    assert "| 1 | 14,286 | 14,286 |" in text
    assert "| 20 | 50,000 | 50,000 |" in text
    assert bool(made.problems) == bool(problem)
    assert (f"**{POLLS}, 1, round 1: {problem}.**" in text) == bool(problem)
