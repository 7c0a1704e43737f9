"""Sweeps the leases, each replica each second: what ran out ends, and who is next is called."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import structlog

from sidecar.kit.errors import StoreError

if TYPE_CHECKING:
    from sidecar.leases.service import Leases, Template


log = structlog.get_logger()


#: Rest between two batches, so that visitors' scripts get their turn.
REST_S = 0.01
#: Between two sweeps of a template's leases, seconds.
LEASES_S = 1.0


async def sweep_leases_forever(leases: Leases) -> None:
    """Ends what ran out and calls who is next, also where nobody asks. Runs until cancelled."""
    async with asyncio.TaskGroup() as group:
        for template in leases:
            group.create_task(_sweep_template_forever(template))


async def _sweep_template_forever(template: Template) -> None:
    while True:
        await asyncio.sleep(LEASES_S * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            await sweep_leases(template)
        except StoreError as error:
            log.warning("sweep_failed", lease=template.name, error=str(error))


async def sweep_leases(template: Template) -> None:
    """Each replica does it: twice equals once."""
    name, metrics = template.name, template.metrics
    more = True
    while more:
        swept, more = await template.store.sweep()
        metrics.leases_swept.labels(name).inc(swept)
        if more:
            await asyncio.sleep(REST_S)
    metrics.lease_resources.labels(name).set(await template.store.count())
