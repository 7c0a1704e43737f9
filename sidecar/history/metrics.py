"""The metrics of the history's recorder and archivist."""

from sidecar.http.metrics import SHARED, MetricSet, counter, gauge


class HistoryMetrics(MetricSet):
    recorder_backlog = gauge(
        "waitroom_recorder_backlog", "Events that are not in the database yet." + SHARED, "room"
    )
    recorder_lag = gauge(
        "waitroom_recorder_lag_seconds",
        "Age of the oldest event that is not in the database yet." + SHARED,
        "room",
    )
    recorder_written = counter(
        "waitroom_recorder_written", "Events that this replica wrote to the database.", "room"
    )
    recorder_errors = counter(
        "waitroom_recorder_errors", "Writes to the database that failed.", "room"
    )
    recorder_stuck = counter(
        "waitroom_recorder_stuck",
        "Stays that the recorder closed because no end was recorded.",
        "room",
    )
