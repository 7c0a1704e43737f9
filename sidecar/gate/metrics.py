"""The metrics of the gate; http/metrics.py counts requests."""

from sidecar.http.metrics import MetricSet, gauge


class GateMetrics(MetricSet):
    event_streams = gauge("waitroom_event_streams", "Open streams of server-sent events.", "room")
