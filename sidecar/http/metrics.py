"""The Prometheus registry of a process, and the metrics that every process has.

Rooms, leases, limits and so on each declare their metrics as a MetricSet in their metrics.py. A
visitor id or an IP address is never a label. docs/metrics.md lists all metrics.
"""

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Generic, TypeVar, cast

from aiohttp import web
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from sidecar import __version__
from sidecar.storage.redis.eviction import SAFE, UNSEEN
from sidecar.storage.redis.scripts import Observer

#: Buckets for the durations of calls of Redis scripts, in seconds.
_CALL_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
#: Buckets for the durations of requests at the edge listener, in seconds.
_REQUEST_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
#: Buckets for durations from 10 ms to half an hour, in seconds.
PACES_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

# Omit the creation times of counters. No alert uses them, and they would double the output.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library has no types

#: The values of the metric waitroom_store_evicts, by eviction policy. For all other policies, under
#: which Redis evicts keys, the value is 1.
_EVICTS = {SAFE: 0, UNSEEN: math.nan}

#: The end of the help text of metrics that every replica reads from Redis. To aggregate such a
#: metric over the replicas, take the maximum; for all other metrics, take the sum.
#: Recording rules in deploy/monitoring do this for the rates of counters.
SHARED = " The same on all replicas."

AnyMetric = TypeVar("AnyMetric", Counter, Gauge, Histogram)
AnyCollector = TypeVar("AnyCollector", bound=Collector)


class _Declaration(Generic[AnyMetric]):
    """A metric that is declared in a class body. Each instance of the class has its own metric."""

    def __init__(
        self,
        create: Callable[..., AnyMetric],
        rename: Callable[[Collector], Collector] | None = None,
    ) -> None:
        """Store `create`, which returns a metric for the registry that it is called with, and
        `rename`, which returns a collector that exports the metric under its old name too."""
        self.create: Callable[..., AnyMetric] = create
        self.rename = rename

    def __get__(self, instance: object, owner: type | None = None) -> AnyMetric:
        raise AttributeError  # never reached: the instance's own attribute comes first


def counter(name: str, text: str, *labels: str) -> _Declaration[Counter]:
    return _Declaration(functools.partial(Counter, name, text, labels))


def gauge(name: str, text: str, *labels: str) -> _Declaration[Gauge]:
    return _Declaration(functools.partial(Gauge, name, text, labels))


def histogram(
    name: str, text: str, *labels: str, buckets: tuple[float, ...], old_name: str = ""
) -> _Declaration[Histogram]:
    """Declare a histogram. `old_name` is a deprecated name under which it is exported too."""
    create = functools.partial(Histogram, name, text, labels, buckets=buckets)
    rename = functools.partial(_Renamed, old_name, labels) if old_name else None
    return _Declaration(create, rename)


class _Renamed(Collector):
    """Exports a histogram under its old name too."""

    def __init__(self, old_name: str, labels: tuple[str, ...], metric: Collector) -> None:
        self._old_name, self._labels, self._metric = old_name, labels, metric

    def collect(self) -> Iterator[HistogramMetricFamily]:
        for family in self._metric.collect():
            text = f"Deprecated, gone in the next version: use {family.name}."
            renamed = HistogramMetricFamily(self._old_name, text, labels=self._labels)
            for sample in family.samples:
                name = self._old_name + sample.name.removeprefix(family.name)
                renamed.samples.append(sample._replace(name=name))
            yield renamed


class MetricSet:
    """The metrics of one part of Waitroom, such as rooms or jobs, in one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        for name, declared in vars(type(self)).items():
            if isinstance(declared, _Declaration):
                metric = declared.create(registry=registry)
                setattr(self, name, metric)
                if declared.rename:
                    registry.register(declared.rename(metric))

    def add_collector(self, collector: AnyCollector) -> AnyCollector:
        """Register a collector, which creates its samples at each scrape, and return it."""
        self._registry.register(collector)
        return collector


AnyMetricSet = TypeVar("AnyMetricSet", bound=MetricSet)


class Requests(Collector):
    """A counter of requests and a histogram of their durations. To update both takes less than a
    third of the time that prometheus_client takes."""

    def __init__(self) -> None:
        #: The numbers of requests, by name (of the room or limit), endpoint and state.
        self.counts: dict[tuple[str, str, str], int] = {}
        #: Maps an endpoint to its numbers of requests by bucket, and the sum of their seconds.
        self._durations: dict[str, tuple[list[int], list[float]]] = {}

    def count(self, name: str, endpoint: str, state: str) -> None:
        key = (name, endpoint, state)
        self.counts[key] = self.counts.get(key, 0) + 1

    def observe(self, endpoint: str, seconds: float) -> None:
        durations = self._durations.get(endpoint)
        if durations is None:
            durations = self._durations[endpoint] = [0] * (len(_REQUEST_BUCKETS_S) + 1), [0.0]
        durations[0][bisect_left(_REQUEST_BUCKETS_S, seconds)] += 1
        durations[1][0] += seconds

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
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
        text = (
            "How long this replica took to decide a request about a room or lease, Redis included, "
            "by endpoint (door). Time in nginx and in the kernel's queues is not in it."
        )
        histograms = HistogramMetricFamily(
            "waitroom_request_duration_seconds", text, labels=["door"]
        )
        for endpoint, (counts, (total_s,)) in self._durations.items():
            limits = [*map(floatToGoString, _REQUEST_BUCKETS_S), "+Inf"]
            buckets = list(zip(limits, accumulate(counts), strict=True))
            histograms.add_metric([endpoint], buckets, total_s)
        yield histograms


class Metrics(MetricSet):
    """The metrics of every process, and the registry, which also has other MetricSets."""

    build = gauge("waitroom_build_info", "Always 1. The label is the version.", "version")
    batch_size = histogram(
        "waitroom_batch_size",
        "How many visitors, holders or jobs one call of a Redis script handles.",
        "verb",
        buckets=(1, 2, 4, 8, 16, 32, 64, 128),
    )
    batch_seconds = histogram(
        "waitroom_batch_duration_seconds",
        "Duration of one call of a Redis script, round trip included.",
        "verb",
        old_name="waitroom_batch_seconds",
        buckets=_CALL_BUCKETS_S,
    )
    store_errors = counter(
        "waitroom_store_errors",
        "Calls of Redis scripts that failed or took longer than store_timeout. room is "
        "the name of the room, lease, limit or target.",
        "room",
        "script",
    )
    store_evicts = gauge(
        "waitroom_store_evicts",
        "1 if Redis may evict keys (maxmemory-policy is not noeviction), otherwise 0. NaN if the "
        "policy cannot be read.",
    )

    def __init__(self, *set_types: type[MetricSet]) -> None:
        """Create the metrics that every process has, and those of each of `set_types`."""
        self.registry = CollectorRegistry()
        super().__init__(self.registry)
        #: Serves the metrics in the format and encoding that a request accepts.
        self.respond = make_aiohttp_handler(self.registry)
        self.requests = self.add_collector(Requests())
        self.build.labels(__version__).set(1)
        #: Redis' maxmemory-policy, or None until the policy has been read.
        self.eviction: str | None = None
        self.store_evicts.set(math.nan)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._metrics_of_verb = functools.cache(
            lambda verb: (self.batch_size.labels(verb), self.batch_seconds.labels(verb))
        )
        #: The callbacks with which RedisScripts updates these metrics.
        self.observer = Observer(batch=self.observe_batch, error=self.count_store_error)
        self._sets: dict[type[MetricSet], MetricSet] = {}
        for set_type in set_types:
            self.of(set_type)

    def of(self, set_type: type[AnyMetricSet]) -> AnyMetricSet:
        """Return the process's instance of a MetricSet class. The first call creates it."""
        if set_type not in self._sets:
            self._sets[set_type] = set_type(self.registry)
        return cast("AnyMetricSet", self._sets[set_type])

    def set_eviction(self, policy: str) -> None:
        self.eviction = policy
        self.store_evicts.set(_EVICTS.get(policy, 1))

    def observe_batch(self, _name: str, verb: str, size: int, seconds: float) -> None:
        sizes, durations = self._metrics_of_verb(verb)
        sizes.observe(size)
        durations.observe(seconds)

    def count_store_error(self, name: str, script: str) -> None:
        self.store_errors.labels(name, script).inc()


METRICS = web.AppKey("metrics", Metrics)
