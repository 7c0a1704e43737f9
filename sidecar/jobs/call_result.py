"""The result of a job's call, and what it means for the job and for its target."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from sidecar.jobs.model import CallNote, Ending, Job, State, ms
from sidecar.jobs.settings import TargetSettings
from sidecar.jobs.store.target_queue import Claim
from sidecar.kit.retry import Backoff

#: The longest pause before a retry, unless the target asks for a longer one.
MAX_DELAY_S = 300.0
#: What a call came to. answered: a response that is not retried. busy: a 429 that is retried.
#: failed: an incomplete or missing response (then `status` is None), or another status that is
#: retried. refused: the call is not allowed, or its response is too large; never retried.
ResultKind: TypeAlias = Literal["answered", "busy", "failed", "refused"]
_NOTES: dict[str, CallNote] = {"busy": "busy", "failed": "failed", "refused": "gone"}


@dataclass(frozen=True, slots=True)
class CallResult:
    kind: ResultKind
    #: A message for people, without addresses and without values of headers.
    error: str = ""
    status: int | None = None
    #: The response headers: names in lower case; values of the same name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: The response body. Empty if it is larger than CHUNK: then it is in the database, in parts.
    body: bytes = b""
    #: The size of the whole body, in bytes.
    size: int = 0
    #: The Retry-After header, in seconds. None if it is missing or unreadable.
    retry_after_s: float | None = None
    took_us: int = 0


def ending_of(  # noqa: PLR0913
    result: CallResult,
    job: Job,
    settings: TargetSettings,
    claim: Claim,
    *,
    now_ms: int,
    draw: Callable[[], float] = random.random,
) -> Ending:
    """Return how an attempt ends: completed, failed, or pending if it is retried. `draw` returns a
    random number from 0 to 1, for the jitter of the pause."""
    end = partial(Ending, job.id, claim.fence, at_ms=now_ms, status=result.status)
    expires_ms = now_ms + ms(settings.result_ttl)
    if result.kind == "answered":
        # The response is stored even if its status fails the job, because it may say why. The
        # breaker counts it as a success, because the target responded.
        response = {"headers": result.headers, "body": result.body, "size": result.size}
        end_job = partial(end, expires_ms=expires_ms, took_us=result.took_us, **response)
        if result.status is not None and settings.fails_on(result.status):
            error = f"the target says {result.status}"
            return end_job(state=State.FAILED, error=error, note="rejected")
        return end_job(state=State.COMPLETED, note="answered")
    # A trial call tests a failing target, so its failure costs the job no retry.
    is_counted = not claim.is_trial
    failures = job.failures + is_counted
    # If the target sent Retry-After, it gets no calls until then.
    hold_ms = now_ms + ms(result.retry_after_s) if result.retry_after_s else None
    fail = partial(
        end,
        error=result.error,
        is_counted=is_counted,
        note=_NOTES[result.kind],
        hold_ms=hold_ms,
    )
    is_final = result.kind == "refused" or not settings.retries_on(result.status)
    if is_final or (is_counted and failures > settings.retries):
        return fail(state=State.FAILED, expires_ms=expires_ms)
    delay_s = max(result.retry_after_s or 0.0, backoff(settings).delay_s(failures, draw))
    return fail(state=State.PENDING, not_before_ms=now_ms + ms(delay_s))


def backoff(settings: TargetSettings) -> Backoff:
    return Backoff(settings.retry_delay, MAX_DELAY_S, jitter=0.5)
