"""Payments by four worker processes, and refunds, never exceed their limits.

PAYMENTS_FULL=1 in the environment runs them at the rate of a bank, 20 payments and a refund a
second. Otherwise the test takes seconds.
"""

import os
from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from tests.stories.refunder import GONE
from tests.support.processes import free_port, wait_until
from tests.support.service import Api, Service, to_us
from tests.support.site import answers

IS_FULL = os.environ.get("PAYMENTS_FULL") == "1"
WORKERS = 4
#: For each rule: all payments, payments in a window, its length, and refunds, one in a window.
CALLS = 2000 if IS_FULL else 500
LIMIT, WINDOW_MS = (20, 1000) if IS_FULL else (40, 400)
REFUNDS = 60 if IS_FULL else 20
WINDOW_US = 1000 * WINDOW_MS
#: How many payments of a rule a worker makes at the same time. Together they exceed the limit.
AT_ONCE = 12

ALGORITHMS = ("fixed_window", "sliding_window")
MODES = ("refuse", "pace")
RULES = {f"{algorithm[:5]}-{mode}": (algorithm, mode) for algorithm in ALGORITHMS for mode in MODES}


class Run(NamedTuple):
    """All payments and refunds, and the calls that arrived."""

    #: The payments by rule, with the response that allowed each.
    paid: dict[str, list[dict[str, Any]]]
    refunded: list[dict[str, Any]]
    #: The path and time (ms) of each call that reached the target.
    arrived: list[tuple[str, float]]

    def moments(self, rule: str) -> list[int]:
        """Return the times of the payments in order, µs since 1970."""
        return sorted(to_us(call["at"]) for call in self.paid[rule])


@pytest.fixture(scope="module")
def run():
    rules = "".join(
        f'[limits.{name}]\nkey = "{{biz}}:{{channel}}"\nalgorithm = "{algorithm}"\n'
        f'on_exceed = "{mode}"\nlimit = {LIMIT}\nwindow = "{WINDOW_MS}ms"\nmax_wait = "120s"\n'
        f'values = {{"refund:wx" = 1}}\n'
        for name, (algorithm, mode) in RULES.items()
    )
    port = free_port()
    target = f"http://127.0.0.1:{port}"
    with Service(rules) as service:
        service.program("target", port)
        wait_until(lambda: answers(f"{target}/v1/"), "the target")
        refunder = service.program("refunder", service.urls[0], "slidi-pace", WINDOW_MS, REFUNDS)
        refunder.read()  # before the payments, which might delay the requests
        workers = [
            service.program("payer", service.urls[number % 2], target, number, WORKERS,
                            CALLS, AT_ONCE, *RULES)
            for number in range(WORKERS)
        ]  # fmt: skip
        paid: dict[str, list[dict[str, Any]]] = {name: [] for name in RULES}
        for worker in workers:
            for call in worker.read_all():
                paid[call["rule"]].append(call)
        refunded = refunder.read_all()
        api = Api(target)
        _, arrived = api.call("GET", "/")
        api.close()
    return Run(paid, refunded, arrived)


@pytest.mark.parametrize("mode", MODES)
def test_no_aligned_window_has_more_than_the_limit(run, mode):
    """This holds although many workers ask at the edge of a window."""
    counts = Counter[int]()
    for call in run.paid[f"fixed-{mode}"]:
        counts[to_us(call["at"]) // WINDOW_US] += 1
    assert counts.total() == CALLS
    assert max(counts.values()) == LIMIT


@pytest.mark.parametrize("mode", MODES)
def test_no_window_at_all_has_more_than_the_limit(run, mode):
    """A call and the one that is `limit` calls later are a window apart."""
    moments = run.moments(f"slidi-{mode}")
    assert len(moments) == CALLS
    assert min(b - a for a, b in zip(moments, moments[LIMIT:], strict=False)) >= WINDOW_US


@pytest.mark.parametrize("rule", RULES)
def test_every_payment_is_made_once(run, rule):
    """No payment is lost or repeated, although many had to ask again or wait."""
    numbers = [str(number) for number in range(CALLS)]
    assert sorted(str(call["number"]) for call in run.paid[rule]) == sorted(numbers)
    arrived = [path.split("/")[-1] for path, _ in run.arrived if f"/{rule}/" in path]
    assert sorted(arrived) == sorted(numbers)
    if rule.endswith("refuse"):
        assert sum(call["asked"] for call in run.paid[rule]) > CALLS
    else:
        assert {call["asked"] for call in run.paid[rule]} == {1}
        assert "paced" in {call["outcome"] for call in run.paid[rule]}


def test_no_payment_arrives_before_its_moment(run):
    """The clock of the target is that of Redis."""
    at = {f"/v1/{call['rule']}/{call['number']}": to_us(call["at"]) / 1000
          for calls in run.paid.values() for call in calls}  # fmt: skip
    assert len(run.arrived) == len(at)
    early = {path: at[path] - when for path, when in run.arrived if when < at[path]}
    assert early == {}


def test_refunds_are_a_window_apart_while_payments_run(run):
    """Each refund is allowed one window after the one before. Clients that disconnect lose their
    times to later clients."""
    moments = sorted(to_us(refund["at"]) for refund in run.refunded)
    assert len(moments) == REFUNDS + GONE
    assert {later - earlier for earlier, later in pairwise(moments)} == {WINDOW_US}
    paid = run.moments("slidi-pace")
    assert paid[0] < moments[-1]
    assert moments[0] < paid[-1]
