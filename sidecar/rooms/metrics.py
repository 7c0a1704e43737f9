"""The metrics of rooms: what this replica counts, and what Redis says of each room."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar.kit.metrics import MetricSet, counter, gauge, histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client import CollectorRegistry, Gauge

_WAITS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)

#: The counters that Redis keeps of a room: metric, help, its label besides `room`, and the field
#: for each value of that label.
_STORE_COUNTERS: tuple[tuple[str, str, str | None, dict[str, str]], ...] = (
    (
        "waitroom_stays",
        "Steps of visitors' stays since the store was created.",
        "kind",
        {kind: kind for kind in ("joined", "called", "admitted", "expired", "left", "released")},
    ),
    (
        "waitroom_expired",
        "Stays that expired since the store was created, by reason.",
        "reason",
        {reason: f"expired_{reason}" for reason in ("silent", "swept", "no_show", "session")},
    ),
    (
        "waitroom_left",
        "Visitors who left by themselves since the store was created, by what they gave up.",
        "what",
        {what: f"left_{what}" for what in ("waiting", "called", "session")},
    ),
    (
        "waitroom_refused",
        "Newcomers who were refused a place since the store was created, by reason.",
        "reason",
        {"full": "refused_full", "address": "refused_address", "closed": "rejected"},
    ),
    (
        "waitroom_over_cap",
        "Sessions above the cap since the store was created: fail-open admissions.",
        None,
        {"": "over_cap"},
    ),
    ("waitroom_resets", "Resets of the queue since the store was created.", None, {"": "resets"}),
)


class StoreCounters(Collector):
    """Each room's counters in Redis, as last read. A store that is emptied begins at 0 again,
    which Prometheus takes for a restart."""

    def __init__(self) -> None:
        self._rooms: dict[str, Mapping[str, float]] = {}

    def learn(self, room: str, counters: Mapping[str, float]) -> None:
        self._rooms[room] = counters

    def collect(self) -> Iterator[CounterMetricFamily]:
        for name, text, label, fields in _STORE_COUNTERS:
            labels = ["room", label] if label else ["room"]
            family = CounterMetricFamily(name, text, labels=labels)
            for room, counters in self._rooms.items():
                for value, field in fields.items():
                    family.add_metric([room, value][: len(labels)], counters.get(field, 0))
            yield family


class QueueGauges(Collector):
    """Each sub-queue's length and wait, as last read; of one that is gone there is no sample."""

    def __init__(self) -> None:
        self._rooms: dict[str, Mapping[str, tuple[int, float | None]]] = {}

    def learn(self, room: str, queues: Mapping[str, tuple[int, float | None]]) -> None:
        """By its name: how many wait, and a newcomer's estimated wait (seconds)."""
        self._rooms[room] = queues

    def forget(self, room: str) -> None:
        self._rooms.pop(room, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ["room", "line"]
        waiting = GaugeMetricFamily(
            "waitroom_line_waiting", "Visitors in a sub-queue.", labels=labels
        )
        wait = GaugeMetricFamily(
            "waitroom_line_wait_estimate_seconds",
            "Estimated wait of a newcomer to the sub-queue; absent while unknown.",
            labels=labels,
        )
        for room, queues in self._rooms.items():
            for queue, (visitors, seconds) in queues.items():
                waiting.add_metric([room, queue], visitors)
                if seconds is not None:
                    wait.add_metric([room, queue], seconds)
        yield waiting
        yield wait


class RoomMetrics(MetricSet):
    """Counters are this replica's own and add up; what Redis says, each replica exports alike."""

    let_in_alone = counter(
        "waitroom_let_in_alone", "Fail-open admissions: while Redis was unavailable.", "room"
    )
    refused_leaves = counter(
        "waitroom_refused_leaves",
        "Leaves answered 429: too many places given up from one address.",
        "room",
    )
    grants = counter(
        "waitroom_grants",
        "Grants in requests, by result: believed, forged, expired, outdated, malformed, "
        "unknown_class.",
        "room",
        "result",
    )
    wait_seconds = histogram(
        "waitroom_wait_seconds",
        "From joining to admission, of visitors who waited and were admitted by this replica.",
        "room",
        buckets=_WAITS_S,
    )
    swept = counter("waitroom_swept", "Entries that this replica's sweeps removed.", "room", "kind")
    sweeps = counter("waitroom_sweeps", "Sweeps by this replica.", "room")

    waiting = gauge("waitroom_waiting", "Visitors in the queue.", "room")
    active = gauge("waitroom_active", "Sessions, provisional ones included.", "room")
    provisional = gauge("waitroom_provisional", "Called, not yet arrived.", "room")
    wait_estimate = gauge(
        "waitroom_wait_estimate_seconds",
        "Estimated wait of a newcomer; absent while unknown.",
        "room",
    )
    shield_up = gauge(
        "waitroom_shield_up", "1 while the shield is up: newcomers join from the page.", "room"
    )
    replicas = gauge("waitroom_replicas", "Replicas seen in the last seconds.", "room")
    recovery = gauge(
        "waitroom_recovery_stage",
        "After the store was emptied. 2: nobody is called until sessions and places are back; "
        "1: positions are not known yet; 0: normal.",
        "room",
    )
    store_away = gauge(
        "waitroom_store_away", "1 while Redis is unavailable to this replica.", "room"
    )
    remembered = gauge(
        "waitroom_remembered_visitors",
        "Visitors who are gone and whose passes or tickets may not be used again.",
        "room",
    )

    cap = gauge("waitroom_total_active_users", "The cap on sessions.", "room")
    session_duration = gauge(
        "waitroom_session_duration_seconds", "How long a session lasts without a request.", "room"
    )
    queue_all = gauge(
        "waitroom_queue_all", "1 while every newcomer waits and nobody is called.", "room"
    )
    suspended = gauge(
        "waitroom_suspended",
        "1 while everybody passes, uncounted (suspended, or passthrough).",
        "room",
    )
    phase = gauge(
        "waitroom_phase",
        "The room's event. 0: open, or no events; 1: pre-queue, places are taken and nobody is "
        "called; 2: closed.",
        "room",
    )

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry)
        self.stays = self.collected(StoreCounters())
        self.queues = self.collected(QueueGauges())

    def forget(self, room: str) -> None:
        """Drops what Redis said of the room's present while it says nothing: a number that
        stands still looks like a room at rest."""
        for present in (
            self.waiting,
            self.active,
            self.provisional,
            self.wait_estimate,
            self.shield_up,
            self.replicas,
        ):
            absent(present, room)
        self.queues.forget(room)


def absent(gauge: Gauge, room: str) -> None:
    """The room has no sample until it is set again, which says more than a wrong one."""
    with contextlib.suppress(KeyError):  # older libraries mind where it is gone already
        gauge.remove(room)
