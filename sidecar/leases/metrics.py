"""The metrics of leases."""

from __future__ import annotations

from sidecar.kit.metrics import MetricSet, counter, gauge


class LeaseMetrics(MetricSet):
    leases = counter(
        "waitroom_leases",
        "Lease operations (take, look, renew, release), by outcome: granted, waiting, gone, full, "
        "stale, not_renewed.",
        "template",
        "act",
        "outcome",
    )
    leases_swept = counter(
        "waitroom_leases_swept",
        "Resources where a sweep of this replica removed something.",
        "template",
    )
    lease_resources = gauge(
        "waitroom_lease_resources", "Resources that are held or waited for.", "template"
    )
