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

MAX_DELAY_S = 300.0
#: answered: a response that is not retried. busy: 429, if it is retried. failed: no whole response
#: (without a status), or another one that is retried. refused: the call must not be made, or its
#: response is too large; never retried.
ResultKind: TypeAlias = Literal["answered", "busy", "failed", "refused"]
_NOTES: dict[str, CallNote] = {"busy": "busy", "failed": "failed", "refused": "gone"}


@dataclass(frozen=True, slots=True)
class CallResult:
    kind: ResultKind
    #: For people; it holds no address, and no value of a header.
    error: str = ""
    status: int | None = None
    #: Of the response: names in lower case; several of a name are joined by commas.
    headers: dict[str, str] = field(default_factory=dict)
    #: Empty where the body is larger than one CHUNK and was written in parts.
    body: bytes = b""
    size: int = 0
    #: From the Retry-After header; None: missing or unreadable.
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
    """Decide how an attempt ends: completed, failed, or pending to be tried again. `draw` returns a
    number from 0 to 1, for the jitter."""
    end = partial(Ending, job.id, claim.fence, at_ms=now_ms, status=result.status)
    kept_ms = now_ms + ms(settings.result_ttl)
    if result.kind == "answered":
        # The response is kept also where the job has failed by it: it may say why. The target is
        # there, so that the breaker takes it for a success.
        response = {"headers": result.headers, "body": result.body, "size": result.size}
        keep = partial(end, expires_ms=kept_ms, took_us=result.took_us, **response)
        if result.status is not None and settings.fails_on(result.status):
            error = f"the target says {result.status}"
            return keep(state=State.FAILED, error=error, note="rejected")
        return keep(state=State.COMPLETED, note="answered")
    # While nothing comes through, a call that tries whether anything does costs its job no retry.
    is_counted = not claim.is_trial
    failures = job.failures + is_counted
    # A target that says when to come back is left alone until then.
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
        return fail(state=State.FAILED, expires_ms=kept_ms)
    delay_s = max(result.retry_after_s or 0.0, backoff(settings).delay_s(failures, draw))
    return fail(state=State.PENDING, not_before_ms=now_ms + ms(delay_s))


def backoff(settings: TargetSettings) -> Backoff:
    return Backoff(settings.retry_delay, MAX_DELAY_S, jitter=0.5)
