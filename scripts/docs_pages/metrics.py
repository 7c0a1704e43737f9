"""Generator of docs/metrics-reference.md from the declarations of all metrics."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric as Family

from scripts.docs_pages.markdown import bullet
from sidecar.app.replica import PRODUCT_METRICS
from sidecar.http.metrics import SHARED, Metrics, MetricSet

_INTRODUCTION = f"""\
# All metrics

Every metric of a replica. How to scrape them and which to watch: [metrics](metrics.md).

Where the text ends with "{SHARED.strip()}", Redis knows the number, and each
replica exports it. Take the maximum, `max by (room) (…)`. All others belong to one replica: add
them up, `sum by (room) (…)`. A histogram also has `…_bucket`, `…_sum` and `…_count`."""
_TITLES = {
    "RoomMetrics": "Rooms",
    "AdaptiveMetrics": "Adaptive rooms, and the headers of sites",
    "GateMetrics": "Streams",
    "LeaseMetrics": "Leases",
    "LimitMetrics": "Rate limits",
    "JobMetrics": "Jobs and targets",
    "HistoryMetrics": "History",
    "WebhookMetrics": "Webhooks",
    "Metrics": "Requests, Redis and the process",
}
_UNITS = ("seconds", "bytes")


class Metric(NamedTuple):
    kind: str
    labels: list[str]
    text: str


def page() -> str:
    parts = [_INTRODUCTION]
    for product, title in _TITLES.items():
        parts.append(f"## {title}")
        parts.append(
            "\n".join(bullet(_line(name, metric)) for name, metric in FOUND[product].items())
        )
    return "\n\n".join(parts) + "\n"


def _line(name: str, metric: Metric) -> str:
    units = [unit for unit in _UNITS if name.removesuffix("_total").endswith(f"_{unit}")]
    labels = [f"by {', '.join(f'`{label}`' for label in metric.labels)}"] if metric.labels else []
    return f"`{name}` ({', '.join([metric.kind, *units, *labels])}): {metric.text}"


def _declared_in(metrics: MetricSet, registry: CollectorRegistry) -> dict[str, Metric]:
    """Return the metrics of a class by their names in the output."""
    found: dict[str, Metric] = {}
    for family in registry.collect():
        found[_exported(family.name, family.type)] = Metric(
            family.type, _labels(family), family.documentation
        )
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            # The library has no public way to the labels of a metric without samples.
            name, kind = metric._name, metric._type  # noqa: SLF001
            labels, text = metric._labelnames, metric._documentation  # noqa: SLF001
            found[_exported(name, kind)] = Metric(kind, list(labels), text)
    return found


def _exported(name: str, kind: str) -> str:
    return name + "_total" * (kind == "counter")


def _labels(family: Family) -> list[str]:
    named = getattr(family, "_labelnames", None)
    return list(named or (family.samples[0].labels if family.samples else ()))


def _found() -> Iterator[tuple[str, dict[str, Metric]]]:
    for product in PRODUCT_METRICS:
        registry = CollectorRegistry()
        yield product.__name__, _declared_in(product(registry), registry)
    metrics = Metrics()
    yield "Metrics", _declared_in(metrics, metrics.registry)


#: The metrics, by the class that declares them and by name.
FOUND = dict(_found())
