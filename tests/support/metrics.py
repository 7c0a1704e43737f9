"""The metrics that the code declares, and the example queries of docs/metrics.md."""

import re
from pathlib import Path

from scripts.docs_pages.metrics import FOUND

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()

#: Type and labels of each metric, by its name on /metrics.
DECLARED = {
    name: (metric.kind, metric.labels)
    for metrics in FOUND.values()
    for name, metric in metrics.items()
}

QUERIES = re.search(r"```promql\n(.*?)```", PAGE, re.DOTALL)[1].split("\n\n")
