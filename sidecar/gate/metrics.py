"""The metrics of the gate; requests are counted by kit/metrics.py."""

from sidecar.http.metrics import MetricSet, gauge


class GateMetrics(MetricSet):
    event_streams = gauge("waitroom_event_streams", "Open streams of server-sent events.", "room")
