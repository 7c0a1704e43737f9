"""Decides how an attempt ends, and whether and when the job is retried."""

import random
from collections.abc import Callable
from functools import partial

from sidecar.jobs.call_result import CallResult, describe_status
from sidecar.jobs.model import AttemptEnd, CallOutcome, Job, State, to_ms
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import Claim
from sidecar.kit.retry import Backoff

#: The longest pause before a retry, in seconds, unless the target asks for a longer one.
MAX_DELAY_S = 300.0
#: How many failures beyond `retries` a job may have if workers died during its calls.
MAX_LOST_WORKERS = 5
_OUTCOMES_BY_KIND: dict[str, CallOutcome] = {"busy": "busy", "failed": "failed", "refused": "gone"}


def make_ending(  # noqa: PLR0913
    result: CallResult,
    job: Job,
    settings: TargetSettings,
    claim: Claim,
    *,
    now_ms: int,
    draw: Callable[[], float] = random.random,
) -> AttemptEnd:
    """Return the ending of an attempt: completed, failed, or pending if the job is retried. `draw`
    returns a random number from 0 to 1, for the jitter of the pause."""
    end = partial(AttemptEnd, job.id, claim.fence, at_ms=now_ms, status=result.status)
    expires_ms = now_ms + to_ms(settings.result_ttl)
    if result.kind == "answered":
        # A response that fails the job is stored too, because it may explain the failure. The
        # circuit breaker counts it as a success, because the target responded.
        response = {"headers": result.headers, "body": result.body, "size": result.size}
        end_job = partial(end, expires_ms=expires_ms, took_us=result.took_us, **response)
        if result.status is not None and settings.fails_on(result.status):
            error = describe_status(result.status)
            return end_job(state=State.FAILED, error=error, outcome="rejected")
        return end_job(state=State.COMPLETED, outcome="answered")
    # A trial call tests a failing target, so its failure costs the job no retry.
    is_counted = not claim.is_trial
    failures = job.failures + is_counted
    # If the target sent Retry-After, it gets no calls until then.
    hold_ms = now_ms + to_ms(result.retry_after_s) if result.retry_after_s else None
    fail = partial(
        end,
        error=result.error,
        is_counted=is_counted,
        outcome=_OUTCOMES_BY_KIND[result.kind],
        hold_ms=hold_ms,
    )
    is_final = result.kind == "refused" or not settings.retries_on(result.status)
    if is_final or (is_counted and failures > settings.retries):
        return fail(state=State.FAILED, expires_ms=expires_ms)
    delay_s = max(result.retry_after_s or 0.0, make_backoff(settings).delay_s(failures, draw))
    return fail(state=State.PENDING, not_before_ms=now_ms + to_ms(delay_s))


def make_backoff(settings: TargetSettings) -> Backoff:
    return Backoff(settings.retry_delay, MAX_DELAY_S, jitter=0.5)


def has_lost_too_many_workers(job: Job, settings: TargetSettings) -> bool:
    """Return True if a job must fail, because too many workers died during its calls."""
    return job.failures > settings.retries + MAX_LOST_WORKERS
