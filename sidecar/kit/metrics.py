"""What is counted. One registry a replica, read from its ops port; docs/metrics.md tells each.

Most metrics are this replica's own and add up over the replicas. What the store says of a
room is the room's truth, and every replica exports the same.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.kit.request_metrics import Requests
from sidecar.kit.target_metrics import TargetGauges

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_PACES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_WAITS_S = (1, 5, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800)

#: What the store counts of a room: the metric, its text, its label besides `room`, and the
#: counter in the store for each value of that label.
_STORE_COUNTERS: tuple[tuple[str, str, str | None, dict[str, str]], ...] = (
    (
        "waitroom_stays",
        "Steps of visitors' stays since the store was made.",
        "kind",
        {kind: kind for kind in ("joined", "called", "admitted", "expired", "left", "released")},
    ),
    (
        "waitroom_expired",
        "Stays that ended by themselves since the store was made, by what ended them.",
        "reason",
        {reason: f"expired_{reason}" for reason in ("silent", "swept", "no_show", "session")},
    ),
    (
        "waitroom_left",
        "Visitors who left of their own accord since the store was made, by what they gave up.",
        "what",
        {what: f"left_{what}" for what in ("waiting", "called", "session")},
    ),
    (
        "waitroom_refused",
        "Newcomers who were given no place since the store was made, by why not.",
        "reason",
        {"full": "refused_full", "address": "refused_address", "closed": "rejected"},
    ),
    (
        "waitroom_over_cap",
        "Sessions above the cap since the store was made: let in by replicas without it.",
        None,
        {"": "over_cap"},
    ),
    ("waitroom_resets", "Resets of the line since the store was made.", None, {"": "resets"}),
)

# Each counter's time of birth would double the output; nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library's has no types


class StoreCounters(Collector):
    """The store's counters of each room, as last heard. A store that is emptied begins at 0
    again, which Prometheus takes for a restart."""

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


class LineGauges(Collector):
    """Each line's length and wait, as last heard; of a line that is gone nothing is told."""

    def __init__(self) -> None:
        self._rooms: dict[str, Mapping[str, tuple[int, float | None]]] = {}

    def learn(self, room: str, lines: Mapping[str, tuple[int, float | None]]) -> None:
        """By the line's name: how many wait in it, and what a newcomer would wait (seconds)."""
        self._rooms[room] = lines

    def forget(self, room: str) -> None:
        self._rooms.pop(room, None)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        labels = ["room", "line"]
        waiting = GaugeMetricFamily("waitroom_line_waiting", "Visitors in a line.", labels=labels)
        wait = GaugeMetricFamily(
            "waitroom_line_wait_estimate_seconds",
            "What somebody who came to a line now would wait; absent while nobody knows.",
            labels=labels,
        )
        for room, lines in self._rooms.items():
            for line, (people, seconds) in lines.items():
                waiting.add_metric([room, line], people)
                if seconds is not None:
                    wait.add_metric([room, line], seconds)
        yield waiting
        yield wait


def absent(gauge: Gauge, room: str) -> None:
    """The room's value is gone until it is set again, which says more than a wrong one."""
    with contextlib.suppress(KeyError):  # older libraries mind where it is gone already
        gauge.remove(room)


class Metrics:
    """Every metric, with its labels. No visitor and no address is ever a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests(self.registry)
        self.let_in_alone = self._counter(
            "waitroom_let_in_alone",
            "Newcomers that this replica let in while the store was away.",
        )
        self.refused_leaves = self._counter(
            "waitroom_refused_leaves",
            "Visitors who were told 429 because their address gave up too many places.",
        )
        self.grants = self._counter(
            "waitroom_grants",
            "Grants that requests brought, by what became of them: believed, forged, expired, "
            "outdated, malformed, unknown_class.",
            "result",
        )
        self.wait_seconds = Histogram(
            "waitroom_wait_seconds",
            "From joining to being let in, of those who waited and whom this replica let in.",
            ["room"],
            buckets=_WAITS_S,
            registry=self.registry,
        )

        self.waiting = self._gauge("waitroom_waiting", "Visitors in line.")
        self.active = self._gauge("waitroom_active", "Sessions, provisional ones included.")
        self.provisional = self._gauge("waitroom_provisional", "Called, and not yet here.")
        self.wait_estimate = self._gauge(
            "waitroom_wait_estimate_seconds",
            "What somebody who came now would wait; absent while nobody knows.",
        )
        self.lines = LineGauges()
        self.registry.register(self.lines)
        self.shield_up = self._gauge(
            "waitroom_shield_up", "1 while newcomers come too fast and join from the page, else 0."
        )
        self.replicas = self._gauge("waitroom_replicas", "Replicas that asked in the last seconds.")
        self.recovery = self._gauge(
            "waitroom_recovery_stage",
            "After the store was emptied. 2: nobody is called until sessions and places are back; "
            "1: positions are not known yet; 0: as ever.",
        )
        self.store_away = self._gauge(
            "waitroom_store_away", "1 while the store does not answer this replica, else 0."
        )
        self.remembered = self._gauge(
            "waitroom_remembered_visitors",
            "Visitors who are gone and whose passes or tickets are kept from being used again.",
        )
        self.stays = StoreCounters()
        self.registry.register(self.stays)

        self.cap = self._gauge("waitroom_total_active_users", "The cap on sessions.")
        self.session_duration = self._gauge(
            "waitroom_session_duration_seconds", "How long a session lasts without a request."
        )
        self.queue_all = self._gauge(
            "waitroom_queue_all", "1 while everybody new waits and nobody is called, else 0."
        )
        self.suspended = self._gauge(
            "waitroom_suspended",
            "1 while everybody passes, uncounted (suspended, or passthrough), else 0.",
        )

        self.phase = self._gauge(
            "waitroom_phase",
            "What the room's events say. 0: open, and where there are none; 1: in a pre-queue, "
            "places are taken and nobody is called; 2: closed.",
        )

        self.swept = self._counter("waitroom_swept", "Removed by this replica's sweeps.", "kind")
        self.sweeps = self._counter("waitroom_sweeps", "Sweeps by this replica.")
        self.batch_size = Histogram(
            "waitroom_batch_size",
            "Visitors in one script call.",
            ["verb"],
            buckets=_BATCH_SIZES,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "waitroom_batch_seconds",
            "Time of one script call, round trip included.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.store_errors = self._counter(
            "waitroom_store_errors", "Script calls that failed or took too long.", "script"
        )

        self.recorder_backlog = self._gauge(
            "waitroom_recorder_backlog", "Events that are not in the database yet."
        )
        self.recorder_lag = self._gauge(
            "waitroom_recorder_lag_seconds", "Age of the oldest event not in the database yet."
        )
        self.recorder_written = self._counter(
            "waitroom_recorder_written", "Events that this replica wrote to the database."
        )
        self.recorder_errors = self._counter(
            "waitroom_recorder_errors", "Writes to the database that failed."
        )
        self.recorder_stuck = self._counter(
            "waitroom_recorder_stuck", "Stays without an end that the recorder closed itself."
        )
        self.webhooks = self._counter(
            "waitroom_webhooks",
            "Webhooks of this replica, by what became of them: delivered, failed, dropped.",
            "event",
            "result",
        )
        self.calls = self._counter(
            "waitroom_calls",
            "Calls that webhooks are told of, by what became of each: delivered, failed, dropped, "
            "came, over, lost.",
            "result",
        )
        self.event_streams = self._gauge(
            "waitroom_event_streams", "Streams of server-sent events that are open."
        )

        self.limit_decisions = self._of_rule(
            "limit",
            "waitroom_limit_decisions",
            "Calls that asked a rate limit, by what they were told: granted, paced, refused, "
            "unlimited; while the store was away: admitted_alone, refused_alone.",
            "outcome",
        )
        self.limit_releases = self._of_rule(
            "limit", "waitroom_limit_releases", "Permits and moments that were given back."
        )
        self.limit_wait_seconds = Histogram(
            "waitroom_limit_wait_seconds",
            "How long calls were told to wait that a rate limit paced.",
            ["limit"],
            buckets=_PACES_S,
            registry=self.registry,
        )
        self.leases = self._of_rule(
            "template",
            "waitroom_leases",
            "What was asked about leases (take, look, renew, release), by what was told: granted, "
            "waiting, gone, full, stale, not_renewed.",
            "act",
            "outcome",
        )
        self.leases_swept = self._of_rule(
            "template",
            "waitroom_leases_swept",
            "Resources where a sweep of this replica found something that was over.",
        )
        self.lease_resources = Gauge(
            "waitroom_lease_resources",
            "Resources that somebody holds or waits for.",
            ["template"],
            registry=self.registry,
        )

        self._make_jobs()
        build = Gauge("waitroom_build_info", "Always 1.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._decisions: dict[tuple[str, str], Counter] = {}
        self._of_verbs: dict[str, tuple[Histogram, Histogram]] = {}

    def _make_jobs(self) -> None:
        self.jobs = self._of_rule(
            "target",
            "waitroom_jobs",
            "Jobs, by what became of them here: submitted, refused, completed, failed, cancelled, "
            "expired; pending: a call that is tried again.",
            "state",
        )
        self.job_responses = self._of_rule(
            "target",
            "waitroom_job_responses",
            "Answers of targets to jobs, by HTTP status, those to tries included.",
            "status",
        )
        self.job_seconds = Histogram(
            "waitroom_job_seconds",
            "How long this runner's calls took, by how they went: answered, busy, failed, refused.",
            ["target", "outcome"],
            buckets=_PACES_S,
            registry=self.registry,
        )
        self.callbacks = self._of_rule(
            "target",
            "waitroom_job_callbacks",
            "Callbacks of this runner, by what became of them: delivered, failed.",
            "result",
        )
        self.targets = TargetGauges()
        self.registry.register(self.targets)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["room"], registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ["room", *labels], registry=self.registry)

    def _of_rule(self, kind: str, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, [kind, *labels], registry=self.registry)

    def count_response(self, target: str, status: int | None) -> None:
        """None: the target sent none."""
        if status is not None:
            self.job_responses.labels(target, str(status)).inc()

    def count_request(self, room: str, door: str, state: str) -> None:
        self.requests.count(room, door, state)

    def observe_batch(self, _room: str, verb: str, size: int, seconds: float) -> None:
        children = self._of_verbs.get(verb)
        if children is None:
            children = self.batch_size.labels(verb), self.batch_seconds.labels(verb)
            self._of_verbs[verb] = children
        children[0].observe(size)
        children[1].observe(seconds)

    def count_decisions(self, limit: str, outcome: str, number: int) -> None:
        """What a rate limit said, by the word for it."""
        key = (limit, outcome)
        child = self._decisions.get(key)
        if child is None:
            child = self._decisions[key] = self.limit_decisions.labels(limit, outcome)
        child.inc(number)

    def count_store_error(self, room: str, script: str) -> None:
        self.store_errors.labels(room, script).inc()

    def forget(self, room: str) -> None:
        """Takes back what the store said of the room's present: it says nothing any more, and
        a number that stands still looks like a room at rest."""
        for gauge in (
            self.waiting,
            self.active,
            self.provisional,
            self.wait_estimate,
            self.shield_up,
            self.replicas,
        ):
            absent(gauge, room)
        self.lines.forget(room)

    def text(self) -> bytes:
        return generate_latest(self.registry)
