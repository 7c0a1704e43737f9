"""The pages of docs/ that are made from the code: python -m scripts.docs_pages writes them.

Prometheus's rules and the dashboard's alerts are made beside docs/alerts.md, from one table.

One module per page, with a function `page` that returns its text. A page that is written by hand
keeps its text, and links to the table that is made here.
"""

from pathlib import Path

from scripts.docs_pages import (
    alerts,
    commands,
    endpoints,
    findings,
    metrics,
    problems,
    settings,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"

#: The text of each page, by its file.
PAGES = {
    "alerts.md": alerts.page,
    "commands.md": commands.page,
    "doctor.md": findings.page,
    "endpoints.md": endpoints.page,
    "metrics-reference.md": metrics.page,
    "problems.md": problems.page,
    "settings.md": settings.page,
    "../deploy/monitoring/prometheus/waitroom.rules.yml": alerts.rules,
    "../sidecar/dashboard/page/alerts.json": alerts.dashboard,
}
