"""What follows from how a call went: pure rules."""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sidecar.jobs.model import Ending, Job, Outcome, State, ms
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_replies import Claim, How, Release
from sidecar.kit.retry import Backoff

MAX_DELAY_S = 300.0
#: What Redis notes of a call without a result.
_HOW: dict[str, How] = {"busy": "busy", "failed": "failed", "refused": "gone"}


class Verdict(NamedTuple):
    """What is written to the job, and to the target's queue."""

    ending: Ending
    release: Release


def judge(  # noqa: PLR0913
    outcome: Outcome,
    job: Job,
    settings: TargetSettings,
    claim: Claim,
    *,
    now_ms: int,
    draw: Callable[[], float] = random.random,
) -> Verdict:
    """`draw`: a number from 0 to 1, for the jitter."""
    end = partial(Ending, job.id, claim.fence, at_ms=now_ms, status=outcome.status)
    release = partial(Release, job.id, claim.fence)
    kept_ms = now_ms + ms(settings.result_ttl)
    if outcome.kind == "answered":
        # The response is kept also where the job has failed by it: it may say why. The target is
        # there, so that the breaker takes it for a success.
        result = {"headers": outcome.headers, "body": outcome.body, "size": outcome.size}
        keep = partial(end, expires_ms=kept_ms, **result)
        if outcome.status is not None and settings.fails_on(outcome.status):
            failed = keep(state=State.FAILED, error=f"the target says {outcome.status}")
            return Verdict(failed, release("rejected", outcome.took_us))
        return Verdict(keep(state=State.COMPLETED), release("answered", outcome.took_us))
    # While nothing comes through, a call that tries whether anything does costs its job no retry.
    is_counted = not claim.is_trial
    failures = job.failures + is_counted
    # A target that says when to come back is left alone until then.
    hold_ms = now_ms + ms(outcome.retry_after_s) if outcome.retry_after_s else None
    leave = partial(release, _HOW[outcome.kind], hold_ms=hold_ms)
    fail = partial(end, error=outcome.error, is_counted=is_counted)
    is_final = outcome.kind == "refused" or not settings.retries_on(outcome.status)
    if is_final or (is_counted and failures > settings.retries):
        return Verdict(fail(state=State.FAILED, expires_ms=kept_ms), leave())
    delay_s = max(outcome.retry_after_s or 0.0, backoff(settings).delay_s(failures, draw))
    again_ms = now_ms + ms(delay_s)
    return Verdict(fail(state=State.PENDING, not_before_ms=again_ms), leave(again_ms=again_ms))


def backoff(settings: TargetSettings) -> Backoff:
    return Backoff(settings.retry_delay, MAX_DELAY_S, jitter=0.5)
