"""What follows from how a call went: pure rules."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.jobs.model import Ending, Job, Outcome, State
from sidecar.jobs.store.target_replies import Release
from sidecar.kit.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.jobs.settings import TargetSettings
    from sidecar.jobs.store.target_replies import Claim, How

MAX_DELAY_S = 300.0
#: What the line is told of a call that brought no answer.
_HOW: dict[str, How] = {"busy": "busy", "failed": "failed", "refused": "gone"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is written to the job, and what the line is told."""

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
    kept_ms = now_ms + round(settings.result_ttl * 1000)
    if outcome.kind == "answered":
        return _answered(outcome, job, settings, claim, now_ms=now_ms, kept_ms=kept_ms)
    # While nothing comes through, a call that tries whether anything does costs its job no retry.
    is_counted = not claim.is_trial
    failures = job.failures + is_counted
    how = _HOW[outcome.kind]
    is_final = outcome.kind == "refused" or not settings.retries_on(outcome.status)
    if is_final or (is_counted and failures > settings.retries):
        ending = Ending(
            job.id, claim.fence, State.FAILED, now_ms, kept_ms,
            error=outcome.error, status=outcome.status, is_counted=is_counted,
        )  # fmt: skip
        return Verdict(ending, Release(job.id, claim.fence, how, hold_ms=_held(outcome, now_ms)))
    asked_s = outcome.retry_after_s or 0.0
    again_ms = now_ms + round(max(asked_s, backoff(settings).delay_s(failures, draw)) * 1000)
    ending = Ending(
        job.id, claim.fence, State.PENDING, now_ms, error=outcome.error, status=outcome.status,
        not_before_ms=again_ms, is_counted=is_counted,
    )  # fmt: skip
    release = Release(
        job.id, claim.fence, how, again_ms=again_ms, hold_ms=_held(outcome, now_ms)
    )  # fmt: skip
    return Verdict(ending, release)


def _answered(  # noqa: PLR0913
    outcome: Outcome,
    job: Job,
    settings: TargetSettings,
    claim: Claim,
    *,
    now_ms: int,
    kept_ms: int,
) -> Verdict:
    """The answer is kept also where the job has failed by it: it may say why. The target is there,
    so that the breaker takes it for a success."""
    has_failed = outcome.status is not None and settings.fails_on(outcome.status)
    ending = Ending(
        job.id, claim.fence, State.FAILED if has_failed else State.COMPLETED, now_ms, kept_ms,
        error=f"the target says {outcome.status}" if has_failed else "",
        status=outcome.status, headers=outcome.headers, body=outcome.body, size=outcome.size,
    )  # fmt: skip
    how: How = "rejected" if has_failed else "answered"
    return Verdict(ending, Release(job.id, claim.fence, how, outcome.took_us))


def backoff(settings: TargetSettings) -> Backoff:
    return Backoff(settings.retry_delay, MAX_DELAY_S, jitter=0.5)


def _held(outcome: Outcome, now_ms: int) -> int | None:
    """A target that says when to come back is left alone until then."""
    return now_ms + round(outcome.retry_after_s * 1000) if outcome.retry_after_s else None
