"""What is counted. One registry a replica, read from its ops port."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


class Metrics:
    """Every metric, with its labels. No visitor and no address is ever a label."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "waitroom_requests",
            "Requests at the edge, by what they asked and what they were told.",
            ["room", "door", "state"],
            registry=self.registry,
        )
        self.waiting = self._gauge("waitroom_waiting", "Visitors in line.")
        self.active = self._gauge("waitroom_active", "Sessions, provisional ones included.")
        self.provisional = self._gauge("waitroom_provisional", "Called, and not yet here.")
        self.cap = self._gauge("waitroom_total_active_users", "The cap on sessions.")
        self.store_away = self._gauge(
            "waitroom_store_away", "1 while the store does not answer this replica, else 0."
        )
        self.recovery = self._gauge(
            "waitroom_recovery_stage",
            "After the store was emptied. 2: nobody is called until sessions and places are back; "
            "1: positions are not known yet; 0: as ever.",
        )
        self.replicas = self._gauge("waitroom_replicas", "Replicas that asked in the last seconds.")
        self.let_in_alone = Counter(
            "waitroom_let_in_alone",
            "Newcomers that this replica let in while the store was away.",
            ["room"],
            registry=self.registry,
        )
        self.stays = Gauge(
            "waitroom_stays_total",
            "Steps of visitors' stays since the store was made, by kind "
            "(joined, called, admitted, expired, left, released).",
            ["room", "kind"],
            registry=self.registry,
        )
        self.swept = Counter(
            "waitroom_swept",
            "Removed by this replica's sweeps.",
            ["room", "kind"],
            registry=self.registry,
        )
        self.sweeps = Counter(
            "waitroom_sweeps", "Sweeps by this replica.", ["room"], registry=self.registry
        )
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
        self.store_errors = Counter(
            "waitroom_store_errors",
            "Script calls that failed or took too long.",
            ["script"],
            registry=self.registry,
        )
        self._children: dict[tuple[str, str, str], Counter] = {}

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["room"], registry=self.registry)

    def count_request(self, room: str, door: str, state: str) -> None:
        """A label child is looked up once: that costs more than counting."""
        key = (room, door, state)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self.requests.labels(room, door, state)
        child.inc()

    def observe_batch(self, _room: str, verb: str, size: int, seconds: float) -> None:
        self.batch_size.labels(verb).observe(size)
        self.batch_seconds.labels(verb).observe(seconds)

    def count_store_error(self, _room: str, script: str) -> None:
        self.store_errors.labels(script).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
