"""The metrics of the history's recorder and archivist."""

from __future__ import annotations

from sidecar.kit.metrics import MetricSet, counter, gauge


class HistoryMetrics(MetricSet):
    recorder_backlog = gauge("waitroom_recorder_backlog", "Events not in the database yet.", "room")
    recorder_lag = gauge(
        "waitroom_recorder_lag_seconds", "Age of the oldest event not in the database yet.", "room"
    )
    recorder_written = counter(
        "waitroom_recorder_written", "Events that this replica wrote to the database.", "room"
    )
    recorder_errors = counter(
        "waitroom_recorder_errors", "Writes to the database that failed.", "room"
    )
    recorder_stuck = counter(
        "waitroom_recorder_stuck", "Stays without an end that the recorder closed itself.", "room"
    )
