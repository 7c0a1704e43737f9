"""What the code declares of metrics, and what docs/metrics.md asks of them."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from sidecar.app import PRODUCT_METRICS
from sidecar.kit.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()

ROW = re.compile(
    r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| (?:room|template|target|replica) \| \S", re.MULTILINE
)


def declared() -> dict[str, tuple[str, list[str]]]:
    """What the code exports, without a room: type and labels by the name in the output."""
    metrics = Metrics(*PRODUCT_METRICS)
    found = {}
    for family in metrics.registry.collect():
        labels = getattr(family, "_labelnames", None)
        if not labels:
            labels = tuple(family.samples[0].labels) if family.samples else ()
        found[family.name] = (family.type, list(labels))
    for metrics_of in (metrics, *map(metrics.of, PRODUCT_METRICS)):
        for metric in vars(metrics_of).values():
            if isinstance(metric, MetricWrapperBase):
                found[metric._name] = (metric._type, list(metric._labelnames))
    return {name + "_total" * (kind == "counter"): (kind, labels)
            for name, (kind, labels) in found.items()}  # fmt: skip


DECLARED = declared()

QUESTIONS = re.search(r"```promql\n(.*?)```", PAGE, re.DOTALL)[1].split("\n\n")
