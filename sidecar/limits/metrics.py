"""The metrics of rate limits."""

import functools

from prometheus_client import CollectorRegistry

from sidecar.http.metrics import PACES_S, MetricSet, counter, histogram


class LimitMetrics(MetricSet):
    limit_decisions = counter(
        "waitroom_limit_decisions",
        "Decisions, of programs and of nginx: granted, paced (may go later), refused, "
        "unlimited (the key has no limit). While Redis was unavailable: admitted_alone, "
        "refused_alone.",
        "limit",
        "outcome",
    )
    limit_releases = counter(
        "waitroom_limit_releases",
        "Permits, and times of paced calls, that were given back.",
        "limit",
    )
    limit_wait_seconds = histogram(
        "waitroom_limit_wait_duration_seconds",
        "How long paced calls had to wait.",
        "limit",
        buckets=PACES_S,
        old_name="waitroom_limit_wait_seconds",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self._decisions = functools.cache(self.limit_decisions.labels)

    def count_decisions(self, limit: str, outcome: str, count: int) -> None:
        self._decisions(limit, outcome).inc(count)
