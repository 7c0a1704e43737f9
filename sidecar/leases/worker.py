"""Sweeps leases: each second, each replica ends expired leases and calls the next holders."""

import asyncio
import random

import structlog

from sidecar.kit.errors import StoreError
from sidecar.leases.service import Leases, TemplateLeases

#: The pause between batches of a sweep, seconds, in which Redis can run scripts of requests.
PAUSE_S = 0.01
#: The time between two sweeps of a template's leases, in seconds.
INTERVAL_S = 1.0

log = structlog.get_logger()


async def sweep_leases_forever(leases: Leases) -> None:
    """Sweep the leases of all templates until cancelled."""
    async with asyncio.TaskGroup() as group:
        for template in leases:
            group.create_task(_sweep_template_forever(template))


async def _sweep_template_forever(template: TemplateLeases) -> None:
    metrics, name = template.metrics, template.name
    while True:
        await asyncio.sleep(INTERVAL_S * random.uniform(0.9, 1.1))  # noqa: S311
        try:
            has_more = True
            while has_more:
                swept, has_more = await template.store.sweep()
                metrics.leases_swept.labels(name).inc(swept)
                if has_more:
                    await asyncio.sleep(PAUSE_S)
            metrics.lease_resources.labels(name).set(await template.store.count())
        except StoreError as error:
            log.warning("sweep_failed", lease=name, error=str(error))
