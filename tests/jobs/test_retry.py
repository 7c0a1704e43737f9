"""What follows from how a call went, and how long a job is told to wait."""

import pytest

from sidecar.jobs.model import Job, Outcome, State
from sidecar.jobs.retry import MAX_DELAY_S, backoff, judge
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_replies import Claim, QueueState
from sidecar.jobs.targets import has_runner, rate_per_s, wait_s

NOW_MS = 1_800_000_000_000
SETTINGS = TargetSettings(url="https://images.example/", retries=2, retry_delay=1, result_ttl=60)


def a_job(*, failures=0):
    return Job("a" * 22, "shop", "images", "offline", NOW_MS, NOW_MS + 1, 8, failures=failures)


def verdict_of(outcome, *, failures=0, is_trial=False, **settings):
    claim = Claim("a" * 22, 7, 8, is_online=False, is_trial=is_trial)
    rule = SETTINGS.changed(settings)
    return judge(outcome, a_job(failures=failures), rule, claim, now_ms=NOW_MS, draw=lambda: 0)


@pytest.mark.parametrize("status", [200, 302, 404, 500])
def test_any_answer_that_is_not_tried_again_is_a_result(status):
    """Kept for result_ttl, with what the target said; the line learns how long it took."""
    outcome = Outcome(
        "answered", status=status, headers={"a": "b"}, body=b"ok", size=2, took_us=5000
    )
    ending, release = (verdict_of(outcome).ending, verdict_of(outcome).release)
    assert (ending.state, ending.status, ending.body) == (State.COMPLETED, status, b"ok")
    assert ending.expires_ms == NOW_MS + 60_000
    assert (release.how, release.took_us, release.again_ms) == ("answered", 5000, None)


@pytest.mark.parametrize("kind", ["busy", "failed"])
def test_a_call_without_an_answer_is_made_again_as_often_as_the_target_says(kind):
    """Twice as long after each failure; then the job has failed, and says why."""
    outcome = Outcome(kind, "no answer", took_us=5000)
    for failures, delay_ms in ((0, 1000), (1, 2000)):
        verdict = verdict_of(outcome, failures=failures)
        assert (verdict.ending.state, verdict.ending.is_counted) == (State.PENDING, True)
        assert verdict.ending.not_before_ms == verdict.release.again_ms == NOW_MS + delay_ms
        assert verdict.release.how == kind
    last = verdict_of(outcome, failures=2)
    assert (last.ending.state, last.ending.error) == (State.FAILED, "no answer")
    assert last.release.again_ms is None


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_balancers_answer_is_never_a_result(status):
    """After the last try the job has failed, and says by which status; the breaker learns of it."""
    outcome = Outcome("failed", f"the target says {status}", status)
    first, last = verdict_of(outcome), verdict_of(outcome, failures=2)
    assert (first.ending.state, first.ending.status) == (State.PENDING, status)
    assert (last.ending.state, last.ending.status) == (State.FAILED, status)
    assert first.release.how == last.release.how == "failed"


@pytest.mark.parametrize(
    ("fail_on", "status", "state", "how"),
    [
        ([404], 404, State.FAILED, "rejected"),
        (["4xx"], 422, State.FAILED, "rejected"),
        (["4xx"], 500, State.COMPLETED, "answered"),
        (["5xx"], 500, State.FAILED, "rejected"),
        ([], 404, State.COMPLETED, "answered"),
    ],
)
def test_a_target_says_which_answers_are_failures(fail_on, status, state, how):
    """At once, with the answer, which may say why; the target is there, for all that the line
    learns."""
    outcome = Outcome("answered", "", status, {"a": "b"}, b"why", 3, took_us=5000)
    ending, release = (found := verdict_of(outcome, fail_on=fail_on)).ending, found.release
    assert (ending.state, ending.status, ending.body) == (state, status, b"why")
    assert (release.how, release.took_us, release.again_ms) == (how, 5000, None)
    assert ending.error == (f"the target says {status}" if state is State.FAILED else "")


def test_a_target_may_be_called_once_where_no_answer_comes():
    """What it did before the connection broke nobody knows; the breaker learns of it."""
    verdict = verdict_of(Outcome("failed", "no answer"), retry_on=[503])
    assert (verdict.ending.state, verdict.release.how) == (State.FAILED, "failed")
    assert verdict.release.again_ms is None


def test_a_trial_costs_its_job_no_retry():
    """While a target is down one call now and then finds out; the job that it is waits on."""
    verdict = verdict_of(Outcome("failed", "no answer"), failures=2, is_trial=True)
    assert (verdict.ending.state, verdict.ending.is_counted) == (State.PENDING, False)


def test_what_is_refused_is_never_tried_again():
    """Such as a private address, or an answer that is too large; the target is not to blame."""
    verdict = verdict_of(Outcome("refused", "the answer is too large"))
    assert (verdict.ending.state, verdict.release.how) == (State.FAILED, "gone")


def test_a_target_that_says_when_is_left_alone_until_then():
    """Retry-After holds the job and the whole target, where it is longer than the delay."""
    verdict = verdict_of(Outcome("busy", "429", retry_after_s=30.0))
    assert verdict.release.again_ms == verdict.release.hold_ms == NOW_MS + 30_000
    short = verdict_of(Outcome("busy", "429", retry_after_s=0.5))
    assert (short.release.again_ms, short.release.hold_ms) == (NOW_MS + 1000, NOW_MS + 500)


def test_delays_double_are_spread_and_end():
    """Up to half of each is left out by chance; none is longer than five minutes."""
    delay_s = backoff(SETTINGS).delay_s
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
    assert wait_s(settings, a_line(), 4) == 0
    assert wait_s(settings, a_line(active=4), 4) == 8
    assert wait_s(settings, a_line(active=4, mean_s=2), 4) == 2
    assert rate_per_s(settings, a_line(mean_s=2)) == 2
    paced = settings.changed({"rate": 1, "window": 10})
    assert wait_s(paced, a_line(calls=1), 2) == 20
    assert rate_per_s(paced, a_line(mean_s=2)) == 0.1
    assert wait_s(paced, a_line(open_ms=NOW_MS + 5000), 1) == 5


def test_who_has_no_runner_is_told_so():
    """None has asked for 15 s, or ever; where calls are under way, or none is a runner's, nobody is
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
