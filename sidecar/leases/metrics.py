"""The Prometheus metrics of leases."""

from sidecar.http.metrics import SHARED, MetricSet, counter, gauge


class LeaseMetrics(MetricSet):
    leases = counter(
        "waitroom_leases",
        "Lease operations of programs (take, look, renew, release), by outcome: granted (for a "
        "release: a lease or place was given up), waiting, gone, full (max_waiting), stale "
        "(another fencing number), not_renewed. Browsers are in waitroom_requests_total.",
        "template",
        "act",
        "outcome",
    )
    leases_swept = counter(
        "waitroom_leases_swept",
        "Resources where a sweep of this replica found an ended term or a missing holder.",
        "template",
    )
    lease_resources = gauge(
        "waitroom_lease_resources",
        "Resources that are held or waited for. Read each second." + SHARED,
        "template",
    )
