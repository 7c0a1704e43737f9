"""Generators of files from deploy/monitoring/alerts.toml: Prometheus rules, the dashboard's alerts
and docs/alerts.md."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).resolve().parents[2] / "deploy" / "monitoring"
TABLE: dict[str, Any] = tomllib.loads((MONITORING / "alerts.toml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [alert for group in TABLE["groups"] for alert in group["alerts"]]
#: Where the documentation is published, if pyproject.toml says so.
_PROJECT = tomllib.loads((MONITORING.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
DOCS = _PROJECT["project"]["urls"].get("Documentation", "https://waitroom.example/docs/")
_UNITS = {"s": 1, "m": 60, "h": 3600}
_DURATIONS = {"duration": "humanizeDuration", "value": "humanize"}

_INTRODUCTION = """\
# Alerts

Every alert of `deploy/monitoring/prometheus/waitroom.rules.yml`: when it fires, what it means, and
what to do. How to use the file, and who is notified: [metrics](metrics.md#alerts).

| severity | means |
|---|---|
| critical | Visitors suffer now. |
| warning | Look at it today. |
| info | It may be on purpose. |

`ROOM`, `TARGET`, `LIMIT`, `WEBHOOK` and `JOB` (the scrape job, one for each site) stand for names,
`N` for the number. Thresholds are the first rules of the file:"""

_RULES_HEAD = """\
# Numbers and alerts of Waitroom's rooms and targets. Each metric: docs/metrics-reference.md.
# Written by python -m scripts.docs_pages from deploy/monitoring/alerts.toml. On a site of your own
# you may change this file.
#
# The scrape job's name contains "waitroom" (prometheus.yml beside this file). Several sites in
# one Prometheus have a job each: waitroom-shop, waitroom-tickets.
#
# Thresholds are the numbers of the first group, for all rooms. How long something has to last
# is the alert's `for`. A room with a threshold of its own: copy the alert, choose the room
# with {room="NAME"}, write the number in place of scalar(…), and leave the room out of the
# alert for all with {room!="NAME"}.
#
# severity: critical, visitors suffer now; warning, look today; info, it may be meant so.
# description: what it means; below, what to do. docs/alerts.md has the same texts. runbook_url:
# that page, where the documentation is published (Documentation in pyproject.toml). Replace
# waitroom.example with the address of yours.

groups:
  - name: waitroom-thresholds
    rules:
"""


def expression(alert: dict[str, Any]) -> str:
    """Return the PromQL expression of an alert."""
    if "expr" in alert:
        return str(alert["expr"])
    terms = "\n  and ".join(_term(*term.split()) for term in alert["when"])
    return terms + (f"\n  unless {TABLE['figures'][alert['unless']]}" if "unless" in alert else "")


def _term(figure: str, operator: str, limit: str) -> str:
    if limit.startswith("threshold."):
        limit = f"scalar(waitroom:threshold_{limit.removeprefix('threshold.')})"
    return f"{TABLE['figures'][figure]} {operator} {TABLE['figures'].get(limit, limit)}"


def rules() -> str:
    """Return the content of waitroom.rules.yml."""
    lines = []
    for name, threshold in TABLE["thresholds"].items():
        lines += textwrap.wrap(f"# {threshold['meaning']}", 92, subsequent_indent="# ")
        lines += [f"- record: waitroom:threshold_{name}", f'  expr: "{threshold["value"]}"']
    text = _RULES_HEAD + _indented("\n".join(lines), 6) + "\n\n" + TABLE["recording_rules"]
    for group in TABLE["groups"]:
        comment = f"  # {group['comment']}\n" if "comment" in group else ""
        text += f"\n{comment}  - name: {group['name']}\n    rules:\n"
        text += "\n".join(_indented(_rule(alert), 6) for alert in group["alerts"])
    return text


def _rule(alert: dict[str, Any]) -> str:
    lasts = f"  for: {alert['for']}\n" if "for" in alert else ""
    texts = [_templated(alert[name]) for name in ("summary", "meaning", "remedy")]
    summary, meaning, remedy = (_indented(textwrap.fill(text, 88), 6) for text in texts)
    return (
        f"- alert: {alert['name']}\n  expr: |\n{_indented(expression(alert), 4)}\n{lasts}"
        f"  labels:\n    severity: {alert['severity']}\n  annotations:\n"
        f"    summary: >-\n{summary}\n    description: >-\n{meaning}\n\n{remedy}\n"
        f"    runbook_url: {DOCS.rstrip('/')}/alerts.html#{alert['name'].lower()}\n"
    )


def _templated(text: str) -> str:
    """Replace {room}, {value} and other placeholders of a text with Prometheus templates."""

    def template(name: str) -> str:
        printed = _DURATIONS.get(name)
        return f"{{{{ $value | {printed} }}}}" if printed else f"{{{{ $labels.{name} }}}}"

    return re.sub(r"{(\w+)}", lambda match: template(match[1]), text)


def _indented(text: str, spaces: int) -> str:
    return textwrap.indent(text, " " * spaces)


def dashboard() -> str:
    """Return the content of sidecar/dashboard/page/alerts.json."""
    thresholds = {name: threshold["value"] for name, threshold in TABLE["thresholds"].items()}
    alerts = {}
    for alert in ALERTS:
        lasts = alert.get("for", "0s")
        alerts[alert["name"]] = {
            "severity": alert["severity"],
            "for_s": int(lasts[:-1]) * _UNITS[lasts[-1]],
            **{name: alert[name] for name in ("when", "unless") if name in alert},
            **{name: alert[name] for name in ("summary", "meaning", "remedy")},
        }
    return json.dumps({"thresholds": thresholds, "alerts": alerts}, indent=1) + "\n"


def page() -> str:
    rows = [
        f"| `waitroom:threshold_{name}` | {threshold['value']} |"
        for name, threshold in TABLE["thresholds"].items()
    ]
    parts = [_INTRODUCTION, "\n".join(["| threshold | value |", "|---|---|", *rows])]
    for alert in ALERTS:
        parts += _section(alert)
    return "\n\n".join(parts) + "\n"


def _section(alert: dict[str, Any]) -> Iterator[str]:
    yield f"## {alert['name']}"
    lasts = f"after {alert['for']}" if "for" in alert else "at once"
    yield f"**{_named(alert['summary'])}** ({alert['severity']}, fires {lasts})"
    yield _named(alert["meaning"])
    file, _, anchor = alert["runbook"].partition("#")
    section = f"[{anchor.replace('-', ' ')}]({file.removeprefix('docs/')}#{anchor})"
    yield f"**What to do:** {_named(alert['remedy'])} More: {section}."
    yield f"```promql\n{expression(alert).strip()}\n```"


def _named(text: str) -> str:
    """Replace placeholders for labels and values of a text with words such as ROOM and N."""
    return re.sub(
        r"{(\w+)}", lambda match: "N" if match[1] in _DURATIONS else match[1].upper(), text
    )
