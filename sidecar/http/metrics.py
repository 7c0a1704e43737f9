"""The registry of a process and what every process measures; docs/metrics.md lists all metrics.

A product declares its own in a MetricSet (its metrics.py) and finds them by `Metrics.of`. No
person and no address is ever a label.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

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
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.storage.redis.eviction import SAFE, UNSEEN
from sidecar.storage.redis.scripts import Observer

_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
#: Buckets for what takes from a moment to half an hour, seconds.
PACES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

# Each counter's time of birth would double the output; nobody asks for it.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library's has no types

_EVICTS = {SAFE: 0, UNSEEN: math.nan}

#: Ends the help of a metric that Redis knows: take the maximum of all replicas. Others add up.
SHARED = " The same on all replicas."

T = TypeVar("T", Counter, Gauge, Histogram)
C = TypeVar("C", bound=Collector)


class _Declared(Generic[T]):
    """A metric in a class body; an instance of the class has one of its own in its place."""

    def __init__(self, make: Callable[[CollectorRegistry], T]) -> None:
        self.make: Callable[[CollectorRegistry], T] = make

    def __get__(self, instance: object, owner: type | None = None) -> T:
        raise AttributeError  # never reached: the instance's own attribute comes first


def counter(name: str, text: str, *labels: str) -> _Declared[Counter]:
    return _Declared(lambda registry: Counter(name, text, labels, registry=registry))


def gauge(name: str, text: str, *labels: str) -> _Declared[Gauge]:
    return _Declared(lambda registry: Gauge(name, text, labels, registry=registry))


def histogram(
    name: str, text: str, *labels: str, buckets: tuple[float, ...]
) -> _Declared[Histogram]:
    return _Declared(
        lambda registry: Histogram(name, text, labels, buckets=buckets, registry=registry)
    )


class MetricSet:
    """The metrics of one product in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        for name, declared in vars(type(self)).items():
            if isinstance(declared, _Declared):
                setattr(self, name, declared.make(registry))

    def collected(self, collector: C) -> C:
        """Registers one that computes its samples when it is asked."""
        self._registry.register(collector)
        return collector


S = TypeVar("S", bound=MetricSet)


class Requests(Collector):
    """The count of requests, kept for a tenth of what the library's own counter takes."""

    def __init__(self) -> None:
        #: By the configuration's name, endpoint and state.
        self.counts: dict[tuple[str, str, str], int] = {}

    def count(self, name: str, endpoint: str, state: str) -> None:
        key = (name, endpoint, state)
        self.counts[key] = self.counts.get(key, 0) + 1

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = (
            "Requests at the edge listener, by endpoint (door) and result (state). door:"
            " check (nginx asks about a request), gate (another proxy does), status, "
            "join, leave, page, events, claim, check-limit. nginx keeps the result of who is"
            " inside for 3 s, and asks once in that time; other proxies ask about each "
            "request. state unknown-room has no room."
        )
        family = CounterMetricFamily("waitroom_requests", text, labels=["room", "door", "state"])
        for labels, number in self.counts.items():
            family.add_metric(labels, number)
        yield family


class Metrics(MetricSet):
    """What every process measures, and the registry that the products' sets are in."""

    build = gauge("waitroom_build_info", "Always 1. The label is the version.", "version")
    batch_size = histogram(
        "waitroom_batch_size",
        "How many subjects one call of a Redis script is about.",
        "verb",
        buckets=_BATCH_SIZES,
    )
    batch_seconds = histogram(
        "waitroom_batch_seconds",
        "Duration of one call of a Redis script, round trip included.",
        "verb",
        buckets=_SECONDS,
    )
    store_errors = counter(
        "waitroom_store_errors",
        "Calls of Redis scripts that failed or took longer than store_timeout. room is "
        "the name of whatever the script is about.",
        "room",
        "script",
    )

    store_evicts = gauge(
        "waitroom_store_evicts",
        "1 where Redis may evict keys (maxmemory-policy other than noeviction), 0 where not. NaN "
        "where this cannot be seen.",
    )

    def __init__(self, *products: type[MetricSet]) -> None:
        """`products`: those whose metrics are exported from the start."""
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        self.requests = self.collected(Requests())
        self.build.labels(__version__).set(1)
        #: maxmemory-policy, as last seen; None: not yet.
        self.eviction: str | None = None
        self.store_evicts.set(math.nan)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._of_verb = functools.cache(
            lambda verb: (self.batch_size.labels(verb), self.batch_seconds.labels(verb))
        )
        self._sets: dict[type[MetricSet], MetricSet] = {}
        for product in products:
            self.of(product)

    def of(self, product: type[S]) -> S:
        found = self._sets.get(product)
        if found is None:
            found = self._sets[product] = product(self.registry)
        return cast("S", found)

    def tell_eviction(self, policy: str) -> None:
        self.eviction = policy
        self.store_evicts.set(_EVICTS.get(policy, 1))

    @property
    def observer(self) -> Observer:
        return Observer(batch=self.observe_batch, error=self.count_store_error)

    def observe_batch(self, _name: str, verb: str, size: int, seconds: float) -> None:
        sizes, durations = self._of_verb(verb)
        sizes.observe(size)
        durations.observe(seconds)

    def count_store_error(self, name: str, script: str) -> None:
        self.store_errors.labels(name, script).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
