"""docs/alerts.md: every alert, from the rules that are shipped."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

RULES = (
    Path(__file__).resolve().parents[2]
    / "deploy"
    / "monitoring"
    / "prometheus"
    / "waitroom.rules.yml"
)

_INTRODUCTION = """\
# Alerts

Every alert of `deploy/monitoring/prometheus/waitroom.rules.yml`: when it fires, what it means, and
what to do. How to use the file, and who is notified: [metrics](metrics.md#alerts).

| severity | means |
|---|---|
| critical | Visitors suffer now. |
| warning | Look at it today. |
| info | It may be on purpose. |

`ROOM`, `TARGET`, `LIMIT` and `JOB` (the scrape job, one for each site) stand for names, `N` for the
number. Thresholds are the first rules of the file:"""


def read_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def split(rule: dict[str, Any]) -> tuple[str, str]:
    """What an alert means, and what to do."""
    meaning, _, remedy = rule["annotations"]["description"].strip().partition("\n")
    return meaning, remedy


def page() -> str:
    rules = read_rules()
    thresholds = [rule for rule in rules if rule.get("record", "").startswith("waitroom:threshold")]
    rows = [f"| `{rule['record']}` | {rule['expr']} |" for rule in thresholds]
    parts = [_INTRODUCTION, "\n".join(["| threshold | value |", "|---|---|", *rows])]
    for rule in rules:
        if "alert" in rule:
            parts += _alert(rule)
    return "\n\n".join(parts) + "\n"


def _alert(rule: dict[str, Any]) -> Iterator[str]:
    texts = rule["annotations"]
    meaning, remedy = split(rule)
    yield f"## {rule['alert']}"
    lasts = f"after {rule['for']}" if "for" in rule else "at once"
    yield f"**{_named(texts['summary'])}** ({rule['labels']['severity']}, fires {lasts})"
    yield _named(meaning)
    file, _, anchor = texts["runbook"].partition("#")
    section = f"[{anchor.replace('-', ' ')}]({file.removeprefix('docs/')}#{anchor})"
    yield f"**What to do:** {_named(remedy)} More: {section}."
    yield f"```promql\n{rule['expr'].strip()}\n```"


def _named(text: str) -> str:
    """With words in place of the labels and values that Prometheus fills in."""
    text = re.sub(r"{{ *\$labels\.(\w+) *}}", lambda found: found[1].upper(), text)
    return " ".join(re.sub(r"{{ *\$value[^}]*}}", "N", text).split())
