"""Collects the rows of leases, limits, targets and webhooks for the dashboard's overview.

The rows are collected every few seconds while anybody views the dashboard. Leases and messages of
webhooks are read from Redis. The other figures are the replica's own counters and states of the
targets.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from typing import Any

from sidecar.dashboard.alerts import Increases, sum_samples
from sidecar.http.metrics import Metrics
from sidecar.jobs.estimate import estimate_wait_s, has_runner, name_state
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.service import Jobs
from sidecar.jobs.store.target_queue import QueueState
from sidecar.jobs.targets import Target
from sidecar.kit.clock import iso
from sidecar.kit.errors import StoreError
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.service import Limits
from sidecar.webhooks.service import ConfiguredWebhook, Webhooks

#: The maximum number of rows of one kind, and of resources that are read for one template.
MAX_ROWS = 200
#: The maximum number of queues that are shown for one template, the longest first.
MAX_QUEUES = 10
REFUSED_OUTCOMES = ("refused", "refused_alone")
#: The time over which figures per minute are measured, in seconds.
RATE_S = 60


class OverviewRows:
    """Collects the rows. The rates of a limit are those of this replica alone, and the rates of a
    target are those of all replicas together."""

    def __init__(
        self,
        metrics: Metrics,
        leases: Leases,
        limits: Limits,
        jobs: Jobs | None,
        webhooks: Webhooks,
    ) -> None:
        self._metrics, self._leases, self._limits = metrics, leases, limits
        self._jobs, self._webhooks = jobs, webhooks
        self._increases = Increases()

    async def collect(self) -> dict[str, Any]:
        """Return the first rows of each part of the overview, and the number of further rows."""
        templates = [*self._leases]
        leases = await asyncio.gather(*map(_read_template, templates[:MAX_ROWS]))
        webhooks = [*self._webhooks]
        webhook_rows = await asyncio.gather(*map(_read_webhook, webhooks[:MAX_ROWS]))
        return {
            "leases": _truncate_rows(leases, len(templates)),
            "limits": _truncate_rows(self._build_limit_rows()),
            "targets": _truncate_rows(self._build_target_rows()),
            "webhooks": _truncate_rows(webhook_rows, len(webhooks)),
        }

    def _count_increase(self, key: tuple[str, ...], value: float) -> float:
        """Return a counter's increase over the last minute."""
        return self._increases.compute(RATE_S, key, int(time.time() * 1000), value)

    def _build_limit_rows(self) -> Iterator[dict[str, Any]]:
        counts = sum_samples(self._metrics.of(LimitMetrics).limit_decisions)
        for limit in self._limits:
            own = {outcome: n for (name, outcome), n in counts.items() if name == limit.name}
            refused = sum(own.get(outcome, 0) for outcome in REFUSED_OUTCOMES)
            yield {
                "name": limit.name,
                "away": limit.store.is_away,
                "allowed": self._count_increase(
                    ("allowed", limit.name), sum(own.values()) - refused
                ),
                "refused": self._count_increase(("refused", limit.name), refused),
            }

    def _build_target_rows(self) -> Iterator[dict[str, Any]]:
        for target in self._jobs.targets if self._jobs else ():
            state = self._metrics.of(JobMetrics).targets.find(target.name)
            row = {"name": target.name, "concurrency": target.settings.concurrency}
            yield row if state is None else {**row, **self._describe_state(target, state)}

    def _describe_state(self, target: Target, state: QueueState) -> dict[str, Any]:
        settings, counters = target.settings, state.counters
        has_estimate = has_runner(settings, state) and not settings.paused
        ended = counters.get("completed", 0) + counters.get("failed", 0)
        return {
            "state": name_state(settings, state),
            "opens_at_ms": state.open_until_ms,
            "waiting": state.waiting + state.later,
            "running": state.active,
            "called": self._count_increase(("called", target.name), counters.get("called", 0)),
            "ended": self._count_increase(("ended", target.name), ended),
            "wait_seconds": round(estimate_wait_s(settings, state, state.waiting + 1))
            if has_estimate
            else None,
        }


async def _read_template(template: TemplateLeases) -> dict[str, Any]:
    row: dict[str, Any] = {"name": template.name, "away": True}
    try:
        resources = await template.store.list(limit=MAX_ROWS)
        count = len(resources) if len(resources) < MAX_ROWS else await template.store.count()
    except StoreError:
        return row
    queues = sorted((r for r in resources if r.waiting), key=lambda resource: -resource.waiting)
    return {
        **row,
        "away": False,
        "capacity": template.settings.capacity,
        "resources": count,
        "held": sum(len(resource.holders) for resource in resources),
        "waiting": sum(resource.waiting for resource in resources),
        # With more than MAX_ROWS resources the figures are those of the first resources by name.
        "is_part": count > len(resources),
        "queues": [
            {"name": queue.name, "held": len(queue.holders), "waiting": queue.waiting}
            for queue in queues[:MAX_QUEUES]
        ],
        "more": max(0, len(queues) - MAX_QUEUES),
    }


async def _read_webhook(webhook: ConfiguredWebhook) -> dict[str, Any]:
    settings = webhook.settings
    row: dict[str, Any] = {"name": webhook.name, "host": settings.host, "events": settings.events}
    try:
        found = await webhook.read_health()
    except StoreError:
        return {**row, "state": "away"}
    since_ms = found.failing_since_ms
    since = None if since_ms is None else iso(since_ms)
    return {**row, "state": found.state, "failing_since": since, **found.health.counts}


def _truncate_rows(rows: Iterable[dict[str, Any]], count: int | None = None) -> dict[str, Any]:
    """Return at most MAX_ROWS rows, and how many more there are. `count` is the number of all rows
    if `rows` is only a part of them."""
    all_rows = [*rows]
    return {"rows": all_rows[:MAX_ROWS], "more": max(0, (count or len(all_rows)) - MAX_ROWS)}
