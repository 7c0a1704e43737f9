"""The overview's rows of leases, limits, targets and webhooks.

They are made every few seconds while somebody watches. Only leases are read from Redis; the others
come from the replica's own counters and its states of the targets.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sidecar.dashboard.alerts import Increases, totals
from sidecar.http.metrics import Metrics
from sidecar.jobs.estimate import estimate_wait_s, has_runner
from sidecar.jobs.metrics import JobMetrics
from sidecar.jobs.service import Jobs
from sidecar.jobs.store.target_queue import QueueState
from sidecar.jobs.targets import Target
from sidecar.kit.errors import StoreError
from sidecar.leases.service import Leases, TemplateLeases
from sidecar.limits.metrics import LimitMetrics
from sidecar.limits.service import Limits
from sidecar.webhooks.settings import Webhook

#: The most rows of one kind, and the most resources of a template that are read.
MOST = 200
#: The number of queues shown of a template, longest first.
QUEUES = 10
REFUSED = ("refused", "refused_alone")
LOCAL_S = 60


class Others:
    """Collects the rows. Figures per minute are of this replica for a limit, of all for a
    target."""

    def __init__(
        self,
        metrics: Metrics,
        leases: Leases,
        limits: Limits,
        jobs: Jobs | None,
        webhooks: Mapping[str, Webhook],
    ) -> None:
        self._metrics = metrics
        self._leases = leases
        self._limits = limits
        self._jobs = jobs
        self._webhooks = webhooks
        self._increases = Increases()

    async def collect(self) -> dict[str, Any]:
        leases = await asyncio.gather(*(_template(one) for one in [*self._leases][:MOST]))
        return {
            "leases": _bounded(leases, sum(1 for _ in self._leases)),
            "limits": _bounded([*self._limit_rows()]),
            "targets": _bounded([*self._target_rows()]),
            "webhooks": _bounded(
                [
                    {"name": name, "host": hook.host, "events": hook.events, "rooms": hook.rooms}
                    for name, hook in self._webhooks.items()
                ]
            ),
        }

    def _increase(self, key: tuple[str, ...], value: float) -> float:
        """Return a counter's increase over the last minute."""
        return self._increases.over(LOCAL_S, key, int(time.time() * 1000), value)

    def _limit_rows(self) -> Iterator[dict[str, Any]]:
        counts = totals(self._metrics.of(LimitMetrics).limit_decisions)
        for limit in self._limits:
            of = {outcome: n for (name, outcome), n in counts.items() if name == limit.name}
            refused = sum(of.get(outcome, 0) for outcome in REFUSED)
            yield {
                "name": limit.name,
                "away": limit.store.is_away,
                "allowed": self._increase(("allowed", limit.name), sum(of.values()) - refused),
                "refused": self._increase(("refused", limit.name), refused),
            }

    def _target_rows(self) -> Iterator[dict[str, Any]]:
        for target in self._jobs.targets if self._jobs else ():
            state = self._metrics.of(JobMetrics).targets.find(target.name)
            row = {"name": target.name, "concurrency": target.settings.concurrency}
            yield row if state is None else {**row, **self._of_target(target, state)}

    def _of_target(self, target: Target, state: QueueState) -> dict[str, Any]:
        settings, counters = target.settings, state.counters
        runs = has_runner(settings, state) and not settings.paused
        ended = counters.get("completed", 0) + counters.get("failed", 0)
        return {
            "state": _state(target, state),
            "waiting": state.waiting + state.later,
            "running": state.active,
            "called": self._increase(("called", target.name), counters.get("called", 0)),
            "ended": self._increase(("ended", target.name), ended),
            "wait_seconds": round(estimate_wait_s(settings, state, state.waiting + 1))
            if runs
            else None,
        }


def _state(target: Target, state: QueueState) -> str:
    if target.settings.paused:
        return "paused"
    if state.breaker == "open":
        return "stopped"
    if state.breaker == "trial":
        return "trying"
    if not state.is_ready:
        return "coming back"
    return "running" if has_runner(target.settings, state) else "no runner"


async def _template(template: TemplateLeases) -> dict[str, Any]:
    row: dict[str, Any] = {"name": template.name, "away": True}
    try:
        resources = await template.store.list(limit=MOST)
        count = len(resources) if len(resources) < MOST else await template.store.count()
    except StoreError:
        return row
    queues = sorted((one for one in resources if one.waiting), key=lambda one: -one.waiting)
    return {
        **row,
        "away": False,
        "capacity": template.settings.capacity,
        "resources": count,
        "held": sum(len(one.holders) for one in resources),
        "waiting": sum(one.waiting for one in resources),
        # With more resources than MOST the figures are those of the first ones, by name.
        "is_part": count > len(resources),
        "queues": [
            {"name": one.name, "held": len(one.holders), "waiting": one.waiting}
            for one in queues[:QUEUES]
        ],
        "more": max(0, len(queues) - QUEUES),
    }


def _bounded(rows: Iterable[dict[str, Any]], count: int | None = None) -> dict[str, Any]:
    """Return at most MOST rows, and how many more there are."""
    all_rows = [*rows]
    return {"rows": all_rows[:MOST], "more": max(0, (count or len(all_rows)) - MOST)}
