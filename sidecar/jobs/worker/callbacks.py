"""Sends the callbacks of ended jobs: signed POSTs to a job's callback_url, retried until the
receiver accepts. Due callbacks are stored in the database, so none is lost when a worker stops."""

import asyncio
import contextlib
import json
import time
from collections import Counter

import aiohttp
import structlog

from sidecar.jobs.model import Job, get_receiver
from sidecar.jobs.service import Jobs
from sidecar.kit.clock import iso
from sidecar.kit.errors import DatabaseError
from sidecar.kit.http_post import Message, PostResult, post, signed_headers
from sidecar.kit.retry import Backoff, Schedule
from sidecar.kit.tasks import stop_workers
from sidecar.kit.trace_context import log_trace

#: How often due callbacks are looked up, and how often if no target allows callbacks, in seconds.
POLL_S, IDLE_S = 1.0, 10.0
#: How long a worker's claim on a callback lasts, in seconds.
CLAIM_S = 60
#: How long a receiver may take to respond, in seconds.
TIMEOUT_S = 10.0
#: The maximum number of callbacks in flight to one receiver, so that a slow receiver does not delay
#: the others, and the maximum number to all receivers.
MAX_PER_RECEIVER, MAX_IN_FLIGHT = 10, 100
#: The pause between a callback and the next query, in seconds, so that one query finds several.
PAUSE_S = 0.02
#: The retries of a callback, which take about two and a half hours.
SCHEDULE = Schedule(10, Backoff(2.0, 3600.0, factor=3))

log = structlog.get_logger()


async def call_back_forever(
    jobs: Jobs, session: aiohttp.ClientSession, *, poll_s: float = POLL_S
) -> None:
    """Send callbacks until cancelled. `session` must not follow redirects or store cookies."""
    #: The receivers of the callbacks that are being sent.
    receivers: dict[asyncio.Task[None], str] = {}
    has_capacity = asyncio.Event()

    def on_sent(task: asyncio.Task[None]) -> None:
        del receivers[task]
        has_capacity.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The callback will be sent again when its claim expires, after CLAIM_S.
            log.warning("delivery_not_noted", error=str(error), exc_info=error)

    try:
        while True:
            has_capacity.clear()
            due: list[Job] = []
            try:
                due = await jobs.store.due_jobs.claim_callbacks(
                    round(time.time() * 1000),
                    MAX_IN_FLIGHT - len(receivers),
                    claim_ms=CLAIM_S * 1000,
                    max_per_receiver=MAX_PER_RECEIVER,
                    in_flight=Counter(receivers.values()),
                )
            except DatabaseError as error:
                log.debug("callbacks_wait", error=str(error))
            except Exception:
                log.exception("callbacks_failed")
            for job in due:
                task = asyncio.create_task(_send_callback(jobs, session, job))
                receivers[task] = get_receiver(job.callback_url or "")
                task.add_done_callback(on_sent)
            if due and len(receivers) < MAX_IN_FLIGHT:
                continue  # more callbacks may be due
            with contextlib.suppress(TimeoutError):
                are_allowed = any(target.settings.callback_urls for target in jobs.targets)
                async with asyncio.timeout(poll_s if are_allowed else IDLE_S):
                    await has_capacity.wait()
                    await asyncio.sleep(PAUSE_S)
    finally:
        await stop_workers(*receivers)


async def _send_callback(jobs: Jobs, session: aiohttp.ClientSession, job: Job) -> None:
    log_trace(job.trace)
    target, url = jobs.targets.find(job.target), job.callback_url or ""
    post_result = PostResult(reason="the target does not allow the address any more")
    if target is not None and target.settings.may_call_back(url):
        body, secrets = json.dumps(make_document(job)).encode(), target.settings.callback_secrets
        event, id_ = f"job_{job.state}", f"{job.id}-{job.ended_ms}"
        headers = signed_headers(event, id_, body, secrets, now_s=time.time())
        message = Message(url, body, {**headers, **job.trace, "Content-Type": "application/json"})
        post_result = await post(session, message, timeout_s=TIMEOUT_S)
    tries, about = job.callback_tries + 1, {"job": job.id, "target": job.target}
    pause_s, next_ms = SCHEDULE.pause_s(tries, post_result.retry_after_s), None
    if post_result.may_retry and pause_s is not None:
        pause_s = min(pause_s, SCHEDULE.backoff.max_s)
        next_ms = round((time.time() + pause_s) * 1000)
        log.info("callback_retried", **about, reason=post_result.reason, in_s=pause_s)
    else:
        result = "delivered" if post_result.is_taken else "failed"
        jobs.metrics.callbacks.labels(job.target, result).inc()
        if not post_result.is_taken:
            log.warning("callback_failed", **about, tries=tries, reason=post_result.reason)
    await jobs.store.due_jobs.record_callback(
        job.id, ended_ms=job.ended_ms, next_ms=next_ms, tries=tries
    )


def make_document(job: Job) -> dict[str, object]:
    """Return the JSON body of a job's callback. It omits the result, which the API returns."""
    return {
        "id": job.id,
        "target": job.target,
        "state": str(job.state),
        "created_at": iso(job.created_ms),
        "ended_at": None if job.ended_ms is None else iso(job.ended_ms),
        "attempts": job.attempts,
        "status": job.status,
        "error": job.error or None,
    }
