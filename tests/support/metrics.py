"""What the code declares of metrics, and what docs/metrics.md asks of them."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

from sidecar.kit.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()

ROW = re.compile(
    r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| (?:room|template|target|replica) \| \S", re.MULTILINE
)


def declared() -> dict[str, tuple[str, list[str]]]:
    """What the code exports, without a room: type and labels by the name in the output."""
    metrics = Metrics()
    found = {}
    for family in metrics.registry.collect():
        labels = getattr(family, "_labelnames", None)
        if not labels:
            labels = tuple(family.samples[0].labels) if family.samples else ()
        found[family.name] = (family.type, list(labels))
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            found[metric._name] = (metric._type, list(metric._labelnames))
    return {name + "_total" * (kind == "counter"): (kind, labels)
            for name, (kind, labels) in found.items()}  # fmt: skip


DECLARED = declared()

QUESTIONS = re.search(r"```promql\n(.*?)```", PAGE, re.DOTALL)[1].split("\n\n")
