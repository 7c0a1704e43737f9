"""Ends jobs that waited too long, and removes those that were kept long enough. Several cleaners
share the work: each row is locked and looked at again."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import structlog

from sidecar.jobs.model import State, ms
from sidecar.kit.errors import DatabaseError, StoreError

if TYPE_CHECKING:
    from sidecar.jobs.service import Jobs
    from sidecar.jobs.worker.reconciler import Reconciler

#: Between two looks, seconds: where something waits or runs, and where nothing does.
CLEAN_S, IDLE_CLEAN_S = 5.0, 30.0
#: Jobs in one transaction.
BATCH = 500

log = structlog.get_logger()


async def clean_forever(jobs: Jobs, reconciler: Reconciler) -> None:
    while True:
        await asyncio.sleep(IDLE_CLEAN_S if reconciler.is_idle else CLEAN_S)
        try:
            await clean(jobs)
        except (StoreError, DatabaseError) as error:
            log.debug("jobs_not_cleaned", error=str(error))


async def clean(jobs: Jobs) -> tuple[int, int]:
    """How many were expired and removed, in small batches."""
    # By the clock of any target's Redis; all are about the same.
    clocks = (target.clock.now_ms() for target in jobs.targets)
    now_ms = next(clocks, int(time.time() * 1000))
    kept = {target.name: ms(target.settings.result_ttl) for target in jobs.targets}
    expired = removed = 0
    while batch := await jobs.store.retention.expire(now_ms, BATCH, kept):
        for id_, name in batch:
            if target := jobs.targets.find(name):
                with contextlib.suppress(StoreError):  # the reconciler does it later
                    await target.store.remove(id_)
                jobs.metrics.jobs.labels(name, State.EXPIRED).inc()
        expired += len(batch)
        if len(batch) < BATCH:
            break
    while count := await jobs.store.retention.delete_old(now_ms, BATCH):
        removed += count
    if expired or removed:
        log.info("jobs_cleaned", expired=expired, removed=removed)
    return expired, removed
