"""What a call's result means for its job and target, and the estimate of a wait."""

import pytest

from sidecar.jobs.call_result import CallResult
from sidecar.jobs.estimate import estimate_calls_per_s, estimate_wait_s, has_runner
from sidecar.jobs.model import Job, State
from sidecar.jobs.retry_policy import MAX_DELAY_S, make_backoff, make_ending
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import Claim, QueueState

NOW_MS = 1_800_000_000_000
SETTINGS = TargetSettings(url="https://images.example/", retries=2, retry_delay=1, result_ttl=60)


def a_job(*, failures=0):
    return Job("a" * 22, "shop", "images", "offline", NOW_MS, NOW_MS + 1, 8, failures=failures)


def end(result, *, failures=0, is_trial=False, **settings):
    claim = Claim("a" * 22, 7, 8, is_online=False, is_trial=is_trial)
    rules = SETTINGS.with_changes(settings)
    return make_ending(
        result, a_job(failures=failures), rules, claim, now_ms=NOW_MS, draw=lambda: 0
    )


@pytest.mark.parametrize("status", [None, 408, 425, 429, 502, 503, 504])
def test_a_call_that_is_retried_is_retried_as_often_as_the_target_says(status):
    """After a delay that doubles with each failure; then the job has failed, and says why and by
    which status. The breaker counts it, unless the target was busy."""
    kind = "busy" if status == 429 else "failed"
    result = CallResult(kind, "no answer", status, took_us=5000)
    for failures, delay_ms in ((0, 1000), (1, 2000)):
        ending = end(result, failures=failures)
        assert (ending.state, ending.is_counted) == (State.PENDING, True)
        assert (ending.not_before_ms, ending.status) == (NOW_MS + delay_ms, status)
        assert ending.outcome == kind
    last = end(result, failures=2)
    assert (last.state, last.error, last.not_before_ms) == (State.FAILED, "no answer", None)
    assert (last.status, last.outcome) == (status, kind)


@pytest.mark.parametrize(
    ("fail_on", "statuses", "state"),
    [
        ([404], [404], State.FAILED), (["4xx"], [404, 422], State.FAILED),
        (["4xx"], [500], State.COMPLETED), (["5xx"], [500], State.FAILED),
        ([], [200, 302, 404], State.COMPLETED),
        (None, [200, 201, 202, 204, 206, 226, 299], State.COMPLETED),
        (None, [301, 302, 304, 400, 404, 409, 422, 499, 500, 501, 505], State.FAILED),
    ],
)  # fmt: skip
def test_a_response_that_is_not_retried_ends_the_job(fail_on, statuses, state):
    """It fails the job if the target's settings say so; by default if it is no 2xx. Either way the
    response is kept for result_ttl, and the queue learns how long the call took. The target has
    answered, so the breaker is not told of a failure."""
    for status in statuses:
        result = CallResult("answered", "", status, {"a": "b"}, b"why", 3, took_us=5000)
        ending = end(result, **({} if fail_on is None else {"fail_on": fail_on}))
        assert (ending.state, ending.status, ending.body) == (state, status, b"why")
        assert (ending.expires_ms, ending.is_counted) == (NOW_MS + 60_000, False)
        assert ending.outcome == ("rejected" if state is State.FAILED else "answered")
        assert (ending.took_us, ending.not_before_ms) == (5000, None)
        hint = ", a redirect" if status in {301, 302} else ""
        assert ending.error == (f"the target says {status}{hint}" * (state is State.FAILED))


def test_a_target_may_be_called_once_where_no_response_comes():
    """Nobody knows what the target did before the connection broke; the breaker counts it."""
    ending = end(CallResult("failed", "no answer"), retry_on=[503])
    assert (ending.state, ending.outcome, ending.not_before_ms) == (State.FAILED, "failed", None)


def test_a_trial_costs_its_job_no_retry():
    """While a target is down one call now and then tests it; the job of that call waits on."""
    ending = end(CallResult("failed", "no answer"), failures=2, is_trial=True)
    assert (ending.state, ending.is_counted) == (State.PENDING, False)


def test_a_refused_call_is_never_retried():
    """Such as to a private address, or with a response that is too large; the breaker does not
    count it."""
    ending = end(CallResult("refused", "the answer is too large"))
    assert (ending.state, ending.outcome) == (State.FAILED, "gone")


def test_retry_after_holds_the_job_and_the_whole_target():
    """The job only where it is longer than the delay."""
    ending = end(CallResult("busy", "429", retry_after_s=30.0))
    assert ending.not_before_ms == ending.hold_ms == NOW_MS + 30_000
    short = end(CallResult("busy", "429", retry_after_s=0.5))
    assert (short.not_before_ms, short.hold_ms) == (NOW_MS + 1000, NOW_MS + 500)


def test_delays_double_are_spread_and_end():
    """Up to half of each is left out by chance; none is longer than five minutes."""
    delay_s = make_backoff(SETTINGS).delay_s
    assert [delay_s(failures, lambda: 0) for failures in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert delay_s(3, lambda: 1) == 2
    assert delay_s(100, lambda: 0) == MAX_DELAY_S


def a_line(*, active=0, mean_s=None, calls=0, open_ms=None, runner_ms=None):
    return QueueState(
        NOW_MS, 0, 0, active, 0, mean_s, calls, "closed", open_ms, None, is_ready=True,
        runner_ms=runner_ms,
    )  # fmt: skip


def test_a_wait_is_told_by_what_was_measured_and_before_that_by_what_is_expected():
    """C slots and T seconds a call: the place, less the free slots, times T / C; with a rate no
    less than that allows."""
    settings = TargetSettings(url="https://images.example/", concurrency=4, expected_seconds=8)
    assert estimate_wait_s(settings, a_line(), 4) == 0
    assert estimate_wait_s(settings, a_line(active=4), 4) == 8
    assert estimate_wait_s(settings, a_line(active=4, mean_s=2), 4) == 2
    assert estimate_calls_per_s(settings, a_line(mean_s=2)) == 2
    paced = settings.with_changes({"rate": 1, "window": 10})
    assert estimate_wait_s(paced, a_line(calls=1), 2) == 20
    assert estimate_calls_per_s(paced, a_line(mean_s=2)) == 0.1
    assert estimate_wait_s(paced, a_line(open_ms=NOW_MS + 5000), 1) == 5


def test_who_has_no_worker_is_told_so():
    """None has asked for 15 s, or ever; where calls are under way, or none is a worker's, nobody is
    missed."""
    url = "https://images.example/"
    both = TargetSettings(url=url, kinds=["offline", "online"])
    for line, has in (
        (a_line(), False),
        (a_line(runner_ms=NOW_MS - 15_000), False),
        (a_line(runner_ms=NOW_MS - 14_999), True),
        (a_line(runner_ms=NOW_MS + 5), True),  # the clock went back
        (a_line(active=1), True),
    ):
        assert has_runner(both, line) is has
    assert has_runner(TargetSettings(url=url, kinds=["online"]), a_line())
