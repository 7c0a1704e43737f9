"""Tells callers that their jobs have ended: a signed POST to the callback_url, tried again until
somebody has taken it. What is due stands in the database, so that no runner's end loses it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import aiohttp
import structlog

from sidecar import __version__
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.model import receiver_of
from sidecar.kit.clock import iso
from sidecar.kit.errors import DatabaseError
from sidecar.kit.http.retry_after import seconds_in
from sidecar.kit.retry import Backoff
from sidecar.kit.signing import signature
from sidecar.kit.tasks import stop_workers

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from sidecar.jobs.model import Job
    from sidecar.jobs.service import Jobs
    from sidecar.kit.metrics import Metrics

#: Between two looks, and where no target has callbacks by now; and for how long a callback is this
#: worker's, seconds.
LOOK_S, IDLE_S = 1.0, 10.0
HOLD_S = 60
TIMEOUT_S = 10.0
#: Callbacks at a time: to one receiver, so that a slow one does not hold up the others, and to all.
EACH, MOST = 10, 100
#: Once some have ended it waits so long, so that it looks for several at a time, seconds.
PAUSE_S = 0.02
#: Ten tries take some two and a half hours.
TRIES = 10
BACKOFF = Backoff(2.0, 3600.0, factor=3)

log = structlog.get_logger()


async def call_back_forever(
    jobs: Jobs, session: aiohttp.ClientSession, metrics: Metrics, *, look_s: float = LOOK_S
) -> None:
    """Until cancelled. `session`: follows no redirect and keeps no cookie."""
    under_way, counted = UnderWay(), metrics.of(JobMetrics)
    try:
        while True:
            under_way.has_room.clear()
            due: list[Job] = []
            try:
                due = await jobs.store.callbacks.due(
                    round(time.time() * 1000), MOST - len(under_way.tasks),
                    hold_ms=HOLD_S * 1000, each=EACH, under_way=under_way.receivers,
                )  # fmt: skip
            except DatabaseError as error:
                log.debug("callbacks_wait", error=str(error))
            except Exception:
                log.exception("callbacks_failed")
            for job in due:
                under_way.begin(job, _call_back(jobs, session, counted, job))
            if due and len(under_way.tasks) < MOST:
                continue  # there may be others behind those
            with contextlib.suppress(TimeoutError):
                has_some = any(target.settings.callback_urls for target in jobs.targets)
                async with asyncio.timeout(look_s if has_some else IDLE_S):
                    await under_way.has_room.wait()
                    await asyncio.sleep(PAUSE_S)
    finally:
        await stop_workers(*under_way.tasks)


class UnderWay:
    """The callbacks that are being made."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        #: How many to each receiver.
        self.receivers: Counter[str] = Counter()
        #: One has ended since this was cleared.
        self.has_room = asyncio.Event()

    def begin(self, job: Job, work: Coroutine[None, None, None]) -> None:
        receiver = receiver_of(job.callback_url or "")
        self.receivers[receiver] += 1
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._end, receiver))

    def _end(self, receiver: str, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self.receivers[receiver] -= 1
        self.receivers += Counter()  # those of none are forgotten
        self.has_room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is due again when it is held no more.
            log.warning("callback_not_noted", error=str(error), exc_info=error)


async def _call_back(
    jobs: Jobs, session: aiohttp.ClientSession, metrics: JobMetrics, job: Job
) -> None:
    target = jobs.targets.find(job.target)
    url = job.callback_url or ""
    reason, after_s = "the target does not allow the address any more", 0.0
    is_final = True
    if target is not None and target.settings.may_call_back(url):
        reason, after_s, is_final = await _post(session, url, job, target.settings.callback_secret)
    tries = job.callback_tries + 1
    if not reason:
        metrics.callbacks.labels(job.target, "delivered").inc()
        await jobs.store.callbacks.done(job.id, ended_ms=job.ended_ms, next_ms=None, tries=tries)
        return
    if is_final or tries >= TRIES:
        metrics.callbacks.labels(job.target, "failed").inc()
        log.warning("callback_failed", job=job.id, target=job.target, tries=tries, reason=reason)
        await jobs.store.callbacks.done(job.id, ended_ms=job.ended_ms, next_ms=None, tries=tries)
        return
    pause_s = max(after_s, BACKOFF.delay_s(tries))
    log.info("callback_retried", job=job.id, target=job.target, reason=reason, in_s=pause_s)
    next_ms = round((time.time() + min(pause_s, BACKOFF.max_s)) * 1000)
    await jobs.store.callbacks.done(job.id, ended_ms=job.ended_ms, next_ms=next_ms, tries=tries)


async def _post(
    session: aiohttp.ClientSession, url: str, job: Job, secret: str
) -> tuple[str, float, bool]:
    """Why it was not taken (empty: it was), how long to wait at least, and whether it never will
    be."""
    body = json.dumps(document(job)).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"waitroom/{__version__}",
        "X-Waitroom-Event": f"job_{job.state}",
        "X-Waitroom-Delivery": f"{job.id}-{job.ended_ms}",
        "X-Waitroom-Signature": signature(secret, body, int(time.time())),
    }
    try:
        async with session.post(
            url, data=body, headers=headers, allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        ) as reply:  # fmt: skip
            status = reply.status
            after_s = seconds_in(reply.headers.get("Retry-After", ""), time.time())
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return type(error).__name__, 0.0, False
    except ValueError as error:
        return type(error).__name__, 0.0, True
    if 200 <= status < 300:
        return "", 0.0, True
    is_later = status in {408, 425, 429} or status >= 500
    return f"HTTP {status}", after_s if is_later else 0.0, not is_later


def document(job: Job) -> dict[str, object]:
    """What a callback says. The answer's body is fetched with the job."""
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
