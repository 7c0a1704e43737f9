"""Callbacks of ended jobs: signed POSTs to the callback_url, retried until the receiver accepts.
Due callbacks are stored in the database, so none is lost when a worker stops."""

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Coroutine
from functools import partial

import aiohttp
import structlog

from sidecar.http.metrics import Metrics
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import Job, callback_origin
from sidecar.jobs.service import Jobs
from sidecar.kit.clock import iso
from sidecar.kit.errors import DatabaseError
from sidecar.kit.http_post import Message, PostResult, post, signed_headers
from sidecar.kit.retry import Backoff, Schedule
from sidecar.kit.tasks import stop_workers

#: How often due callbacks are read, and how often if no target allows callbacks, in seconds.
POLL_S, IDLE_S = 1.0, 10.0
#: How long a worker holds a callback that it has claimed, in seconds.
HOLD_S = 60
TIMEOUT_S = 10.0
#: Callbacks at a time: per receiver, so that a slow one does not hold up the others, and in all.
EACH, MOST = 10, 100
#: The pause after a callback has ended, so that the next query gets several, in seconds.
PAUSE_S = 0.02
#: The retries of a callback, which take about two and a half hours.
SCHEDULE = Schedule(10, Backoff(2.0, 3600.0, factor=3))

log = structlog.get_logger()


class InFlight:
    """The callbacks being sent, and their number for each receiver."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.receivers: Counter[str] = Counter()
        #: Set when a callback ends.
        self.has_room = asyncio.Event()

    def begin(self, receiver: str, work: Coroutine[None, None, None]) -> None:
        self.receivers[receiver] += 1
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._end, receiver))

    def _end(self, receiver: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.receivers[receiver] -= 1
        self.receivers += Counter()  # removes receivers without callbacks
        self.has_room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # The callback is due again after HOLD_S.
            log.warning("delivery_not_noted", error=str(error), exc_info=error)


async def call_back_forever(
    jobs: Jobs, session: aiohttp.ClientSession, metrics: Metrics, *, poll_s: float = POLL_S
) -> None:
    """Send callbacks until cancelled. `session`: follows no redirects and keeps no cookies."""
    under_way, counted = InFlight(), metrics.of(JobMetrics)
    try:
        while True:
            under_way.has_room.clear()
            due: list[Job] = []
            now_ms, free = round(time.time() * 1000), MOST - len(under_way.tasks)
            try:
                due = await jobs.store.endings.due_callbacks(
                    now_ms, free, hold_ms=HOLD_S * 1000, each=EACH, under_way=under_way.receivers
                )
            except DatabaseError as error:
                log.debug("callbacks_wait", error=str(error))
            except Exception:
                log.exception("callbacks_failed")
            for job in due:
                receiver = callback_origin(job.callback_url or "")
                under_way.begin(receiver, _call_back(jobs, session, counted, job))
            if due and len(under_way.tasks) < MOST:
                continue  # more callbacks may be due
            with contextlib.suppress(TimeoutError):
                are_allowed = any(target.settings.callback_urls for target in jobs.targets)
                async with asyncio.timeout(poll_s if are_allowed else IDLE_S):
                    await under_way.has_room.wait()
                    await asyncio.sleep(PAUSE_S)
    finally:
        await stop_workers(*under_way.tasks)


async def _call_back(
    jobs: Jobs, session: aiohttp.ClientSession, metrics: JobMetrics, job: Job
) -> None:
    target, url = jobs.targets.find(job.target), job.callback_url or ""
    post_result = PostResult(reason="the target does not allow the address any more")
    if target is not None and target.settings.may_call_back(url):
        message = _message(url, job, target.settings.callback_secret)
        post_result = await post(session, message, timeout_s=TIMEOUT_S)
    tries, about = job.callback_tries + 1, {"job": job.id, "target": job.target}
    pause_s, next_ms = SCHEDULE.pause_s(tries, post_result.after_s), None
    if post_result.may_retry and pause_s is not None:
        pause_s = min(pause_s, SCHEDULE.backoff.max_s)
        next_ms = round((time.time() + pause_s) * 1000)
        log.info("callback_retried", **about, reason=post_result.reason, in_s=pause_s)
    else:
        result = "delivered" if post_result.is_taken else "failed"
        metrics.callbacks.labels(job.target, result).inc()
        if not post_result.is_taken:
            log.warning("callback_failed", **about, tries=tries, reason=post_result.reason)
    await jobs.store.endings.record_callback(
        job.id, ended_ms=job.ended_ms, next_ms=next_ms, tries=tries
    )


def _message(url: str, job: Job, secret: str) -> Message:
    body = json.dumps(document(job)).encode()
    event, id_ = f"job_{job.state}", f"{job.id}-{job.ended_ms}"
    headers = signed_headers(event, id_, body, secret, now_s=time.time())
    return Message(url, body, {**headers, "Content-Type": "application/json"})


def document(job: Job) -> dict[str, object]:
    """Return the JSON body of a callback. The receiver gets the job's result from the API."""
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
