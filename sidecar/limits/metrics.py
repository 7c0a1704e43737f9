"""The metrics of rate limits."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from sidecar.kit.metrics import PACES_S, MetricSet, counter, histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class LimitMetrics(MetricSet):
    limit_decisions = counter(
        "waitroom_limit_decisions",
        "Rate limit decisions: granted, paced, refused, unlimited; while Redis was unavailable: "
        "admitted_alone, refused_alone.",
        "limit",
        "outcome",
    )
    limit_releases = counter(
        "waitroom_limit_releases", "Permits and future slots that were given back.", "limit"
    )
    limit_wait_seconds = histogram(
        "waitroom_limit_wait_seconds",
        "Until the moments of paced calls, seconds.",
        "limit",
        buckets=PACES_S,
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._decisions = functools.cache(self.limit_decisions.labels)

    def count_decisions(self, limit: str, outcome: str, number: int) -> None:
        self._decisions(limit, outcome).inc(number)
