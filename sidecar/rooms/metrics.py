"""Exports the metrics of rooms: this replica's own, and each room's counters from Redis."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from sidecar.http.metrics import SHARED, MetricSet, counter, gauge, histogram

_WAIT_BUCKETS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)

#: The metrics made from a room's counters in Redis: the name, the help text, the label besides
#: `room`, and for each value of that label the counter's field in Redis.
_STORE_COUNTERS: tuple[tuple[str, str, str | None, dict[str, str]], ...] = (
    (
        "waitroom_stays",
        "Steps of visitors' stays, since Redis was empty. admitted: from the queue or at once."
        + SHARED,
        "kind",
        {kind: kind for kind in ("joined", "called", "admitted", "expired", "left", "released")},
    ),
    (
        "waitroom_expired",
        "Stays that expired, since Redis was empty. silent: called, but the page had "
        "stopped polling. swept: stopped polling in the queue. no_show: called, and did "
        "not come in time. unused: a place that was never polled, or a session whose cookie was "
        "never shown. session: the session ran out." + SHARED,
        "reason",
        {
            reason: f"expired_{reason}"
            for reason in ("silent", "swept", "no_show", "unused", "session")
        },
    ),
    (
        "waitroom_left",
        "Visitors who left by themselves, since Redis was empty, by what they gave up: a"
        " place in the queue (waiting), their turn (called), a session." + SHARED,
        "what",
        {what: f"left_{what}" for what in ("waiting", "called", "session")},
    ),
    (
        "waitroom_refused",
        "Newcomers who were refused a place, since Redis was empty. full: max_waiting. "
        "address: max_places_per_address. closed: queueing_method is reject. A client "
        "that asks again counts again." + SHARED,
        "reason",
        {"full": "refused_full", "address": "refused_address", "closed": "rejected"},
    ),
    (
        "waitroom_over_cap",
        "Sessions above the cap, since Redis was empty: replicas let visitors in while "
        "Redis was unavailable, and there was no slot for them afterwards." + SHARED,
        None,
        {"": "over_cap"},
    ),
    (
        "waitroom_resets",
        "Resets of the queue, since Redis was empty." + SHARED,
        None,
        {"": "resets"},
    ),
)


class StoreCounters(Collector):
    """Exports each room's counters, as last read from Redis. After Redis lost its data, they begin
    at 0 again, which Prometheus treats like a restart. If Redis comes back with older data, they
    do not decrease, because Prometheus would count everything again."""

    def __init__(self) -> None:
        self._rooms: dict[str, Mapping[str, float]] = {}

    def update(self, room: str, counters: Mapping[str, float]) -> None:
        last = self._rooms.get(room, {})
        if counters["born"] == last.get("born"):
            counters = {name: max(value, last.get(name, 0)) for name, value in counters.items()}
        self._rooms[room] = counters

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name, text, label, fields in _STORE_COUNTERS:
            labels = ["room", label] if label else ["room"]
            family = CounterMetricFamily(name, text, labels=labels)
            for room, counters in self._rooms.items():
                for value, field in fields.items():
                    family.add_metric([room, value][: len(labels)], counters.get(field, 0))
            yield family


class RoomMetrics(MetricSet):
    """The metrics of rooms. A replica's own counters must be summed over all replicas. Values from
    Redis are the same on each replica."""

    fail_open_admissions = counter(
        "waitroom_let_in_alone",
        "Newcomers let in by on_store_failure while Redis was unavailable.",
        "room",
    )
    refused_leaves = counter(
        "waitroom_refused_leaves",
        "Leave requests answered with 429, because one address gave up too many places.",
        "room",
    )
    grants = counter(
        "waitroom_grants",
        "Grants read from requests, by result. believed: the visitor got the class. Otherwise "
        "not. forged: signed with another key or for another room. expired. outdated: signed "
        "without its kind. malformed. unknown_class.",
        "room",
        "result",
    )
    wait_seconds = histogram(
        "waitroom_wait_duration_seconds",
        "Time from joining to admission, observed by the replica that let the visitor in. "
        "Visitors who were let in at once, gave up, or came while Redis was unavailable "
        "are not counted.",
        "room",
        buckets=_WAIT_BUCKETS_S,
        old_name="waitroom_wait_seconds",
    )
    swept = counter(
        "waitroom_swept",
        "Places (waiting) and sessions that sweeps of this replica removed.",
        "room",
        "kind",
    )
    sweeps = counter("waitroom_sweeps", "Sweeps by this replica.", "room")

    waiting = gauge("waitroom_waiting", "Visitors in the queue." + SHARED, "room")
    active = gauge(
        "waitroom_active",
        "Sessions, called visitors included. Above the cap only after the cap was "
        "lowered, or after replicas let visitors in while Redis was unavailable." + SHARED,
        "room",
    )
    provisional = gauge(
        "waitroom_provisional",
        "Sessions of visitors who were called and have not arrived yet." + SHARED,
        "room",
    )
    wait_estimate = gauge(
        "waitroom_wait_estimate_seconds",
        "Estimated wait of a newcomer. Absent while unknown: paused, a cap of 0, or places are "
        "coming back." + SHARED,
        "room",
    )
    line_waiting = gauge(
        "waitroom_line_waiting",
        "Visitors in a sub-queue (line). Drawn places are in none." + SHARED,
        "room",
        "line",
    )
    line_wait_estimate = gauge(
        "waitroom_line_wait_estimate_seconds",
        "Estimated wait of a newcomer to a sub-queue (line). Absent while unknown." + SHARED,
        "room",
        "line",
    )
    shield_up = gauge(
        "waitroom_shield_up",
        "1 while newcomers arrive faster than shield_above, and join from the waiting page."
        + SHARED,
        "room",
    )
    replicas = gauge(
        "waitroom_replicas",
        "Replicas that asked Redis in the last 5 s. A restart counts twice for a moment." + SHARED,
        "room",
    )
    recovery = gauge(
        "waitroom_recovery_stage",
        "The recovery after Redis was emptied. 2: nobody is called, while sessions and places come "
        "back. 1: positions are not shown yet. 0: normal." + SHARED,
        "room",
    )
    store_away = gauge("waitroom_store_away", "1 while Redis does not answer this replica.", "room")
    remembered = gauge(
        "waitroom_remembered_visitors",
        "Visitors who have left before their passes or tickets expire. Each takes about 130 bytes "
        "in Redis." + SHARED,
        "room",
    )

    cap = gauge("waitroom_total_active_users", "The cap in force." + SHARED, "room")
    session_duration = gauge(
        "waitroom_session_duration_seconds",
        "session_duration in force: how long a session lasts without a request." + SHARED,
        "room",
    )
    queue_all = gauge(
        "waitroom_queue_all",
        "1 while queue_all is on: newcomers wait, and nobody is called." + SHARED,
        "room",
    )
    suspended = gauge(
        "waitroom_suspended",
        "1 while all visitors pass uncounted: suspended, or queueing_method is passthrough."
        + SHARED,
        "room",
    )
    phase = gauge(
        "waitroom_phase",
        "The room's phase. 0: open, or no events. 1: pre-queue. 2: closed. In 1 and "
        "2 nobody is called." + SHARED,
        "room",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.stays = self.add_collector(StoreCounters())
        #: The names of the sub-queues that have samples, by room.
        self._sub_queues: dict[str, set[str]] = {}

    def export_sub_queues(self, room: str, lines: Mapping[str, tuple[int, int | None]]) -> None:
        """Export each sub-queue's length and wait estimate (ms, None if unknown), by name. Remove
        the samples of unknown estimates, and of sub-queues that the room no longer has."""
        # remove_by_labels would search the samples of all rooms, once a second for each room.
        for name in self._sub_queues.get(room, set()) - lines.keys():
            self.line_waiting.remove(room, name)
            self.line_wait_estimate.remove(room, name)
        self._sub_queues[room] = set(lines)
        for name, (visitors, wait_ms) in lines.items():
            self.line_waiting.labels(room, name).set(visitors)
            if wait_ms is None:
                self.line_wait_estimate.remove(room, name)
            else:
                self.line_wait_estimate.labels(room, name).set(wait_ms / 1000)

    def remove_store_samples(self, room: str) -> None:
        """Remove the room's samples that come from Redis. Without this, their last values would be
        exported while Redis is unavailable, and look like those of a quiet room."""
        for metric in (
            self.waiting,
            self.active,
            self.provisional,
            self.wait_estimate,
            self.shield_up,
            self.replicas,
            self.line_waiting,
            self.line_wait_estimate,
        ):
            metric.remove_by_labels({"room": room})
